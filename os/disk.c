/* disk.c - pb_disk_posix, the pb_disk that makes POSIX calls, and functions that use a pb_disk to read, write and
 * remove files and folders. */
#include "os/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- pb_disk_posix: the table of POSIX calls ---------------------------------------------------------- */

static int posix_open(void *self, const char *path, int flags)
{
    (void)self;
    return open(path, flags | O_CLOEXEC, 0666);
}

static ssize_t posix_read(void *self, int fd, void *to, size_t n)
{
    (void)self;
    return read(fd, to, n);
}

static ssize_t posix_write(void *self, int fd, const void *from, size_t n)
{
    (void)self;
    return write(fd, from, n);
}

static int posix_fsync(void *self, int fd)
{
    (void)self;
    return fsync(fd);
}

static int posix_close(void *self, int fd)
{
    (void)self;
    return close(fd);
}

static int posix_rename(void *self, const char *from, const char *to)
{
    (void)self;
    return rename(from, to);
}

static int posix_unlink(void *self, const char *path)
{
    (void)self;
    return unlink(path);
}

static int posix_mkdir(void *self, const char *path)
{
    (void)self;
    return mkdir(path, 0777);
}

static int posix_rmdir(void *self, const char *path)
{
    (void)self;
    return rmdir(path);
}

const pb_disk pb_disk_posix = {.open = posix_open,
                               .read = posix_read,
                               .write = posix_write,
                               .fsync = posix_fsync,
                               .close = posix_close,
                               .rename = posix_rename,
                               .unlink = posix_unlink,
                               .mkdir = posix_mkdir,
                               .rmdir = posix_rmdir};

/* ---- opening, reading and writing files --------------------------------------------------------------- */

static pb_status fail(const char *path) { return pb_fail_errno(errno, "%s", path); }

pb_status pb_disk_open(const pb_disk *d, const char *path, int flags, int *fd)
{
    const int got = d->open(d->self, path, flags);
    if (got < 0) return fail(path);
    *fd = got;
    return PB_OK;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISLNK(mode)  ? "a symbolic link"
                            : "a device";
}

pb_status pb_disk_need_file(const char *path, mode_t mode)
{
    if (S_ISREG(mode)) return PB_OK;
    return pb_fail(PB_EPATH, "%s is %s, but must be a regular file", path, kind_of(mode));
}

/* Without O_NONBLOCK, opening a FIFO would block until a writer opens it, before fstat could tell that it is a FIFO. */
pb_status pb_disk_open_file(const pb_disk *d, const char *path, int *fd, uint64_t *size)
{
    struct stat st;
    PB_TRY(pb_disk_open(d, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, fd));
    pb_status s = fstat(*fd, &st) == 0 ? pb_disk_need_file(path, st.st_mode) : fail(path);
    if (s == PB_OK && st.st_size < 0)
        s = pb_fail(PB_EIO, "%s: the system reports a size of %lld bytes", path, (long long)st.st_size);
    if (s == PB_OK) *size = (uint64_t)st.st_size;
    else (void)d->close(d->self, *fd);
    return s;
}

enum { MOST_AT_ONCE = 1 << 30 }; /* maximum bytes per call of read or write */

pb_status pb_disk_put_some(const pb_disk *d, int fd, const char *path, const void *bytes, size_t n, size_t *done)
{
    const char *p = bytes;
    for (*done = 0; *done < n;) {
        const size_t left = n - *done;
        const ssize_t put = d->write(d->self, fd, p + *done, left < MOST_AT_ONCE ? left : MOST_AT_ONCE);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail(path);
        if (put == 0) return pb_fail(PB_EIO, "%s: the system accepts no more bytes", path);
        *done += (size_t)put;
    }
    return PB_OK;
}

pb_status pb_disk_put(const pb_disk *d, int fd, const char *path, const void *bytes, size_t n)
{
    size_t done;
    return pb_disk_put_some(d, fd, path, bytes, n, &done);
}

pb_status pb_disk_get(const pb_disk *d, int fd, const char *path, void *to, size_t n, size_t *got)
{
    for (*got = 0; *got < n;) {
        const size_t left = n - *got;
        const ssize_t now = d->read(d->self, fd, (char *)to + *got, left < MOST_AT_ONCE ? left : MOST_AT_ONCE);
        if (now < 0 && errno == EINTR) continue;
        if (now < 0) return pb_fail_errno(errno, "%s cannot be read", path);
        if (now == 0) break;
        *got += (size_t)now;
    }
    return PB_OK;
}

/* Retries after EINTR only. After any other failure the kernel may have dropped the dirty pages, so a second fsync
 * could report success although data is lost. */
pb_status pb_disk_sync(const pb_disk *d, int fd, const char *path)
{
    int done;
    do done = d->fsync(d->self, fd);
    while (done != 0 && errno == EINTR);
    return done == 0 ? PB_OK : fail(path);
}

pb_status pb_disk_close(const pb_disk *d, int fd, const char *path, pb_status s)
{
    if (d->close(d->self, fd) == 0 || s != PB_OK) return s;
    return fail(path);
}

pb_status pb_disk_rename(const pb_disk *d, const char *from, const char *to)
{
    if (d->rename(d->self, from, to) == 0) return PB_OK;
    return pb_fail_errno(errno, "%s cannot be renamed to %s", from, to);
}

