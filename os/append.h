/* append.h - appends to files that only grow: result tables and logs, which other processes may read meanwhile. A
 * reader sees either all bytes of an append or none, unless the machine crashes in the middle of one. */
#ifndef PB_APPEND_H
#define PB_APPEND_H
#include <stdbool.h>
#include <stddef.h>

#include "os/status.h"

/* Opens a regular file for appending: O_APPEND, close-on-exec. The caller closes *fd. `create`: creates the file if it
 * is missing. EPATH: the file cannot be opened, or is not a regular file (a FIFO, a device). EIO. */
pb_status pb_append_open(const char *path, bool create, int *fd);
/* Appends all n bytes. On failure it truncates the file to its old size, so no part of the bytes remains. Only one
 * process at a time may append, which the caller must ensure: the files of a run are written under pb_progress_lock,
 * which also covers the measuring processes that inherit it. (A flock here would block forever, because that lock is a
 * flock of results.csv.) If the size shows that another process appended nevertheless, nothing is truncated and the
 * message says so. `path` is used in error messages only. EIO. */
pb_status pb_append_put(int fd, const char *path, const void *bytes, size_t n);
/* Opens an existing file, appends n bytes and closes it. EPATH, EIO as the two functions above. */
pb_status pb_append(const char *path, const void *bytes, size_t n);
/* Truncates a regular file to its first `size` bytes and syncs it to disk. A file that is not longer is left as it is.
 * EPATH, EIO. */
pb_status pb_append_cut(const char *path, long long size);
#endif
