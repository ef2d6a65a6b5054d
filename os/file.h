/* file.h - reading files as streams and mapped into memory, and paths. Only regular files are read: a FIFO would wait
 * for a writer, and a device may never end. Files are written by draft.h. */
#ifndef PB_FILE_H
#define PB_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "os/status.h"

typedef struct pb_map {
    unsigned char *p; /* [n], read only; NULL when n is 0 */
    size_t n;
    int fd; /* of the same file, while p is not NULL */
} pb_map;

/* A stream to read from, for fclose. EPATH: cannot be opened, or is no regular file; the line names the path. */
pb_status pb_file_read(const char *path, FILE **out);

/* EPATH: cannot be opened or is no regular file; EIO: cannot be mapped. The line names the path. A file that another
 * process shortens while it is mapped kills the reader (SIGBUS), as it does for every program that maps. */
pb_status pb_map_open(const char *path, pb_map *out);
void pb_map_close(pb_map *m); /* {0} is fine */

/* A stream that reads and writes a file as it grows, line by line: a log, which others may watch. `fresh`: a new file;
 * else one that is there, or a new one. EPATH: it exists although `fresh`, cannot be opened, or is no regular file (a
 * device or a FIFO cannot be read again when the log goes on); the line names the path. */
pb_status pb_file_update(const char *path, bool fresh, FILE **out);

/* Takes the folder for this process until the descriptor *fd is closed, so that no two processes write several files
 * into it that belong together. The lock is on the folder itself (flock(2)): it leaves no file, and ends with the
 * process. Where the file system has no locks there is none. EINVAL: another process has it; `what` says what such a
 * process does there: "DIR: another process WHAT". EPATH, EIO. */
pb_status pb_folder_lock(const char *dir, const char *what, int *fd);
/* Removes dir/name; that there is no such file is fine. */
pb_status pb_folder_remove(const char *dir, const char *name);

/* Makes the folder unless there is one; the folder it is in must exist. EPATH, EIO. */
pb_status pb_make_folder(const char *dir);
/* "dir/name", which the caller frees. ENOMEM. */
pb_status pb_path_join(const char *dir, const char *name, char **out);
#endif
