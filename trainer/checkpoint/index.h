/* index.h - checkpoint.json, the index of a checkpoint.
 *
 *     {"format": "plumb checkpoint", "version": 1, "iteration": 4, "data": {"epoch": 0, "row": 8},
 *      "counters": {"tokens": 512, ...}, "base": DIGEST, "settings": {"key": "value", ...},
 *      "files": {"state.safetensors": {"bytes": 4096, "xxh3_128": DIGEST}, ...}, "digest": DIGEST}
 *
 * The last digest covers all bytes before `, "digest"`. The file is one line that ends with a line feed. */
#ifndef PB_INDEX_H
#define PB_INDEX_H
#include <jansson.h>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/digest.h"

enum { PB_INDEX_MOST = 16 << 20, PB_INDEX_FILES = 4096, PB_INDEX_NAME = 255 };

typedef struct pb_index_file {
    char name[PB_INDEX_NAME + 1]; /* relative path in the checkpoint's folder; no component is "." or ".." */
    uint64_t bytes;
    pb_digest_text digest;
} pb_index_file;

typedef struct pb_index {
    pb_progress progress;
    pb_digest_text base;
    json_t *settings;    /* JSON object whose values are strings */
    pb_index_file *file; /* [files] */
    size_t files;
} pb_index;

/* Frees the contents of *x; {0} is allowed. */
void pb_index_free(pb_index *x);
/* Adds a file to the index. EINVAL: an invalid name, or more than PB_INDEX_FILES files; ENOMEM. */
pb_status pb_index_add_file(pb_index *x, const char *name, const pb_file_digest *d);
/* Formats the index as text, which the caller frees. EINVAL: a number of 2^63 or more, text that is not UTF-8, or more
 * than PB_INDEX_MOST bytes; ENOMEM. */
pb_status pb_index_format(const pb_index *x, char **text, size_t *n);
/* Parses and checks an index. EINVAL: malformed or damaged, one line that begins with `where`; EFORMAT: another version
 * of the format; ENOMEM. */
pb_status pb_index_parse(const char *where, const void *text, size_t n, pb_index *out);
const pb_index_file *pb_index_find(const pb_index *x, const char *name); /* NULL: the index has no such file */
#endif
