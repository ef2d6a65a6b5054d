/* append.h - files that only grow: tables of results and logs, which others may read meanwhile. A reader sees whole
 * appends only, but for a machine that fails in the middle of one. */
#ifndef PB_APPEND_H
#define PB_APPEND_H
#include <stdbool.h>
#include <stddef.h>

#include "os/status.h"

/* Opens a regular file to append to, for close: *fd, O_APPEND and close-on-exec. `create`: makes it where there is
 * none. EPATH: cannot be opened, or is no regular file (a FIFO, a device); EIO. */
pb_status pb_append_open(const char *path, bool create, int *fd);
/* Appends all n bytes. After a failure none of them is there: what was written is cut off again. `path` is for the
 * message. EIO. */
pb_status pb_append_put(int fd, const char *path, const void *bytes, size_t n);
/* Both, of a file that exists. */
pb_status pb_append(const char *path, const void *bytes, size_t n);
/* Cuts a regular file back to its first `size` bytes, durably; one that is no longer is left alone. EPATH, EIO. */
pb_status pb_append_cut(const char *path, long long size);
#endif
