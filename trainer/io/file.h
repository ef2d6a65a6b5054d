/* file.h - files as the trainer takes them in: mapped into memory, and JSON text whose root is an object; and what
 * writing them so that they are whole or not there needs. */
#ifndef PB_FILE_H
#define PB_FILE_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernels/core/status.h"

typedef struct pb_map {
    unsigned char *p; /* [n], read only; NULL when n is 0 */
    size_t n;
    int fd; /* of the same file, while p is not NULL */
} pb_map;

/* EIO: cannot be opened, is no regular file or cannot be mapped; the line names the path. A file that another process
 * shortens while it is mapped kills the reader (SIGBUS), as it does for every program that maps. */
pb_status pb_map_open(const char *path, pb_map *out);
void pb_map_close(pb_map *m); /* {0} is fine */

/* Parses n bytes of UTF-8 as one JSON object without duplicate keys or NUL in strings; EINVAL: one line, where and why.
 * The caller owns *out (json_decref). */
pb_status pb_json_parse(const char *where, const void *text, size_t n, json_t **out);
/* The same for a file. */
pb_status pb_json_open(const char *path, json_t **out);
/* Replaces the file by the JSON text with sorted keys: path.partial, fsync, rename, fsync of the folder. EIO: the line
 * names the path. */
pb_status pb_json_save(const char *path, const json_t *root);
/* Makes the folder unless there is one; the folder it is in must exist. EIO. */
pb_status pb_make_folder(const char *dir);
/* "dir/name", which the caller frees. ENOMEM. */
pb_status pb_path_join(const char *dir, const char *name, char **out);
/* Whether the text may stand in a message: no control characters. */
bool pb_is_printable(const char *text);
#endif
