/* json.h - reads and writes JSON files and texts whose root is an object, with jansson. */
#ifndef PB_IO_JSON_H
#define PB_IO_JSON_H
#include <jansson.h>
#include <stddef.h>

#include "os/status.h"

/* Parses n bytes of UTF-8 as one JSON object. Duplicate keys and NUL in strings are refused. `where` names the source
 * in messages. The caller owns *out (json_decref). EINVAL: one line with the source and the reason. */
pb_status pb_json_parse(const char *where, const void *text, size_t n, json_t **out);
/* Reads and parses a file. EPATH, EIO: the file cannot be read; EINVAL: see pb_json_parse. */
pb_status pb_json_open(const char *path, json_t **out);
/* Atomically replaces the file (os/draft.h) by the JSON text with sorted keys. EPATH, EIO: the
 * message names the path; ENOMEM. */
pb_status pb_json_save(const char *path, const json_t *root);
#endif
