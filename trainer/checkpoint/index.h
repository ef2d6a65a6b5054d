/* index.h - checkpoint.json: what a checkpoint says about itself.
 *
 *     {"format": "plumb checkpoint", "version": 1, "iteration": 4, "data": {"epoch": 0, "row": 8},
 *      "counters": {"tokens": 512, ...}, "base": DIGEST, "settings": {"key": "value", ...},
 *      "files": {"state.safetensors": {"bytes": 4096, "xxh3_128": DIGEST}, ...}, "digest": DIGEST}
 *
 * The last is the digest of the text before `, "digest"`; the line ends with one line feed. */
#ifndef PB_INDEX_H
#define PB_INDEX_H
#include <jansson.h>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/digest.h"

enum { PB_INDEX_MOST = 16 << 20, PB_INDEX_FILES = 4096, PB_INDEX_NAME = 255 };

typedef struct pb_index_file {
    char name[PB_INDEX_NAME + 1]; /* a path inside the checkpoint's folder, without "." and ".." */
    uint64_t bytes;
    pb_digest_text digest;
} pb_index_file;

typedef struct pb_index {
    pb_progress progress;
    pb_digest_text base;
    json_t *settings;    /* object of strings */
    pb_index_file *file; /* [files] */
    size_t files;
} pb_index;

/* Frees what the struct holds; {0} is fine. */
void pb_index_free(pb_index *x);
/* ENOMEM; EINVAL: a name that may not be there, or too many of them. */
pb_status pb_index_add_file(pb_index *x, const char *name, const pb_file_digest *d);
/* The text, to be freed. EINVAL: a number of 2^63 or more, or text that is not UTF-8. */
pb_status pb_index_format(const pb_index *x, char **text, size_t *n);
/* EINVAL: one line that begins with `where`; EFORMAT: of another version. */
pb_status pb_index_parse(const char *where, const void *text, size_t n, pb_index *out);
const pb_index_file *pb_index_find(const pb_index *x, const char *name); /* NULL: there is none */
#endif
