/* safetensors.h - files of named tensors: a reader over mmap and an atomic writer.
 *
 * Format (github.com/huggingface/safetensors): 8 bytes little-endian length N; N bytes of JSON, beginning with '{' and
 * possibly padded with blanks, that give {"name": {"dtype", "shape", "data_offsets": [begin, end]}} and "__metadata__"
 * {"key": "text"}; then the data, little-endian and row-major, which the tensors fill without gap or overlap.
 *
 * The reader takes what that library takes, but not more than PB_ST_MAX_DIMS dimensions, names with control
 * characters, or elements below a byte. What it lets in is safe: every tensor lies inside the file, and its bytes are
 * its shape times its element. Data need not be aligned to its element. Hosts are little-endian. */
#ifndef PB_SAFETENSORS_H
#define PB_SAFETENSORS_H
#include <stdbool.h>

#include "kernels/core/dtype.h"
#include "os/status.h"
#include "os/disk.h"

enum { PB_ST_MAX_DIMS = 8, PB_ST_MAX_HEADER = 100000000 };

/* X(enumerator and name in the file, bytes) */
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

/* ---- reading --------------------------------------------------------------------------------------- */

typedef struct pb_st_tensor {
    const char *file, *name; /* of the file it is in; both live as long as that is open */
    pb_st_dtype dtype;
    int dims;
    size_t shape[PB_ST_MAX_DIMS];
    size_t n, bytes;           /* elements; n * element size */
    const unsigned char *data; /* [bytes], perhaps unaligned */
} pb_st_tensor;

typedef struct pb_safetensors pb_safetensors;

/* EPATH, EIO: the file cannot be read; EINVAL: malformed. One line names the file and, where there is one, the tensor.
 */
pb_status pb_st_open(const char *path, pb_safetensors **out);
/* The same over n bytes in memory, which stay the caller's; `name` stands for the path. */
pb_status pb_st_parse(const char *name, const void *bytes, size_t n, pb_safetensors **out);
void pb_st_close(pb_safetensors *f); /* NULL is fine */

size_t pb_st_count(const pb_safetensors *f);
const pb_st_tensor *pb_st_at(const pb_safetensors *f, size_t i);           /* in the order of names */
const pb_st_tensor *pb_st_find(const pb_safetensors *f, const char *name); /* NULL: there is none */
const char *pb_st_metadata(const pb_safetensors *f, const char *key);      /* NULL: there is none */
/* Where the tensor's data begin in an opened file; false for bytes in memory. */
bool pb_st_file(const pb_safetensors *f, const pb_st_tensor *t, int *fd, size_t *offset);
/* "[3,4]" in `out`, cut when too long; returns out. */
const char *pb_st_shape_text(const size_t *shape, int dims, char *out, size_t room);

/* Whether pb_st_convert can: F32, F16 and BF16 to PB_F32 and PB_BF16; I64, I32 and U8 to PB_I32. */
bool pb_st_can_convert(pb_st_dtype from, pb_dtype to);
/* Elements [first, first+n) of the tensor as `to` in host memory out [n], with all threads. bf16 is rounded to nearest
 * even from the value as f32; everything else is exact. EFORMAT: no such conversion; EINVAL: an I64 that does not
 * fit. */
pb_status pb_st_convert(const pb_st_tensor *t, size_t first, size_t n, pb_dtype to, void *out);
/* The same, read from the file piece by piece and not through its map: without a page fault for every few pages, and
 * without pages that stay in this process's memory. EIO: the file has become shorter, or cannot be read. */
pb_status pb_st_load(const pb_safetensors *f, const pb_st_tensor *t, size_t first, size_t n, pb_dtype to, void *out);

/* ---- writing --------------------------------------------------------------------------------------- */

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

/* Begins a draft of `path` (os/draft.h) with its header: entries [n] in the order their data will come, and metadata
 * [metas] (may be NULL, 0). Data start at a multiple of 8 bytes; larger elements
 * before smaller ones keep every tensor aligned. EINVAL: a name twice or not UTF-8, a shape that overflows; EPATH,
 * EIO: the line names the path. */
pb_status pb_st_create(const char *path, const pb_st_entry *entries, size_t n, const pb_st_pair *meta, size_t metas,
                       pb_st_writer **out);
/* The same with all calls to the disk through a table of the caller's, which must live as long as the writer. */
pb_status pb_st_create_on(const pb_disk *disk, const char *path, const pb_st_entry *entries, size_t n,
                          const pb_st_pair *meta, size_t metas, pb_st_writer **out);
/* The next bytes of the data, cut as the caller likes. EINVAL: more than the header says. */
pb_status pb_st_append(pb_st_writer *w, const void *bytes, size_t n);
/* Makes the file durable and only then visible: fsync, rename to path, fsync of the folder. Whatever stood at `path`
 * stays until the rename. EINVAL: bytes are missing. Ends the writer in any case; on failure the draft is gone. */
pb_status pb_st_commit(pb_st_writer *w);
void pb_st_abandon(pb_st_writer *w); /* drops the draft; NULL is fine */
#endif
