/* draft.h - atomic replacement of files. Every file that another process may read is written under a temporary name,
 * synced to disk and then renamed, so that a reader sees either the old or the new contents.
 *
 * The temporary name is "PATH.XXXXXX.partial" with six random characters. The file is created with O_EXCL and locked
 * with flock(2) while its writer lives. So two processes can write one path at the same time: the last rename wins. The
 * temporary file of a killed process is recognised by its free lock, and the next draft of its path removes it.
 *
 * If the path is a symbolic link, the file that the link points to is replaced; if that file does not exist, the link
 * itself is replaced. EPATH: the path exists and is not a regular file (a device, a FIFO, a folder). */
#ifndef PB_DRAFT_H
#define PB_DRAFT_H
#include <stdbool.h>
#include <stddef.h>

#include "os/disk.h"

/* An unfinished file. End it with pb_draft_keep, pb_draft_keep_new or pb_draft_drop. */
typedef struct pb_draft {
    const pb_disk *disk;
    char *path, *temporary; /* owned by the draft */
    int fd;
} pb_draft;

/* Begins an empty draft of `path`. EPATH, EIO, ENOMEM: no draft was begun, and the caller must not drop it. */
pb_status pb_draft_open(const pb_disk *d, const char *path, pb_draft *out);
pb_status pb_draft_put(pb_draft *d, const void *bytes, size_t n);
/* Publishes the draft: fsync, rename, close, fsync of the folder. Ends the draft also on failure: the temporary file is
 * then removed, and the old file under the path is unchanged unless the rename had already succeeded. */
pb_status pb_draft_keep(pb_draft *d);
/* Like pb_draft_keep, but fails with EPATH ("File exists") if the path exists by now. */
pb_status pb_draft_keep_new(pb_draft *d);
void pb_draft_drop(pb_draft *d); /* removes the temporary file; does nothing for a draft that has ended */

/* Writes a whole file from memory through a draft on pb_disk_posix. */
pb_status pb_file_replace(const char *path, const void *bytes, size_t n);
pb_status pb_file_create(const char *path, const void *bytes, size_t n); /* EPATH: the file exists already */
#endif
