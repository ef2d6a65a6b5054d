/* processes.c - writes and reads processes.csv, and applies it to the rows of a run. */
#define _GNU_SOURCE
#include "bench/rows/processes.h"

#include <csv.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/rows/write_csv.h"
#include "os/append.h"
#include "os/disk.h"
#include "os/draft.h"
#include "os/file.h"
#include "os/page.h"
#include "os/text.h"

enum { MOST_BYTES = 1 << 30, MOST_PROCESSES = 1000000000 };

enum column {
#define PROCESS_COLUMN(name, what) COLUMN_##name,
#include "bench/rows/processes.def"
#undef PROCESS_COLUMN
    COLUMNS
};

static const char *const columns[COLUMNS] = {
#define PROCESS_COLUMN(name, what) #name,
#include "bench/rows/processes.def"
#undef PROCESS_COLUMN
};

static const struct {
    const char *name;
    bool ended;
} outcomes[PB_OUTCOMES] = {
#define OUTCOME(name, ended, what) {#name, ended},
#include "bench/rows/outcomes.def"
#undef OUTCOME
};

bool pb_outcome_ended(pb_outcome outcome) { return outcomes[outcome].ended; }

/* ---- writing the file ------------------------------------------------------------------------------- */

static pb_status save(const char *dir, pb_page *p, pb_page_put *put)
{
    char *path = NULL;
    pb_status s = pb_path_join(dir, "processes.csv", &path);
    s = pb_page_save(p, s, put, path);
    free(path);
    return s;
}

pb_status pb_processes_create(const char *dir)
{
    pb_page p;
    PB_TRY(pb_page_open(&p));
    for (int c = 0; c < COLUMNS; c++) fprintf(p.f, "%s%c", columns[c], c + 1 < COLUMNS ? ',' : '\n');
    return save(dir, &p, pb_file_create);
}

pb_status pb_processes_append(const char *dir, const pb_process_end *end)
{
    pb_page p;
    PB_TRY(pb_page_open(&p));
    fprintf(p.f, "%d,%s,%.3f,%s,", end->process, end->start_utc, end->seconds, outcomes[end->outcome].name);
    if (end->retry_of >= 0) fprintf(p.f, "%d", end->retry_of);
    fputc(',', p.f);
    pb_csv_text(p.f, end->reason);
    fputc('\n', p.f);
    return save(dir, &p, pb_append);
}

/* ---- reading the file ------------------------------------------------------------------------------- */

typedef struct reader {
    const char *path;
    pb_processes *out;
    pb_status status; /* the first failure */
    int line, field;
    long long size; /* bytes up to the end of the current line */
    char text[COLUMNS][PB_REASON_TEXT];
} reader;

static void fail(reader *r, const char *what, const char *detail)
{
    if (r->status == PB_OK) r->status = pb_fail(PB_EINVAL, "%s:%d: %s%.100s", r->path, r->line, what, detail);
}

static void on_field(void *bytes, size_t n, void *self)
{
    reader *r = self;
    const char *text = bytes ? bytes : "";
    if (r->field < COLUMNS) {
        if (n >= PB_REASON_TEXT) fail(r, "a field is too long in the column ", columns[r->field]);
        else if (strlen(text) != n || !pb_is_printable(text))
            fail(r, "a control character in the column ", columns[r->field]);
        else memcpy(r->text[r->field], text, n + 1);
    }
    r->field++;
}

/* Reads a whole number below `most`. */
static int whole_number(reader *r, enum column c, int most)
{
    char *end;
    errno = 0;
    const long v = strtol(r->text[c], &end, 10);
    if (r->text[c][0] >= '0' && r->text[c][0] <= '9' && !*end && !errno && v < most) return (int)v;
    fail(r, "the process number is not valid here: ", r->text[c]);
    return 0;
}

static double duration(reader *r)
{
    char *end;
    const double v = strtod(r->text[COLUMN_seconds], &end);
    if (end == r->text[COLUMN_seconds] || *end || !(v >= 0) || !isfinite(v))
        fail(r, "not a number of seconds: ", r->text[COLUMN_seconds]);
    return v;
}

static pb_outcome outcome_of(reader *r)
{
    for (int i = 0; i < PB_OUTCOMES; i++)
        if (!strcmp(r->text[COLUMN_outcome], outcomes[i].name)) return (pb_outcome)i;
    fail(r, "no such outcome: ", r->text[COLUMN_outcome]);
    return PB_OUTCOME_ok;
}

/* Makes room for one more process. */
static bool make_room(pb_processes *p)
{
    if (p->n < p->room) return true;
    const int room = p->room ? 2 * p->room : 16;
    pb_process_end *row = realloc(p->row, (size_t)room * sizeof *row);
    if (!row) return false;
    p->row = row;
    p->room = room;
    return true;
}

