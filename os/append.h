/* append.h - appends to result tables and logs, which other processes may read at the same time. If an append fails,
 * the file is truncated to its old size, so an append leaves either all of its bytes or none, unless the machine
 * crashes during it. */
#ifndef PB_APPEND_H
#define PB_APPEND_H
#include <stdbool.h>
#include <stddef.h>

#include "os/status.h"

/* Opens a regular file for appending: O_APPEND, close-on-exec. The caller closes *fd. `create`: creates the file if it
 * is missing. EPATH: the file cannot be opened, or is not a regular file (a FIFO, a device). EIO. */
pb_status pb_append_open(const char *path, bool create, int *fd);
/* Appends all n bytes. On failure it truncates the file to its old size, so no part of the bytes remains. Only one
 * process at a time may append, which the caller must ensure: bench holds pb_progress_lock while it writes the files of
 * a run, and its measuring processes inherit that lock. (A flock in this function would block forever, because
 * pb_progress_lock is itself a flock of results.csv.) If the file's size shows that another process has appended in
 * spite of this rule, nothing is truncated, and the error message says so. `path` is used in error messages only.
 * EIO. */
pb_status pb_append_put(int fd, const char *path, const void *bytes, size_t n);
/* Opens an existing file, appends n bytes and closes it. EPATH and EIO as in pb_append_open and pb_append_put. */
pb_status pb_append(const char *path, const void *bytes, size_t n);
/* Truncates a regular file to its first `size` bytes and syncs it to disk. A file of at most `size` bytes is unchanged.
 * EPATH, EIO. */
pb_status pb_append_cut(const char *path, long long size);
#endif
