/* disk.h - durable writing of files and folders. The system calls are in a table (pb_disk), so that a test can replace
 * any of them by one that fails.
 *
 * Every function that can fail returns EPATH (another path or permission would help) or EIO (the machine failed). The
 * error message is one line and names the path. */
#ifndef PB_DISK_H
#define PB_DISK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "os/status.h"

/* Each function behaves like the POSIX call of its name: on failure it returns -1 and sets errno. `self` points to data
 * of the table's implementation and is passed to every function. */
typedef struct pb_disk {
    void *self;
    int (*open)(void *self, const char *path, int flags); /* adds close-on-exec; new files get mode 0666 */
    ssize_t (*read)(void *self, int fd, void *to, size_t n);
    ssize_t (*write)(void *self, int fd, const void *from, size_t n);
    int (*fsync)(void *self, int fd);
    int (*close)(void *self, int fd);
    int (*rename)(void *self, const char *from, const char *to);
    int (*unlink)(void *self, const char *path);
    int (*mkdir)(void *self, const char *path);
    int (*rmdir)(void *self, const char *path);
} pb_disk;
extern const pb_disk pb_disk_posix;

pb_status pb_disk_open(const pb_disk *d, const char *path, int flags, int *fd);
/* Opens a file for reading and returns its size in bytes. Does not block on a FIFO. EPATH: not a regular file (a FIFO,
 * a device, a folder). */
pb_status pb_disk_open_file(const pb_disk *d, const char *path, int *fd, uint64_t *size);
/* Returns EPATH, with a message of one line, unless `mode` (st_mode of stat) is that of a regular file. */
pb_status pb_disk_need_file(const char *path, mode_t mode);
/* Writes all n bytes, in several calls if necessary. `path` is used in error messages only. */
pb_status pb_disk_put(const pb_disk *d, int fd, const char *path, const void *bytes, size_t n);
/* Like pb_disk_put. *done is the number of bytes written, also after a failure. */
pb_status pb_disk_put_some(const pb_disk *d, int fd, const char *path, const void *bytes, size_t n, size_t *done);
/* Reads up to n bytes, in several calls if necessary. *got is the number of bytes read; *got < n: the file has
 * ended. */
pb_status pb_disk_get(const pb_disk *d, int fd, const char *path, void *to, size_t n, size_t *got);
pb_status pb_disk_sync(const pb_disk *d, int fd, const char *path);
/* Closes fd, also when `s` is a failure. Returns `s` if it is a failure, else the result of the close. */
pb_status pb_disk_close(const pb_disk *d, int fd, const char *path, pb_status s);
pb_status pb_disk_rename(const pb_disk *d, const char *from, const char *to);
/* Opens `path`, calls fsync and closes it. This makes the entries of a folder durable, or the contents of a file that
 * other code has written. */
pb_status pb_disk_sync_path(const pb_disk *d, const char *path);
/* Calls pb_disk_sync_path on the folder that contains `path`. */
pb_status pb_disk_sync_parent(const pb_disk *d, const char *path);
/* Writes a whole file and calls fsync. The file's name becomes durable only when its folder is synced too. The name
 * must be one that no other process uses; files that users see are written with draft.h. */
pb_status pb_disk_write_file(const pb_disk *d, const char *path, const void *bytes, size_t n);

/* Reads the whole file into *text, which the caller frees. *n is the size without the terminating NUL. EINVAL: the file
 * is larger than `most` bytes. */
pb_status pb_disk_read_file(const pb_disk *d, const char *path, size_t most, char **text, size_t *n);

typedef enum pb_disk_kind { PB_DISK_FILE, PB_DISK_FOLDER, PB_DISK_OTHER } pb_disk_kind;
/* `name` is the path relative to the root of the walk; "" for the root itself. */
typedef pb_status (*pb_disk_visit)(void *self, const char *path, const char *name, pb_disk_kind kind);
/* Visits everything below a folder: entries in order of their names, the contents of a folder before the folder, the
 * root last. Does not follow symbolic links. EINVAL: folders are nested too deeply, or a path is too long. */
pb_status pb_disk_walk(const char *root, pb_disk_visit visit, void *self);
/* Removes a file, or a folder with everything in it. A missing path is not an error. */
pb_status pb_disk_remove(const pb_disk *d, const char *path);
#endif
