/* hf_folder.h - presents the tensors of a Hugging Face folder as one set. They are in model.safetensors, or in the
 * files that model.safetensors.index.json lists. */
#ifndef PB_HF_FOLDER_H
#define PB_HF_FOLDER_H
#include "trainer/io/safetensors.h"

typedef struct pb_hf_folder {
    char *dir;
    pb_safetensors **file; /* [n] */
    bool **taken;          /* [n][pb_st_count(file)]: true if pb_hf_folder_take returned the tensor */
    size_t n;
} pb_hf_folder;

/* Opens every file. EPATH, EIO: a file is missing or cannot be read. EINVAL: a file is malformed, the index names a
 * tensor that is not in its file, or a tensor is in two files. */
pb_status pb_hf_folder_open(const char *dir, pb_hf_folder *out);
void pb_hf_folder_close(pb_hf_folder *f);

/* Finds a tensor by name and marks it as taken. NULL: not found. *file is set to the file that contains the tensor. */
const pb_st_tensor *pb_hf_folder_take(pb_hf_folder *f, const char *name, const pb_safetensors **file);

/* The files that an index lists, each once. A file name must not contain a folder. Free with pb_hf_index_free. */
typedef struct pb_hf_index {
    void *root;        /* json_t of the parsed index file; owns the texts that `file` points to */
    const char **file; /* [n], sorted */
    size_t n;
} pb_hf_index;
pb_status pb_hf_index_parse(const char *where, const void *text, size_t n, pb_hf_index *out);
void pb_hf_index_free(pb_hf_index *x);
#endif
