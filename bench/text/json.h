/* json.h - reads run.json and compare.json, and removes credentials from the command-line words that are written to
 * them. */
#ifndef PB_JSON_H
#define PB_JSON_H
#include <jansson.h>

#include "os/status.h"

/* Reads a JSON file. The caller frees *out with json_decref. EPATH: the file cannot be opened or is not a regular file;
 * EINVAL: not JSON, or larger than 256 MiB; EIO; ENOMEM. The error message names the path. */
pb_status pb_json_read(const char *path, json_t **out);
/* Makes a JSON string of a word that the user typed, and removes user name and password from URLs
 * (scheme://user:password@host), because others may read the file. A word that is not UTF-8 becomes "(not UTF-8)".
 * NULL: out of memory. */
json_t *pb_json_word(const char *text);
#endif
