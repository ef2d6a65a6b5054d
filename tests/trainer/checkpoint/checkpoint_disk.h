/* checkpoint_disk.h - a disk (pb_disk) that fails at a chosen call, in a chosen way. */
#ifndef PB_CHECKPOINT_DISK_H
#define PB_CHECKPOINT_DISK_H
#include <errno.h>
#include <fcntl.h>

#include "tests/trainer/checkpoint/checkpoint_fixture.h"

/* How the disk fails at the chosen call. X(enumerator, description) */
#define FAULT_MAP(X)                                                                                                   \
    X(NO_SPACE, "ENOSPC, once")                                                                                        \
    X(BAD_DISK, "EIO, once")                                                                                           \
    X(FULL, "a write is cut, and from then on the disk is full")                                                       \
    X(DEAD, "EIO, and so does every call after it")                                                                    \
    X(SHORT, "half of it is done, which is no failure")                                                                \
    X(INTERRUPTED, "EINTR, which is no failure")                                                                       \
    X(CORRUPT, "what is written is another byte, and nobody says so")
enum {
#define X(id, what) FAULT_##id,
    FAULT_MAP(X)
#undef X
        FAULTS
};

/* A pb_disk that forwards every call to the real disk, except the call that must fail. fsync does nothing, because
 * syncing would only slow the tests. */
typedef struct bad_disk {
    pb_disk table;
    int kind, at; /* kind: how it fails (FAULT_MAP); at: index of the call that fails, from 0; -1: no call fails */
    int calls;
    bool fired;
} bad_disk;

/* Counts a call and returns the errno it must fail with; 0: it succeeds. `writes`: the call needs disk space. A full
 * disk fails only these calls: renaming and removing still work. */
static inline int bad_call(bad_disk *d, bool writes)
{
    const bool now = d->calls++ == d->at, since = d->at >= 0 && d->calls > d->at;
    int error = 0;
    if (d->kind == FAULT_DEAD && since) error = EIO;
    if (d->kind == FAULT_FULL && since && writes) error = ENOSPC;
    if (d->kind == FAULT_NO_SPACE && now) error = ENOSPC;
    if (d->kind == FAULT_BAD_DISK && now) error = EIO;
    d->fired = d->fired || error;
    return error;
}

static inline bool bad_now(bad_disk *d, int kind)
{
    const bool now = d->kind == kind && d->calls - 1 == d->at;
    d->fired = d->fired || now;
    return now;
}

#define BAD_CALL(self, writes)                                                                                         \
    do {                                                                                                               \
        const int bad_error_ = bad_call(self, writes);                                                                 \
        if (bad_error_) {                                                                                              \
            errno = bad_error_;                                                                                        \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

static inline int bad_open(void *self, const char *path, int flags)
{
    BAD_CALL(self, flags & O_CREAT);
    return pb_disk_posix.open(NULL, path, flags);
}

static inline ssize_t bad_read(void *self, int fd, void *to, size_t n)
{
    BAD_CALL(self, false);
    if (bad_now(self, FAULT_SHORT)) n = (n + 1) / 2;
    if (bad_now(self, FAULT_INTERRUPTED)) return errno = EINTR, -1;
    return read(fd, to, n);
}

static inline ssize_t bad_write(void *self, int fd, const void *from, size_t n)
{
    bad_disk *d = self;
    if (d->kind == FAULT_FULL && d->calls == d->at && n > 1) { /* the disk fills up in this write */
        d->calls++;
        d->fired = true;
        return write(fd, from, n / 2);
    }
    BAD_CALL(d, true);
    if (bad_now(d, FAULT_SHORT)) n = (n + 1) / 2;
    if (bad_now(d, FAULT_INTERRUPTED)) return errno = EINTR, -1;
    if (!bad_now(d, FAULT_CORRUPT)) return write(fd, from, n);
    char *other = malloc(n);
    assert_non_null(other);
    memcpy(other, from, n);
    other[n / 2] ^= 4;
    const ssize_t done = write(fd, other, n);
    free(other);
    return done;
}

static inline int bad_fsync(void *self, int fd)
{
    (void)fd;
    BAD_CALL(self, true);
    if (bad_now(self, FAULT_INTERRUPTED)) return errno = EINTR, -1;
    return 0;
}

static inline int bad_close(void *self, int fd)
{
    const int error = bad_call(self, false);
    const int done = close(fd); /* close() releases the descriptor even when it fails */
    return error ? errno = error, -1 : done;
}

static inline int bad_rename(void *self, const char *from, const char *to)
{
    BAD_CALL(self, false);
    return rename(from, to);
}

static inline int bad_unlink(void *self, const char *path)
{
    BAD_CALL(self, false);
    return unlink(path);
}

static inline int bad_mkdir(void *self, const char *path)
{
    BAD_CALL(self, true);
    return mkdir(path, 0777);
}

static inline int bad_rmdir(void *self, const char *path)
{
    BAD_CALL(self, false);
    return rmdir(path);
}

static inline void bad_disk_make(bad_disk *d)
{
    *d = (bad_disk){.at = -1};
    d->table =
        (pb_disk){d, bad_open, bad_read, bad_write, bad_fsync, bad_close, bad_rename, bad_unlink, bad_mkdir, bad_rmdir};
}
#endif