pb_status pb_disk_sync_path(const pb_disk *d, const char *path)
{
    int fd = -1;
    PB_TRY(pb_disk_open(d, path, O_RDONLY, &fd));
    return pb_disk_close(d, fd, path, pb_disk_sync(d, fd, path));
}

pb_status pb_disk_sync_parent(const pb_disk *d, const char *path)
{
    char *folder = strdup(path);
    if (!folder) return pb_fail(PB_ENOMEM, "%s: out of memory", path);
    char *end = folder + strlen(folder);
    while (end > folder + 1 && end[-1] == '/') *--end = 0;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    const pb_status s = pb_disk_sync_path(d, slash ? folder : ".");
    free(folder);
    return s;
}

/* Truncates an existing file without taking a lock, so the name must be one that no other process uses. */
pb_status pb_disk_write_file(const pb_disk *d, const char *path, const void *bytes, size_t n)
{
    int fd = -1;
    PB_TRY(pb_disk_open(d, path, O_WRONLY | O_CREAT | O_TRUNC, &fd));
    pb_status s = pb_disk_put(d, fd, path, bytes, n);
    if (s == PB_OK) s = pb_disk_sync(d, fd, path);
    return pb_disk_close(d, fd, path, s);
}

pb_status pb_disk_read_file(const pb_disk *d, const char *path, size_t most, char **out, size_t *n)
{
    uint64_t size = 0;
    int fd = -1;
    char *text = NULL;
    PB_TRY(pb_disk_open_file(d, path, &fd, &size));
    pb_status s = size > most ? pb_fail(PB_EINVAL, "%s is larger than %zu bytes", path, most) : PB_OK;
    if (s == PB_OK) text = malloc((size_t)size + 1);
    if (s == PB_OK && !text) s = pb_fail(PB_ENOMEM, "%s: out of memory to read the file", path);
    if (s == PB_OK) s = pb_disk_get(d, fd, path, text, (size_t)size, n);
    if (s == PB_OK) text[*n] = 0;
    s = pb_disk_close(d, fd, path, s);
    if (s == PB_OK) *out = text;
    else free(text);
    return s;
}

/* ---- walking through folders, and removing files and folders ------------------------------------------ */

enum { DEEPEST = 8 };

typedef struct walk {
    char path[PATH_MAX];
    size_t root; /* length of the root's path in bytes */
    pb_disk_visit visit;
    void *self;
} walk;

static int is_entry(const struct dirent *e) { return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0; }

static pb_status walk_below(walk *w, int depth);

static pb_status walk_entry(walk *w, const char *name, int depth)
{
    struct stat st;
    const size_t at = strlen(w->path);
    const int n = snprintf(w->path + at, sizeof w->path - at, "/%s", name);
    if (n < 0 || (size_t)n >= sizeof w->path - at) {
        w->path[at] = 0;
        return pb_fail(PB_EINVAL, "%s contains a path that is too long", w->path);
    }
    pb_status s = lstat(w->path, &st) == 0 ? PB_OK : fail(w->path);
    if (s == PB_OK && S_ISDIR(st.st_mode)) s = walk_below(w, depth + 1);
    else if (s == PB_OK)
        s = w->visit(w->self, w->path, w->path + w->root + 1, S_ISREG(st.st_mode) ? PB_DISK_FILE : PB_DISK_OTHER);
    w->path[at] = 0;
    return s;
}

static pb_status walk_below(walk *w, int depth)
{
    struct dirent **entries;
    if (depth > DEEPEST) return pb_fail(PB_EINVAL, "%s: folders are nested more than %d deep", w->path, DEEPEST);
    const int n = scandir(w->path, &entries, is_entry, alphasort);
    if (n < 0) return fail(w->path);
    pb_status s = PB_OK;
    for (int i = 0; i < n; i++) {
        if (s == PB_OK) s = walk_entry(w, entries[i]->d_name, depth);
        free(entries[i]);
    }
    free(entries);
    if (s != PB_OK) return s;
    return w->visit(w->self, w->path, w->path + w->root + (depth > 0), PB_DISK_FOLDER);
}

pb_status pb_disk_walk(const char *root, pb_disk_visit visit, void *self)
{
    walk w = {.root = strlen(root), .visit = visit, .self = self};
    if (w.root >= sizeof w.path) return pb_fail(PB_EINVAL, "a path of %zu bytes is too long", w.root);
    memcpy(w.path, root, w.root + 1);
    return walk_below(&w, 0);
}

static pb_status remove_one(void *self, const char *path, const char *name, pb_disk_kind kind)
{
    const pb_disk *d = self;
    (void)name;
    if ((kind == PB_DISK_FOLDER ? d->rmdir : d->unlink)(d->self, path) == 0 || errno == ENOENT) return PB_OK;
    return pb_fail_errno(errno, "%s cannot be removed", path);
}

pb_status pb_disk_remove(const pb_disk *d, const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0) return errno == ENOENT ? PB_OK : fail(path);
    if (S_ISDIR(st.st_mode)) return pb_disk_walk(path, remove_one, (void *)d);
    return remove_one((void *)d, path, path, PB_DISK_FILE);
}
