/* append.c - appends bytes to a file; if that fails, truncates the file to its old size. */
#include "os/append.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/disk.h"

/* O_NONBLOCK makes open() of a FIFO without a reader fail with ENXIO instead of blocking. The message then says that
 * the path is a FIFO, which is clearer than the text of ENXIO. */
static pb_status open_file(const char *path, int flags, int *out, struct stat *st)
{
    const int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0666);
    if (fd < 0) {
        const int error = errno;
        if (error == ENXIO && stat(path, st) == 0) PB_TRY(pb_disk_need_file(path, st->st_mode));
        return pb_fail_errno(error, "%s", path);
    }
    const pb_status s = fstat(fd, st) == 0 ? pb_disk_need_file(path, st->st_mode) : pb_fail_errno(errno, "%s", path);
    if (s == PB_OK) *out = fd;
    else close(fd);
    return s;
}

pb_status pb_append_open(const char *path, bool create, int *fd)
{
    struct stat st;
    return open_file(path, O_APPEND | (create ? O_CREAT : 0), fd, &st);
}

pb_status pb_append_put(int fd, const char *path, const void *bytes, size_t n)
{
    struct stat before, after;
    if (fstat(fd, &before) != 0) return pb_fail_errno(errno, "%s", path);
    size_t done;
    const pb_status s = pb_disk_put_some(&pb_disk_posix, fd, path, bytes, n, &done);
    if (s == PB_OK || !done) return s;
    if (fstat(fd, &after) == 0 && after.st_size != before.st_size + (off_t)done)
        return pb_fail(
            PB_EIO,
            "%s: an incomplete line was written; it is not removed, because another process has appended to the file",
            path);
    if (ftruncate(fd, before.st_size) == 0) return s;
    return pb_fail_errno(errno, "%s: an incomplete line was written and cannot be removed", path);
}

pb_status pb_append(const char *path, const void *bytes, size_t n)
{
    int fd = -1;
    PB_TRY(pb_append_open(path, false, &fd));
    const pb_status s = pb_append_put(fd, path, bytes, n);
    return close(fd) == 0 || s != PB_OK ? s : pb_fail_errno(errno, "%s", path);
}

pb_status pb_append_cut(const char *path, long long size)
{
    struct stat st;
    int fd = -1;
    PB_TRY(open_file(path, 0, &fd, &st));
    pb_status s = PB_OK;
    if (st.st_size > size) {
        s = ftruncate(fd, (off_t)size) == 0 ? PB_OK : pb_fail_errno(errno, "%s", path);
        if (s == PB_OK) s = pb_disk_sync(&pb_disk_posix, fd, path);
    }
    close(fd);
    return s;
}
