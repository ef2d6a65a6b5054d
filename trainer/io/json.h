/* json.h - JSON text whose root is an object, from files and into them. */
#ifndef PB_IO_JSON_H
#define PB_IO_JSON_H
#include <jansson.h>
#include <stddef.h>

#include "os/status.h"

/* Parses n bytes of UTF-8 as one JSON object without duplicate keys or NUL in strings; EINVAL: one line, where and why.
 * The caller owns *out (json_decref). */
pb_status pb_json_parse(const char *where, const void *text, size_t n, json_t **out);
/* The same for a file. */
pb_status pb_json_open(const char *path, json_t **out);
/* Replaces the file by the JSON text with sorted keys, by a draft (os/draft.h). EPATH, EIO: the line names the path.
 */
pb_status pb_json_save(const char *path, const json_t *root);
#endif