static void add_row(reader *r)
{
    pb_processes *p = r->out;
    pb_process_end end = {.process = whole_number(r, COLUMN_process, MOST_PROCESSES),
                          .seconds = duration(r),
                          .outcome = outcome_of(r),
                          .retry_of = -1};
    if (*r->text[COLUMN_retry_of]) end.retry_of = whole_number(r, COLUMN_retry_of, end.process);
    if (strlen(r->text[COLUMN_start_utc]) >= sizeof end.start_utc) fail(r, "not a time: ", r->text[COLUMN_start_utc]);
    if (end.process != p->ended) fail(r, "the process number is not the next one: ", r->text[COLUMN_process]);
    if (r->status == PB_OK && !make_room(p)) r->status = pb_fail(PB_ENOMEM, "%s: out of memory", r->path);
    if (r->status != PB_OK) return;
    snprintf(end.start_utc, sizeof end.start_utc, "%.31s", r->text[COLUMN_start_utc]);
    memcpy(end.reason, r->text[COLUMN_reason], sizeof end.reason);
    end.size = r->size;
    p->row[p->ended] = end;
    p->n = p->ended + 1;
    p->ended += outcomes[end.outcome].ended;
}

static void on_line(int terminator, void *self)
{
    reader *r = self;
    (void)terminator;
    bool header = true;
    for (int c = 0; c < COLUMNS; c++) header &= !strcmp(r->text[c], columns[c]);
    if (r->status != PB_OK) return;
    if (r->field != COLUMNS)
        fail(r, "a line must have six fields: process,start_utc,seconds,outcome,retry_of,reason", "");
    else if (r->line > 1) add_row(r);
    else if (!header) fail(r, "the header must be process,start_utc,seconds,outcome,retry_of,reason", "");
    r->field = 0;
}

/* Feeds the parser one complete line at a time, so that it never sees a partial row at the end of the file. */
static pb_status parse(reader *r, const char *text, size_t n)
{
    struct csv_parser csv;
    const char *newline;
    if (csv_init(&csv, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL))
        return pb_fail(PB_ENOMEM, "%s: out of memory", r->path);
    for (size_t at = 0; r->status == PB_OK && (newline = memchr(text + at, '\n', n - at));) {
        const size_t length = (size_t)(newline + 1 - text) - at;
        r->line++;
        r->size = (long long)(at + length);
        if (csv_parse(&csv, text + at, length, on_field, on_line, r) != length || csv.quoted)
            fail(r, "a quote out of place", "");
        at += length;
        if (r->line == 1) r->out->header = r->size;
        r->out->size = r->size;
    }
    csv_free(&csv);
    if (!r->line) fail(r, "no header", "");
    return r->status;
}

static pb_status read_file(const char *path, pb_processes *out)
{
    char *text;
    size_t n;
    *out = (pb_processes){0};
    PB_TRY(pb_disk_read_file(&pb_disk_posix, path, MOST_BYTES, &text, &n));
    reader r = {.path = path, .out = out};
    const pb_status s = parse(&r, text, n);
    free(text);
    if (s != PB_OK) pb_processes_free(out);
    return s;
}

pb_status pb_processes_read(const char *dir, pb_processes *out)
{
    char *path;
    PB_TRY(pb_path_join(dir, "processes.csv", &path));
    const pb_status s = read_file(path, out);
    free(path);
    return s;
}

void pb_processes_free(pb_processes *p)
{
    free(p->row);
    *p = (pb_processes){0};
}

/* ---- cutting the file when a run is resumed --------------------------------------------------------- */

pb_status pb_processes_cut(const char *dir, pb_processes *p, int next)
{
    char *path;
    /* Rows are removed only if process `next` has ended. Otherwise the last row may belong to an interrupted part of
     * process `next`, and it stays. */
    if (p->ended > next) {
        p->size = next ? p->row[next - 1].size : p->header;
        p->n = p->ended = next;
    }
    PB_TRY(pb_path_join(dir, "processes.csv", &path));
    const pb_status s = pb_append_cut(path, p->size);
    free(path);
    return s;
}

/* ---- marking the rows of throttled processes -------------------------------------------------------- */

static pb_status mark(pb_table *t, pb_row *r, const pb_process_end *end)
{
    char note[PB_REASON_TEXT + 16], both[2 * PB_REASON_TEXT];
    const bool measured = r->status == PB_ROW_OK, verdict = pb_row_class_of(r->status) == PB_ROW_VERDICT;
    snprintf(note, sizeof note, "throttled: %s", end->reason);
    if (!measured && (!verdict || strstr(r->note, note))) return PB_OK;
    snprintf(both, sizeof both, "%s%s%.700s", note, *r->note ? "; " : "", r->note);
    const char *kept = pb_intern(t->strings, both, strlen(both));
    if (!kept) return pb_fail(PB_ENOMEM, "%s: out of memory", t->path);
    r->note = kept;
    if (measured) r->status = PB_ROW_THROTTLED;
    return PB_OK;
}

pb_status pb_processes_apply(pb_table *t)
{
    char path[PB_PATH_TEXT + 16];
    const char *slash = strrchr(t->path, '/');
    const int folder = slash ? (int)(slash + 1 - t->path) : 0;
    pb_processes p;
    if (strcmp(t->path + folder, "results.csv") != 0) return PB_OK;
    snprintf(path, sizeof path, "%.*sprocesses.csv", folder, t->path);
    if (access(path, F_OK) != 0 && errno == ENOENT) return PB_OK;
    pb_status s = read_file(path, &p);
    if (s != PB_OK) return s;
    for (size_t i = 0; i < t->n && s == PB_OK; i++) {
        pb_row *r = &t->rows[i];
        if (r->process < p.n && p.row[r->process].outcome == PB_OUTCOME_throttled) s = mark(t, r, &p.row[r->process]);
    }
    pb_processes_free(&p);
    return s;
}
