/* file.c - opens, maps and reads files, locks folders, and joins paths. */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/disk.h"

pb_status pb_file_read(const char *path, FILE **out)
{
    uint64_t size;
    int fd = -1;
    PB_TRY(pb_disk_open_file(&pb_disk_posix, path, &fd, &size));
    *out = fdopen(fd, "rb");
    if (*out) return PB_OK;
    const pb_status s = pb_fail_errno(errno, "%s", path);
    close(fd);
    return s;
}

pb_status pb_file_update(const char *path, bool fresh, FILE **out)
{
    struct stat st;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (fresh ? O_EXCL : 0), 0666);
    if (fd < 0) return pb_fail_errno(errno, "%s", path);
    pb_status s = fstat(fd, &st) == 0 ? pb_disk_need_file(path, st.st_mode) : pb_fail_errno(errno, "%s", path);
    if (s == PB_OK) {
        *out = fdopen(fd, "r+");
        if (*out) return PB_OK;
        s = pb_fail_errno(errno, "%s", path);
    }
    close(fd);
    return s;
}

pb_status pb_map_open(const char *path, pb_map *out)
{
    uint64_t size;
    int fd = -1;
    PB_TRY(pb_disk_open_file(&pb_disk_posix, path, &fd, &size));
    void *p = size ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL; /* mmap rejects size 0 */
    const pb_status s = p == MAP_FAILED ? pb_fail_errno(errno, "%s cannot be mapped into memory", path) : PB_OK;
    if (s == PB_OK) *out = (pb_map){.p = p, .n = (size_t)size, .fd = fd};
    if (s != PB_OK || !p) close(fd);
    return s;
}

void pb_map_close(pb_map *m)
{
    if (m->p) munmap(m->p, m->n), close(m->fd);
    *m = (pb_map){0};
}

pb_status pb_file_read_at(int fd, const char *path, size_t offset, void *to, size_t n)
{
    char *p = to;
    while (n) {
        const ssize_t got = pread(fd, p, n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return pb_fail_errno(errno, "%s cannot be read", path);
        if (got == 0) return pb_fail(PB_EIO, "%s ends at byte %zu, but must hold %zu more bytes", path, offset, n);
        p += got, offset += (size_t)got, n -= (size_t)got;
    }
    return PB_OK;
}

bool pb_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

pb_status pb_path_join(const char *dir, const char *name, char **out)
{
    const size_t room = strlen(dir) + strlen(name) + 2;
    char *path = malloc(room);
    if (!path) return pb_fail(PB_ENOMEM, "%s: out of memory", dir);
    snprintf(path, room, "%s/%s", dir, name);
    *out = path;
    return PB_OK;
}

pb_status pb_folder_lock(const char *dir, const char *what, int *out)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return pb_fail_errno(errno, "%s", dir);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return pb_fail(PB_EINVAL, "%s: another process %s", dir, what);
    }
    *out = fd;
    return PB_OK;
}

pb_status pb_folder_remove(const char *dir, const char *name)
{
    char *path = NULL;
    PB_TRY(pb_path_join(dir, name, &path));
    const bool gone = unlink(path) == 0 || errno == ENOENT;
    const pb_status s = gone ? PB_OK : pb_fail_errno(errno, "%s", path);
    free(path);
    return s;
}

pb_status pb_make_folder(const char *dir)
{
    struct stat st;
    if (mkdir(dir, 0777) == 0) return pb_disk_sync_parent(&pb_disk_posix, dir);
    if (errno != EEXIST) return pb_fail_errno(errno, "%s", dir);
    return stat(dir, &st) == 0 && S_ISDIR(st.st_mode) ? PB_OK : pb_fail(PB_EPATH, "%s is not a folder", dir);
}
