/* draft.c - writes a file under a temporary name and renames it when it is complete. */
#include "os/draft.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANDOM = 6, TRIES = 100 };
static const char suffix[] = ".partial";

/* ---- paths and temporary names ------------------------------------------------------------------------ */

/* Resolves the path to write: the target of a symbolic link, else the path itself. *out is freed by the caller. *mode:
 * permissions of the existing file; 0: there is no file yet. */
static pb_status resolve(const char *path, char **out, mode_t *mode)
{
    struct stat st;
    char *real = NULL;
    *mode = 0;
    if (stat(path, &st) == 0) {
        PB_TRY(pb_disk_need_file(path, st.st_mode));
        *mode = st.st_mode & 07777;
        real = realpath(path, NULL);
        if (!real) return pb_fail_errno(errno, "%s", path);
    } else if (errno != ENOENT) {
        return pb_fail_errno(errno, "%s", path);
    }
    *out = real ? real : strdup(path);
    return *out ? PB_OK : pb_fail(PB_ENOMEM, "%s: out of memory", path);
}

static void draw_name(char *six)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[RANDOM];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) memset(random, 0, sizeof random);
    for (int i = 0; i < RANDOM; i++) six[i] = letters[random[i] % (sizeof letters - 1)];
}

/* True if `name` is "BASE.XXXXXX.partial": a temporary name for the file `base`. */
static bool is_temporary(const char *name, const char *base)
{
    const size_t n = strlen(base);
    return strncmp(name, base, n) == 0 && name[n] == '.' && strlen(name + n) == 1 + RANDOM + sizeof suffix - 1 &&
           strcmp(name + n + 1 + RANDOM, suffix) == 0;
}

/* ---- removing temporary files of killed processes ------------------------------------------------------ */

/* Removes the temporary file if its lock is free, because then no process is writing it. */
static void remove_if_left(int folder, const char *name)
{
    const int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(folder, name, 0);
    close(fd);
}

static void remove_left_over(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    DIR *dir = parent ? opendir(parent) : NULL;
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        if (is_temporary(e->d_name, base)) remove_if_left(dirfd(dir), e->d_name);
    if (dir) closedir(dir);
    free(parent);
}

/* ---- writing and publishing a draft -------------------------------------------------------------------- */

/* Locks a new temporary file. Before the lock was taken, another process may have removed the file as a left-over. Then
 * the result is false, and the caller tries another name. */
static bool locked(int fd)
{
    struct stat st;
    /* Errors other than EWOULDBLOCK mean that this file system has no locks. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

static pb_status create(pb_draft *d)
{
    char *six = d->temporary + strlen(d->path) + 1;
    for (int i = 0; i < TRIES; i++) {
        draw_name(six);
        d->fd = d->disk->open(d->disk->self, d->temporary, O_WRONLY | O_CREAT | O_EXCL);
        if (d->fd < 0 && errno != EEXIST) return pb_fail_errno(errno, "%s", d->path);
        if (d->fd >= 0 && locked(d->fd)) return PB_OK;
        if (d->fd >= 0) (void)d->disk->close(d->disk->self, d->fd);
        d->fd = -1;
    }
    return pb_fail(PB_EIO, "%s: every name tried for a temporary file exists already", d->path);
}

pb_status pb_draft_open(const pb_disk *disk, const char *path, pb_draft *out)
{
    pb_draft d = {.disk = disk, .fd = -1};
    mode_t mode;
    PB_TRY(resolve(path, &d.path, &mode));
    const size_t room = strlen(d.path) + 1 + RANDOM + sizeof suffix;
    d.temporary = malloc(room);
    pb_status s = d.temporary ? PB_OK : pb_fail(PB_ENOMEM, "%s: out of memory", path);
    if (s == PB_OK) {
        snprintf(d.temporary, room, "%s.%*s%s", d.path, RANDOM, "", suffix);
        remove_left_over(d.path);
        s = create(&d);
    }
    if (s == PB_OK && mode && fchmod(d.fd, mode) != 0) s = pb_fail_errno(errno, "%s", path);
    if (s == PB_OK) *out = d;
    else pb_draft_drop(&d);
    return s;
}

pb_status pb_draft_put(pb_draft *d, const void *bytes, size_t n)
{
    return pb_disk_put(d->disk, d->fd, d->path, bytes, n);
}

static pb_status finish(pb_draft *d, bool only_new)
{
    pb_status s = pb_disk_sync(d->disk, d->fd, d->path);
    const int fd = d->fd;
    d->fd = -1;
    if (s == PB_OK && only_new) {
        if (link(d->temporary, d->path) != 0) s = pb_fail_errno(errno, "%s", d->path);
        else (void)d->disk->unlink(d->disk->self, d->temporary);
    } else if (s == PB_OK) {
        s = pb_disk_rename(d->disk, d->temporary, d->path);
    }
    s = pb_disk_close(d->disk, fd, d->path, s); /* releases the lock, after the rename */
    if (s == PB_OK) {
        free(d->temporary);
        d->temporary = NULL;
        s = pb_disk_sync_parent(d->disk, d->path);
    }
    pb_draft_drop(d);
    return s;
}

pb_status pb_draft_keep(pb_draft *d) { return finish(d, false); }
pb_status pb_draft_keep_new(pb_draft *d) { return finish(d, true); }

void pb_draft_drop(pb_draft *d)
{
    if (!d->path) return;
    if (d->temporary && (d->fd >= 0 || access(d->temporary, F_OK) == 0))
        (void)d->disk->unlink(d->disk->self, d->temporary);
    if (d->fd >= 0) (void)d->disk->close(d->disk->self, d->fd);
    free(d->temporary);
    free(d->path);
    *d = (pb_draft){.fd = -1};
}

/* ---- writing a file from memory ------------------------------------------------------------------------ */

static pb_status put_file(const char *path, const void *bytes, size_t n, pb_status (*keep)(pb_draft *))
{
    pb_draft d;
    PB_TRY(pb_draft_open(&pb_disk_posix, path, &d));
    const pb_status s = pb_draft_put(&d, bytes, n);
    if (s == PB_OK) return keep(&d);
    pb_draft_drop(&d);
    return s;
}

pb_status pb_file_replace(const char *path, const void *bytes, size_t n)
{
    return put_file(path, bytes, n, pb_draft_keep);
}

pb_status pb_file_create(const char *path, const void *bytes, size_t n)
{
    return put_file(path, bytes, n, pb_draft_keep_new);
}
