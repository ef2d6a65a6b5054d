/* json.h - reading a JSON file that this program wrote: run.json, compare.json. */
#ifndef PB_JSON_H
#define PB_JSON_H
#include <jansson.h>

#include "os/status.h"

/* EPATH: cannot be opened, or is no regular file; EINVAL: no JSON, or over 256 MiB; EIO, ENOMEM. The line names the
 * path. The caller decref's *out. */
pb_status pb_json_read(const char *path, json_t **out);
#endif
