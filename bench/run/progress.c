/* progress.c - progress.csv: how far the run's files are complete, so that a run can be resumed. */
#define _GNU_SOURCE
#include "bench/run/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "os/append.h"
#include "os/disk.h"
#include "os/draft.h"
#include "os/file.h"

enum { LINE = 96, MOST = 1 << 30 };
#define HEADER "launch,case,results,samples\n"

/* ---- writing -------------------------------------------------------------------------------------- */

static int line_text(pb_place next, const pb_kept *k, char out[LINE])
{
    return snprintf(out, LINE, "%d,%d,%lld,%lld\n", next.launch, next.next, k->results, k->samples);
}

pb_status pb_progress_create(const char *dir)
{
    char text[sizeof HEADER + LINE] = HEADER, *path;
    pb_kept k;
    PB_TRY(pb_kept_sizes(dir, &k));
    PB_TRY(pb_path_join(dir, "progress.csv", &path));
    const int n = line_text((pb_place){0, 0}, &k, text + strlen(text));
    const pb_status s = pb_file_create(path, text, strlen(HEADER) + (size_t)n);
    free(path);
    return s;
}

pb_status pb_progress_mark(const char *dir, pb_place next)
{
    char line[LINE], *path;
    pb_kept k;
    PB_TRY(pb_kept_sizes(dir, &k));
    PB_TRY(pb_path_join(dir, "progress.csv", &path));
    const int n = line_text(next, &k, line);
    const pb_status s = pb_append(path, line, (size_t)n);
    free(path);
    return s;
}

/* ---- reading -------------------------------------------------------------------------------------- */

typedef struct lines {
    char *path, *text; /* owned */
    size_t n, at;
    int number; /* number of the last line read */
} lines;

static void close_lines(lines *l) { free(l->path), free(l->text); }

static pb_status open_lines(const char *dir, lines *l)
{
    *l = (lines){.at = strlen(HEADER), .number = 1};
    PB_TRY(pb_path_join(dir, "progress.csv", &l->path));
    pb_status s = pb_disk_read_file(&pb_disk_posix, l->path, MOST, &l->text, &l->n);
    if (s == PB_OK && (l->n < l->at || memcmp(l->text, HEADER, l->at) != 0))
        s = pb_fail(PB_EINVAL, "%s: is not the progress.csv of this program", l->path);
    if (s != PB_OK) close_lines(l);
    return s;
}

/* Reads the next complete line; *more is false after the last one. Text after the last newline is a partial line of a
 * process that was killed; it is ignored. The field widths of sscanf() keep the numbers within their types. */
static pb_status next_line(lines *l, pb_progress_line *out, bool *more)
{
    const char *line = l->text + l->at, *newline = memchr(line, '\n', l->n - l->at);
    char end;
    *more = newline != NULL;
    if (!newline) return PB_OK;
    l->at = (size_t)(newline + 1 - l->text);
    l->number++;
    out->end = (long long)l->at;
    if (newline - line < LINE && sscanf(line, "%9d,%9d,%18lld,%18lld%c", &out->next.launch, &out->next.next,
                                        &out->kept.results, &out->kept.samples, &end) == 5)
        if (end == '\n' && out->next.launch >= 0 && out->next.next >= 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s:%d: need launch,case,results,samples as whole numbers", l->path, l->number);
}

static pb_status find_last(lines *l, const char *dir, pb_place most, pb_progress_line *out)
{
    pb_progress_line one;
    pb_kept size;
    bool more = true, found = false;
    PB_TRY(pb_kept_sizes(dir, &size));
    for (;;) {
        PB_TRY(next_line(l, &one, &more));
        if (!more) break;
        if (one.next.launch + (one.next.next > 0) > most.launch || one.next.next > most.next)
            return pb_fail(PB_EINVAL, "%s:%d: launch %d, case %d; there are %d launches of %d cases", l->path,
                           l->number, one.next.launch, one.next.next, most.launch, most.next);
        if (one.kept.results > size.results || one.kept.samples > size.samples) continue;
        *out = one;
        found = true;
    }
    return found ? PB_OK : pb_fail(PB_EINVAL, "%s: has no line that fits results.csv and samples.csv", l->path);
}

pb_status pb_progress_read(const char *dir, pb_place most, pb_progress_line *out)
{
    lines l;
    pb_progress_line last;
    PB_TRY(open_lines(dir, &l));
    pb_status s = find_last(&l, dir, most, &last);
    close_lines(&l);
    if (s == PB_OK) s = pb_kept_check(dir, &last.kept, last.next.launch + (last.next.next > 0));
    if (s == PB_OK) *out = last;
    return s;
}

/* ---- truncating ----------------------------------------------------------------------------------- */

pb_status pb_progress_cut(const char *dir, const pb_progress_line *to)
{
    PB_TRY(pb_kept_cut(dir, &to->kept));
    return pb_kept_cut_file(dir, "progress.csv", to->end);
}

static pb_status find_beginning(lines *l, int launch, pb_progress_line *out)
{
    pb_progress_line one;
    bool more = true, found = false;
    for (;;) {
        PB_TRY(next_line(l, &one, &more));
        if (!more) break;
        if (one.next.launch != launch || one.next.next != 0) continue;
        *out = one;
        found = true;
    }
    return found ? PB_OK : pb_fail(PB_EINVAL, "%s: no line says where launch %d begins", l->path, launch);
}

pb_status pb_progress_rewind(const char *dir, int launch)
{
    lines l;
    pb_progress_line at;
    PB_TRY(open_lines(dir, &l));
    pb_status s = find_beginning(&l, launch, &at);
    close_lines(&l);
    if (s == PB_OK) s = pb_kept_check(dir, &at.kept, launch);
    if (s == PB_OK) s = pb_kept_cut_file(dir, "progress.csv", at.end);
    return s == PB_OK ? pb_kept_cut_file(dir, "results.csv", at.kept.results) : s;
}

/* ---- lock against a second command ---------------------------------------------------------------- */

static pb_status lock(int fd, const char *path)
{
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno == EWOULDBLOCK && i < 100 && usleep(100000) == 0) continue;
        return errno == EWOULDBLOCK ? pb_fail(PB_EINVAL, "%s: the run is still being measured", path)
                                    : pb_fail_errno(errno, "%s: it cannot be locked", path);
    }
    return PB_OK;
}

pb_status pb_progress_lock(const char *dir, int *out)
{
    char *path;
    uint64_t size;
    int fd = -1;
    PB_TRY(pb_path_join(dir, "results.csv", &path));
    pb_status s = pb_disk_open_file(&pb_disk_posix, path, &fd, &size);
    if (s == PB_OK) {
        fcntl(fd, F_SETFD, 0); /* children inherit the lock, so that a process that outlives this one still holds it */
        s = lock(fd, path);
        if (s == PB_OK) *out = fd;
        else close(fd);
    }
    free(path);
    return s;
}
