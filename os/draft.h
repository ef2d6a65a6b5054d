/* draft.h - the one way to make a file that others may read: it is written under a temporary name, made durable, and
 * then renamed, so that a reader sees the old contents or the new ones and never half of either.
 *
 * The temporary name is "PATH.XXXXXX.partial" with six random characters, created with O_EXCL and locked with flock(2)
 * while its writer lives. So two processes that write one path do not disturb each other (the last rename stands), and
 * what a killed process left behind is known by its free lock: the next draft of the same path removes it.
 *
 * A path that names a symbolic link stands for the file the link names. A path that names anything but a regular file
 * (a device, a FIFO, a folder) is refused with EPATH. */
#ifndef PB_DRAFT_H
#define PB_DRAFT_H
#include <stdbool.h>
#include <stddef.h>

#include "os/disk.h"

typedef struct pb_draft {
    const pb_disk *disk;
    char *path, *temporary; /* owned */
    int fd;
} pb_draft;

/* Begins a draft of `path`, empty. EPATH, EIO, ENOMEM; after a failure there is nothing to drop. */
pb_status pb_draft_open(const pb_disk *d, const char *path, pb_draft *out);
pb_status pb_draft_put(pb_draft *d, const void *bytes, size_t n); /* appends n bytes */
/* fsync, close, rename, fsync of the folder. Ends the draft in any case: after a failure the temporary file is gone and
 * what stood under the path stands there still. */
pb_status pb_draft_keep(pb_draft *d);
/* As pb_draft_keep, but EPATH ("File exists") where the path exists by now. */
pb_status pb_draft_keep_new(pb_draft *d);
void pb_draft_drop(pb_draft *d); /* removes the temporary file; a draft that has ended is fine */

/* A whole file from memory by a draft of the real disk. */
pb_status pb_file_replace(const char *path, const void *bytes, size_t n);
pb_status pb_file_create(const char *path, const void *bytes, size_t n); /* EPATH: it exists */
#endif
