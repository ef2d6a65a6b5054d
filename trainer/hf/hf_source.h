/* hf_source.h - the tensors of a model's weights, in a Hugging Face folder or a GGUF file. */
#ifndef PB_HF_SOURCE_H
#define PB_HF_SOURCE_H
#include "trainer/hf/hf_names.h"
#include "trainer/io/gguf.h"

typedef struct pb_hf_source pb_hf_source;

/* A tensor of a source. */
typedef struct pb_hf_piece {
    size_t n, bytes;            /* number of elements, of bytes in the file */
    const pb_safetensors *file; /* NULL: the tensor is in a GGUF file */
    const pb_st_tensor *t;
    const pb_gguf *gguf;
    const pb_gguf_tensor *block;
    /* Rows per head and elements per row of a tensor whose rows are permuted in the file; 0: they are not. The GGUF
     * files of Llama models have the rows of q and k in the order that RoPE of neighbouring elements needs: row 2i + a
     * of a head, a = 0 or 1, is row a head/2 + i of transformers. */
    size_t head, columns;
} pb_hf_piece;

/* Opens a folder (hf_folder.h) or a GGUF file (gguf.h); errors as theirs. The caller closes *out. */
pb_status pb_hf_source_open(const char *path, pb_hf_source **out);
void pb_hf_source_close(pb_hf_source *s); /* NULL is allowed */
/* Finds the tensor of the model `m` that `want` describes. EINVAL: the file has no such tensor, or it has another
 * shape; EFORMAT: its type cannot be converted. The message names the file and the tensor. */
pb_status pb_hf_source_take(pb_hf_source *s, const pb_model *m, const pb_hf_tensor *want, pb_hf_piece *out);
/* Call it after every tensor was taken. EFORMAT: a GGUF file has a tensor, such as a bias or an expert of a layer, for
 * which the model has no parameter: without it the model would compute something else. Layers beyond the model's number
 * of layers are ignored. For a folder nothing is checked, because the reader of config.json refuses such models. */
pb_status pb_hf_source_check_unused(const pb_hf_source *s, const pb_model *m);
/* Returns the name of the next tensor that was not taken, from number *at on, and moves *at past it; NULL: all are
 * taken. */
const char *pb_hf_source_unused(const pb_hf_source *s, size_t *at);
/* Converts the elements [first, first+n) to PB_F32 or PB_BF16 in host memory out[n], with rows in transformers' order.
 * Errors as pb_st_load and pb_gguf_load. */
pb_status pb_hf_piece_load(const pb_hf_piece *p, size_t first, size_t n, pb_dtype to, void *out);
#endif
