/* gguf.h - reads GGUF files: the metadata and the tensors, whose quantised blocks are converted to f32 or bf16.
 *
 * Format (github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little-endian): "GGUF"; u32 version; u64 number of
 * tensors; u64 number of metadata entries; the entries (key, u32 type of the value, value); the tensors' descriptions
 * (name, u32 number of dimensions, u64 dimensions with the fastest first, u32 element type, u64 offset); padding; the
 * data. Texts are a u64 length and that many bytes. Data and every tensor in it begin at multiples of the metadata's
 * general.alignment (32 without it).
 *
 * In an accepted file every text, array and tensor is inside the file, tensors do not overlap, no two keys or tensors
 * have one name, every tensor has a type of gguf.def that is read, and its rows are whole blocks. Array elements are
 * never arrays. The host must be little-endian. */
#ifndef PB_GGUF_H
#define PB_GGUF_H
#include <stdbool.h>

#include "kernels/engine/dtype.h"
#include "os/status.h"

typedef enum pb_gguf_type {
#define BLOCK(name, ...) PB_GGUF_##name,
#include "trainer/io/gguf.def"
    PB_GGUF_NTYPES
} pb_gguf_type;
const char *pb_gguf_type_name(pb_gguf_type t);

enum { PB_GGUF_MAX_DIMS = 4 };
typedef struct pb_gguf_tensor {
    const char *file, *name; /* valid until the file is closed */
    pb_gguf_type type;
    int dims;
    size_t shape[PB_GGUF_MAX_DIMS]; /* the slowest dimension first: [rows,columns] */
    size_t n, bytes;                /* number of elements, of bytes in the file */
    const unsigned char *data;      /* [bytes], may be unaligned */
} pb_gguf_tensor;

typedef struct pb_gguf pb_gguf;

/* True if `path` is to be read as a GGUF file: a regular file whose name ends in ".gguf" or which begins with
 * "GGUF". */
bool pb_gguf_is(const char *path);
/* Opens and checks a file. EPATH, EIO: it cannot be read. EINVAL: it is malformed. EFORMAT: another version or byte
 * order, a nested array, or a tensor of a type that is not read. One line names the file and, if known, key or
 * tensor. */
pb_status pb_gguf_open(const char *path, pb_gguf **out);
/* Parses n bytes in memory, which must stay valid until pb_gguf_close. Messages use `name` as the path. */
pb_status pb_gguf_parse(const char *name, const void *bytes, size_t n, pb_gguf **out);
void pb_gguf_close(pb_gguf *f); /* NULL is allowed */
const char *pb_gguf_path(const pb_gguf *f);

size_t pb_gguf_count(const pb_gguf *f);
const pb_gguf_tensor *pb_gguf_at(const pb_gguf *f, size_t i);           /* sorted by name */
const pb_gguf_tensor *pb_gguf_find(const pb_gguf *f, const char *name); /* NULL: not found */

/* Converts the elements [first, first+n) of a tensor to PB_F32 or PB_BF16 in host memory out[n], using all threads. A
 * quantised element is computed in f32, in the order of the operations of ggml's dequantize_row functions; conversion
 * to bf16 goes through f32 and rounds to nearest even. EIO: the file has become shorter, or cannot be read. */
pb_status pb_gguf_load(const pb_gguf *f, const pb_gguf_tensor *t, size_t first, size_t n, pb_dtype to, void *out);

/* ---- metadata ----------------------------------------------------------------------------------------- */

typedef struct pb_gguf_text { /* borrowed, not NUL-terminated, any bytes */
    const char *p;
    size_t n;
} pb_gguf_text;
typedef struct pb_gguf_list { /* the elements of an array that were not taken yet */
    const unsigned char *at;
    size_t n;
    int kind; /* private */
} pb_gguf_list;

bool pb_gguf_has(const pb_gguf *f, const char *key);
/* Each leaves *out unchanged if the key is absent. EINVAL: the value has another type; the message names file and key.
 * whole: any integer type, at least 0. real: a float or an integer. */
pb_status pb_gguf_get_whole(const pb_gguf *f, const char *key, uint64_t *out);
pb_status pb_gguf_get_real(const pb_gguf *f, const char *key, double *out);
pb_status pb_gguf_get_flag(const pb_gguf *f, const char *key, bool *out);
pb_status pb_gguf_get_text(const pb_gguf *f, const char *key, pb_gguf_text *out);
pb_status pb_gguf_get_texts(const pb_gguf *f, const char *key, pb_gguf_list *out);
pb_status pb_gguf_get_wholes(const pb_gguf *f, const char *key, pb_gguf_list *out);
/* Takes the next element of a list of texts, of integers (negative ones become 0); the list must not be empty. */
pb_gguf_text pb_gguf_next_text(pb_gguf_list *l);
uint64_t pb_gguf_next_whole(pb_gguf_list *l);
#endif
