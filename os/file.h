/* file.h - reads files as streams or memory maps, locks folders, and joins paths. Only regular files are read: opening
 * a FIFO would block until a writer comes, and a device may have no end. Files are written with draft.h. */
#ifndef PB_FILE_H
#define PB_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "os/status.h"

typedef struct pb_map {
    unsigned char *p; /* [n] bytes, read only; NULL: n is 0 */
    size_t n;
    int fd; /* descriptor of the mapped file; valid while p is not NULL */
} pb_map;

/* Opens a stream for reading, which the caller closes with fclose. EPATH: the file cannot be opened, or is not a
 * regular file. The error message names the path. */
pb_status pb_file_read(const char *path, FILE **out);

/* Maps a whole file. EPATH: it cannot be opened, or is not a regular file. EIO: it cannot be mapped. The error message
 * names the path. If another process truncates the file while it is mapped, reading the lost part raises SIGBUS. */
pb_status pb_map_open(const char *path, pb_map *out);
void pb_map_close(pb_map *m); /* accepts {0} */

/* Reads exactly n bytes at `offset`. If a read is interrupted by a signal or returns too few bytes, it reads again.
 * Several threads may read one descriptor. `path` is used in error messages only. EIO: the device failed, or the file
 * ends before offset + n. */
pb_status pb_file_read_at(int fd, const char *path, size_t offset, void *to, size_t n);

/* Opens a log for reading and writing, and creates it if it is missing. `fresh`: the file must not exist yet. EPATH,
 * with a message that names the path: the file exists although `fresh` is set, or it cannot be opened, or it is not a
 * regular file (a resumed run must read its log again, which a device or a FIFO does not allow). */
pb_status pb_file_update(const char *path, bool fresh, FILE **out);

/* Locks a folder for this process until the caller closes *fd, so that two processes do not write into it at the same
 * time. The lock is flock(2) on the folder itself: it creates no file and ends with the process. On a file system
 * without locks the call succeeds without locking. EINVAL: another process holds the lock; the message is "DIR: another
 * process WHAT", where `what` says what the lock is for, such as "is exporting into this folder". EPATH, EIO. */
pb_status pb_folder_lock(const char *dir, const char *what, int *fd);
/* Removes dir/name. A missing file is not an error. */
pb_status pb_folder_remove(const char *dir, const char *name);

/* Creates a folder; an existing one is not an error. Its parent must exist. EPATH, EIO. */
pb_status pb_make_folder(const char *dir);
/* True if both paths name one existing file. */
bool pb_same_file(const char *a, const char *b);
/* Returns "dir/name" in *out, which the caller frees. ENOMEM. */
pb_status pb_path_join(const char *dir, const char *name, char **out);
#endif
