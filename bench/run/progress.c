/* progress.c - writes, reads and truncates progress.csv, which records how far the run's files are complete. */
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

#include "bench/rows/rows.h"
#include "os/append.h"
#include "os/disk.h"
#include "os/draft.h"
#include "os/file.h"

enum { LINE = 96, MOST = 1 << 30 };
#define HEADER "process,case,results,samples\n"

/* ---- writing the file ----------------------------------------------------------------------------- */

static int line_text(pb_place next, const pb_kept *k, char out[LINE])
{
    return snprintf(out, LINE, "%d,%d,%lld,%lld\n", next.process, next.next, k->results, k->samples);
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

/* ---- reading the file ----------------------------------------------------------------------------- */

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
        s = pb_fail(PB_EINVAL, "%s: this is not a progress.csv of this program", l->path);
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
    if (newline - line < LINE && sscanf(line, "%9d,%9d,%18lld,%18lld%c", &out->next.process, &out->next.next,
                                        &out->kept.results, &out->kept.samples, &end) == 5)
        if (end == '\n' && out->next.process >= 0 && out->next.next >= 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s:%d: need process,case,results,samples as whole numbers", l->path, l->number);
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
        if (one.next.process + (one.next.next > 0) > most.process || one.next.next > most.next)
            return pb_fail(PB_EINVAL, "%s:%d: process %d, case %d; there are %d processes of %d cases", l->path,
                           l->number, one.next.process, one.next.next, most.process, most.next);
        if (one.kept.results > size.results || one.kept.samples > size.samples) continue;
        *out = one;
        found = true;
    }
    return found ? PB_OK : pb_fail(PB_EINVAL, "%s: has no line that fits results.csv and samples.csv", l->path);
}

/* ---- checking that the rows agree with the last line ---------------------------------------------- */

static int by_process_and_key(const void *a, const void *b)
{
    const pb_row *x = a, *y = b;
    return x->process != y->process ? (x->process < y->process ? -1 : 1) : strcmp(x->key, y->key);
}

/* True if progress.csv has a line that says: case `next` of process `process` is to be measured next. */
static bool has_line(lines *l, int process, int next)
{
    pb_progress_line one;
    bool more = true;
    l->at = strlen(HEADER), l->number = 1;
    while (next_line(l, &one, &more) == PB_OK && more)
        if (one.next.process == process && one.next.next == next) return true;
    return false;
}

/* True if the process with these n rows, sorted by key, has ended. Usually it has rows of as many keys as there are
 * cases. Fewer are possible if a case has no row of its own, or if the process crashed (process.c says so in a row). */
static bool has_ended(lines *l, const pb_row *r, size_t n, int process, int cases)
{
    int keys = 0;
    bool told = false;
    for (size_t i = 0; i < n; i++) {
        keys += i == 0 || strcmp(r[i - 1].key, r[i].key) != 0;
        told |= r[i].status == PB_ROW_FAILED && strncmp(r[i].note, PB_DIED, strlen(PB_DIED)) == 0;
    }
    if (keys >= cases || told) return true;
    /* A process without rows has ended if it had begun: it died before its first case. */
    return has_line(l, process, n ? cases : 0);
}

/* Checks that each process before `next` has ended within the kept rows; otherwise EINVAL. Sorts the rows. */
static pb_status check_ended(lines *l, pb_table *t, pb_place next, int cases)
{
    if (t->n) qsort(t->rows, t->n, sizeof *t->rows, by_process_and_key); /* without rows the pointer is NULL */
    size_t i = 0, n;
    for (int process = 0; process < next.process; process++, i += n) {
        for (n = 0; i + n < t->n && t->rows[i + n].process == process;) n++;
        if (!has_ended(l, &t->rows[i], n, process, cases))
            return pb_fail(PB_EINVAL, "%s: process %d is next, but results.csv lacks cases of process %d", l->path,
                           next.process, process);
    }
    return PB_OK;
}

/* Checks that no row after the kept ones, which would be cut, is of a process before `next`; otherwise EINVAL. Rows
 * that cannot be parsed were left by a killed process or a crash of the machine, and may be cut. */
