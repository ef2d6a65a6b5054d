/* disk.h - writing files so that they last: the calls to the disk as a table, which tests replace to make any of them
 * fail, and what is built from them.
 *
 * Every function that fails returns EPATH (another path or permission would help) or EIO (the machine failed), with one
 * line that names the path. */
#ifndef PB_DISK_H
#define PB_DISK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "os/status.h"

/* Each as the call of its name in POSIX: -1 and errno when it fails. `self` is the table's own. */
typedef struct pb_disk {
    void *self;
    int (*open)(void *self, const char *path, int flags); /* close-on-exec; files are made with mode 0666 */
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
/* Opens for reading, without waiting. EPATH: not a regular file (a FIFO, a device, a folder). */
pb_status pb_disk_open_file(const pb_disk *d, const char *path, int *fd, uint64_t *size);
/* EPATH with one line unless `mode`, as stat gives it, is that of a regular file. */
pb_status pb_disk_need_file(const char *path, mode_t mode);
/* All n bytes; `path` is for the message. */
pb_status pb_disk_put(const pb_disk *d, int fd, const char *path, const void *bytes, size_t n);
pb_status pb_disk_sync(const pb_disk *d, int fd, const char *path);
/* Also when `s` is a failure, which is then what is returned. */
pb_status pb_disk_close(const pb_disk *d, int fd, const char *path, pb_status s);
pb_status pb_disk_rename(const pb_disk *d, const char *from, const char *to);
/* Makes what stands in a folder, or the contents of a file that others wrote, durable. */
pb_status pb_disk_sync_path(const pb_disk *d, const char *path);
/* The same for the folder that `path` is in. */
pb_status pb_disk_sync_parent(const pb_disk *d, const char *path);
/* A whole file under a name that no other process uses, durable; its name is so once its folder is. Files of names that
 * a user sees are made by draft.h. */
pb_status pb_disk_write_file(const pb_disk *d, const char *path, const void *bytes, size_t n);

/* The whole file in *text, to be freed, with a NUL behind its n bytes. EINVAL: over `most` bytes. */
pb_status pb_disk_read_file(const pb_disk *d, const char *path, size_t most, char **text, size_t *n);

typedef enum pb_disk_kind { PB_DISK_FILE, PB_DISK_FOLDER, PB_DISK_OTHER } pb_disk_kind;
/* `name` is the path from the root of the walk, "" the root itself. */
typedef pb_status (*pb_disk_visit)(void *self, const char *path, const char *name, pb_disk_kind kind);
/* Visits everything below a folder in the order of names, what is in a folder before the folder, the root last. Does
 * not follow symbolic links. EINVAL: folders nested too deep or paths too long. */
pb_status pb_disk_walk(const char *root, pb_disk_visit visit, void *self);
/* Removes a folder and all that is in it, or a file; what is not there is fine. */
pb_status pb_disk_remove(const pb_disk *d, const char *path);
#endif
