/* json.h - run.json and compare.json: reading them, and the words of a user in them. */
#ifndef PB_JSON_H
#define PB_JSON_H
#include <jansson.h>

#include "os/status.h"

/* EPATH: cannot be opened, or is no regular file; EINVAL: no JSON, or over 256 MiB; EIO, ENOMEM. The line names the
 * path. The caller decref's *out. */
pb_status pb_json_read(const char *path, json_t **out);
/* A word of the user's as a JSON string: "(not UTF-8)" where it is not, and without the user and password of a URL
 * (scheme://user:password@host), for such files are shown to others. NULL: no memory. */
json_t *pb_json_word(const char *text);
#endif