static pb_status check_tail(const lines *l, const pb_map *m, size_t kept, pb_place next)
{
    const char *text = (const char *)m->p, *header = memchr(text, '\n', m->n), *end = memrchr(text, '\n', m->n);
    const size_t head = header ? (size_t)(header + 1 - text) : 0, whole = end ? (size_t)(end + 1 - text) : 0;
    if (whole <= kept || head > kept) return PB_OK;
    char *tail = malloc(head + (whole - kept)); /* the names of the columns, then the rows that would be cut */
    pb_table t;
    pb_status s = PB_OK;
    if (!tail) return pb_fail(PB_ENOMEM, "%s: out of memory", l->path);
    memcpy(tail, text, head);
    memcpy(tail + head, text + kept, whole - kept);
    if (pb_table_parse("results.csv", tail, head + (whole - kept), &t) == PB_OK) {
        for (size_t i = 0; i < t.n && s == PB_OK; i++)
            if (t.rows[i].process < next.process)
                s = pb_fail(PB_EINVAL, "%s: process %d is next, but rows of process %lld would be cut off", l->path,
                            next.process, t.rows[i].process);
        pb_table_free(&t);
    }
    free(tail);
    return s;
}

static pb_status check_rows(lines *l, const char *dir, const pb_progress_line *last, int cases)
{
    char *path;
    pb_map m = {0};
    pb_table t;
    PB_TRY(pb_path_join(dir, "results.csv", &path));
    pb_status s = pb_map_open(path, &m);
    if (s == PB_OK) s = pb_table_parse(path, m.p, (size_t)last->kept.results, &t);
    if (s == PB_OK) {
        s = check_ended(l, &t, last->next, cases);
        pb_table_free(&t);
    }
    if (s == PB_OK) s = check_tail(l, &m, (size_t)last->kept.results, last->next);
    pb_map_close(&m);
    free(path);
    return s;
}

pb_status pb_progress_read(const char *dir, pb_place most, pb_progress_line *out)
{
    lines l;
    pb_progress_line last;
    PB_TRY(open_lines(dir, &l));
    pb_status s = find_last(&l, dir, most, &last);
    if (s == PB_OK) s = pb_kept_check(dir, &last.kept, last.next.process + (last.next.next > 0));
    if (s == PB_OK) s = check_rows(&l, dir, &last, most.next);
    close_lines(&l);
    if (s == PB_OK) *out = last;
    return s;
}

pb_status pb_progress_next(const char *dir, pb_place *out)
{
    lines l;
    pb_progress_line one;
    bool more = true;
    PB_TRY(open_lines(dir, &l));
    pb_status s = PB_OK;
    while (s == PB_OK && more) {
        s = next_line(&l, &one, &more);
        if (s == PB_OK && more) *out = one.next;
    }
    close_lines(&l);
    return s;
}

/* ---- truncating the files of a run ---------------------------------------------------------------- */

pb_status pb_progress_cut(const char *dir, const pb_progress_line *to)
{
    PB_TRY(pb_kept_cut(dir, &to->kept));
    return pb_kept_cut_file(dir, "progress.csv", to->end);
}

static pb_status find_start(lines *l, int process, pb_progress_line *out)
{
    pb_progress_line one;
    bool more = true, found = false;
    for (;;) {
        PB_TRY(next_line(l, &one, &more));
        if (!more) break;
        if (one.next.process != process || one.next.next != 0) continue;
        *out = one;
        found = true;
    }
    return found ? PB_OK : pb_fail(PB_EINVAL, "%s: the line at which process %d begins is missing", l->path, process);
}

pb_status pb_progress_start(const char *dir, int process, pb_progress_line *out)
{
    lines l;
    pb_progress_line at;
    PB_TRY(open_lines(dir, &l));
    pb_status s = find_start(&l, process, &at);
    close_lines(&l);
    if (s == PB_OK) s = pb_kept_check(dir, &at.kept, process);
    if (s == PB_OK) *out = at;
    return s;
}

/* ---- locking the run against a second command ----------------------------------------------------- */

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
