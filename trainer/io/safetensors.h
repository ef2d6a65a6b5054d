/* safetensors.h - safetensors files (named tensors): a reader that maps the file, and an atomic writer.
 *
 * Format (github.com/huggingface/safetensors): 8 bytes with the little-endian length N; N bytes of JSON that begin with
 * '{' and may be padded with blanks; then the tensor data, little-endian and row-major. The JSON object is {"name":
 * {"dtype", "shape", "data_offsets": [begin, end]}}, and may have "__metadata__": {"key": "text"}. The tensors cover
 * the data without gap or overlap.
 *
 * The reader accepts the files that the safetensors library accepts, except those with more than PB_ST_MAX_DIMS
 * dimensions, names with control characters, or elements smaller than a byte. In an accepted file the data of every
 * tensor is inside the file, and its size is the product of the shape times the element size. Tensor data may be
 * unaligned. The host must be little-endian. */
#ifndef PB_SAFETENSORS_H
#define PB_SAFETENSORS_H
#include <stdbool.h>

#include "kernels/engine/dtype.h"
#include "os/disk.h"
#include "os/status.h"

enum { PB_ST_MAX_DIMS = 8, PB_ST_MAX_HEADER = 100000000 };

/* The element types. X(enumerator and name in the file, bytes per element) */
#define PB_ST_DTYPE_MAP(X)                                                                                             \
    X(F64, 8)                                                                                                          \
    X(F32, 4)                                                                                                          \
    X(F16, 2)                                                                                                          \
    X(BF16, 2)                                                                                                         \
    X(F8_E4M3, 1)                                                                                                      \
    X(F8_E5M2, 1)                                                                                                      \
    X(F8_E8M0, 1)                                                                                                      \
    X(I64, 8)                                                                                                          \
    X(I32, 4)                                                                                                          \
    X(I16, 2)                                                                                                          \
    X(I8, 1)                                                                                                           \
    X(U64, 8)                                                                                                          \
    X(U32, 4)                                                                                                          \
    X(U16, 2)                                                                                                          \
    X(U8, 1)                                                                                                           \
    X(BOOL, 1)
typedef enum pb_st_dtype {
#define X(id, bytes) PB_ST_##id,
    PB_ST_DTYPE_MAP(X)
#undef X
        PB_ST_NDTYPES
} pb_st_dtype;
size_t pb_st_dtype_size(pb_st_dtype t);
const char *pb_st_dtype_name(pb_st_dtype t);

/* ---- reading safetensors files --------------------------------------------------------------------- */

typedef struct pb_st_tensor {
    /* file: path of the tensor's file; name: name of the tensor; both valid until the file is closed */
    const char *file, *name;
    pb_st_dtype dtype;
    int dims;
    size_t shape[PB_ST_MAX_DIMS];
    size_t n, bytes;           /* n: number of elements; bytes: n * element size */
    const unsigned char *data; /* [bytes], may be unaligned */
} pb_st_tensor;

typedef struct pb_safetensors pb_safetensors;

/* Opens and checks a file. EPATH, EIO: it cannot be read; EINVAL: it is malformed. The message names the file and, if
 * known, the tensor. */
pb_status pb_st_open(const char *path, pb_safetensors **out);
/* Parses n bytes in memory, which must stay valid until pb_st_close. Messages use `name` as the path. */
pb_status pb_st_parse(const char *name, const void *bytes, size_t n, pb_safetensors **out);
void pb_st_close(pb_safetensors *f); /* NULL is allowed */

size_t pb_st_count(const pb_safetensors *f);
const pb_st_tensor *pb_st_at(const pb_safetensors *f, size_t i);           /* sorted by name */
const pb_st_tensor *pb_st_find(const pb_safetensors *f, const char *name); /* NULL: not found */
const char *pb_st_metadata(const pb_safetensors *f, const char *key);      /* NULL: not found */
/* Returns the descriptor of the opened file, and the offset of the tensor's data in it. False: f was parsed from bytes
 * in memory. */
bool pb_st_file(const pb_safetensors *f, const pb_st_tensor *t, int *fd, size_t *offset);
/* Writes the shape as "[3,4]" to `out`, truncated if `room` is too small, and returns `out`. */
const char *pb_st_shape_text(const size_t *shape, int dims, char *out, size_t room);

/* True if pb_st_convert supports the conversion: F32, F16, BF16 to PB_F32, PB_BF16; and I64, I32, U8 to PB_I32. */
bool pb_st_can_convert(pb_st_dtype from, pb_dtype to);
/* Converts the elements [first, first+n) of a tensor to type `to` in host memory out [n], using all threads. Conversion
 * to bf16 goes through f32 and rounds to nearest even; all other conversions are exact. EFORMAT: unsupported
 * conversion; EINVAL: an I64 value does not fit. */
pb_status pb_st_convert(const pb_st_tensor *t, size_t first, size_t n, pb_dtype to, void *out);
/* Like pb_st_convert, but reads the file in pieces instead of through its mapping: this avoids page faults, and the
 * file's pages do not count as memory of this process. EIO: the file has become shorter, or cannot be read. */
pb_status pb_st_load(const pb_safetensors *f, const pb_st_tensor *t, size_t first, size_t n, pb_dtype to, void *out);

/* ---- writing safetensors files --------------------------------------------------------------------- */

typedef struct pb_st_entry {
    const char *name;
    pb_st_dtype dtype;
    int dims;
    size_t shape[PB_ST_MAX_DIMS];
} pb_st_entry;
typedef struct pb_st_pair {
    const char *key, *value;
} pb_st_pair;
typedef struct pb_st_writer pb_st_writer;

/* Creates a draft of `path` (os/draft.h) and writes its header: entries [n] in the order in which their data will
 * follow, and metadata [metas] (NULL and 0: none). Data start at a multiple of 8 bytes, so that tensors are aligned if
 * those with larger elements come first. EINVAL: a duplicate name, text that is not UTF-8, a shape that overflows;
 * EPATH, EIO: the message names the path. */
pb_status pb_st_create(const char *path, const pb_st_entry *entries, size_t n, const pb_st_pair *meta, size_t metas,
                       pb_st_writer **out);
/* Like pb_st_create, with the caller's table of file operations, which must outlive the writer. */
pb_status pb_st_create_on(const pb_disk *disk, const char *path, const pb_st_entry *entries, size_t n,
                          const pb_st_pair *meta, size_t metas, pb_st_writer **out);
/* Appends data; pieces may have any size and cross tensors. EINVAL: more data than the header announces. */
pb_status pb_st_append(pb_st_writer *w, const void *bytes, size_t n);
/* Makes the file durable and then visible: fsync, rename to its path, fsync of the folder. An existing file
 * at the path remains until the rename. EINVAL: data are missing. Frees the writer in any case; after a
 * failure the draft is removed. */
pb_status pb_st_commit(pb_st_writer *w);
void pb_st_abandon(pb_st_writer *w); /* removes the draft and frees the writer; NULL is allowed */
#endif
