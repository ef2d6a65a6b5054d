/* progress.c - the places up to which a run's files are whole. */
#define _GNU_SOURCE
#include "bench/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, LINE = 160 };
#define HEADER "launch,case,results,samples\n"

static pb_status path_of(const char *dir, const char *file, char out[PATH])
{
    if (snprintf(out, PATH, "%s/%s", dir, file) >= PATH) return pb_fail(PB_EIO, "%.60s...: the path is too long", dir);
    return PB_OK;
}

static pb_status length_of(const char *dir, const char *file, long long *out)
{
    char path[PATH];
    struct stat s;
    PB_TRY(path_of(dir, file, path));
    if (stat(path, &s) != 0) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    *out = s.st_size;
    return PB_OK;
}

static pb_status cut(const char *dir, const char *file, long long length)
{
    char path[PATH];
    PB_TRY(path_of(dir, file, path));
    return truncate(path, (off_t)length) == 0 ? PB_OK : pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
}

pb_status pb_progress_mark(const char *dir, pb_place next)
{
    char path[PATH], line[LINE];
    long long results, samples;
    struct stat s;
    PB_TRY(length_of(dir, "results.csv", &results));
    PB_TRY(length_of(dir, "samples.csv", &samples));
    PB_TRY(path_of(dir, "progress.csv", path));
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || fstat(fd, &s) != 0) {
        pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return PB_EIO;
    }
    const int n = snprintf(line, sizeof line, "%s%d,%d,%lld,%lld\n", s.st_size ? "" : HEADER, next.launch, next.next,
                           results, samples);
    const bool ok = write(fd, line, (size_t)n) == n; /* half a line is none: pb_progress_cut takes the one before */
    const int why = errno;
    close(fd);
    return ok ? PB_OK : pb_fail(PB_EIO, "%s: %s", path, strerror(why));
}

/* The last whole line whose lengths the files reach. length: theirs, and where the line ends. */
static bool last_place(FILE *f, long long results, long long samples, pb_place *next, long long length[3])
{
    char line[LINE];
    bool found = false;
    while (fgets(line, sizeof line, f)) {
        pb_place p;
        long long r, s;
        char end;
        if (sscanf(line, "%d,%d,%lld,%lld%c", &p.launch, &p.next, &r, &s, &end) != 5 || end != '\n') continue;
        if (p.launch < 0 || p.next < 0 || r < 0 || s < 0 || r > results || s > samples) continue;
        *next = p;
        length[0] = r, length[1] = s, length[2] = ftell(f);
        found = true;
    }
    return found;
}

pb_status pb_progress_cut(const char *dir, pb_place *next)
{
    char path[PATH];
    long long results, samples, length[3];
    pb_place place;
    PB_TRY(length_of(dir, "results.csv", &results));
    PB_TRY(length_of(dir, "samples.csv", &samples));
    PB_TRY(path_of(dir, "progress.csv", path));
    FILE *f = fopen(path, "r");
    if (!f) return pb_fail(PB_EINVAL, "%s: %s: nothing to go on from", path, strerror(errno));
    const bool found = last_place(f, results, samples, &place, length);
    fclose(f);
    if (!found) return pb_fail(PB_EINVAL, "%s: has no line that fits results.csv and samples.csv", path);
    PB_TRY(cut(dir, "results.csv", length[0]));
    PB_TRY(cut(dir, "samples.csv", length[1]));
    PB_TRY(cut(dir, "progress.csv", length[2]));
    *next = place;
    return PB_OK;
}

pb_status pb_progress_rewind(const char *dir, int launch)
{
    char path[PATH], line[LINE], end;
    long long results = -1, samples, length = 0;
    pb_place p;
    PB_TRY(path_of(dir, "progress.csv", path));
    FILE *f = fopen(path, "r");
    if (!f) return pb_fail(PB_EINVAL, "%s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, f)) {
        long long r;
        if (sscanf(line, "%d,%d,%lld,%lld%c", &p.launch, &p.next, &r, &samples, &end) != 5 || end != '\n') continue;
        if (p.launch == launch && p.next == 0) results = r, length = ftell(f);
    }
    fclose(f);
    if (results < 0) return pb_fail(PB_EINVAL, "%s: no line says where launch %d begins", path, launch);
    PB_TRY(cut(dir, "progress.csv", length));
    return cut(dir, "results.csv", results);
}

pb_status pb_progress_lock(const char *dir, int *out)
{
    char path[PATH];
    PB_TRY(path_of(dir, "results.csv", path));
    int fd = open(path, O_RDONLY); /* not O_CLOEXEC: a launch that outlives this process holds the lock too */
    if (fd < 0) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno == EWOULDBLOCK && i < 100 && usleep(100000) == 0) continue;
        pb_fail(PB_EINVAL, errno == EWOULDBLOCK ? "%s: the run is still being measured" : "%s: it cannot be locked",
                path);
        close(fd);
        return PB_EINVAL;
    }
    *out = fd;
    return PB_OK;
}
