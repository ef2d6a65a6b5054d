/* read.c - reads results.csv: libcsv splits it, its callbacks check every field and row. */
#include "bench/rows/read.h"

#include <csv.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/rows/metric.h"
#include "bench/rows/processes.h"
#include "bench/rows/renames.h"
#include "os/file.h"
#include "os/text.h"

enum { BLOCK = 64 << 10, IGNORED = -1 };

typedef enum kind { KIND_str, KIND_opt, KIND_i64, KIND_f64, KIND_status } kind;
static const struct column {
    const char *name;
    kind kind;
    size_t offset;
} columns[] = {
#define COL(type, name, doc) {#name, KIND_##type, offsetof(pb_row, name)},
#include "bench/rows/columns.def"
#undef COL
};
enum { NCOLUMNS = sizeof columns / sizeof *columns };

typedef struct reader {
    pb_table *t;
    struct csv_parser csv;
    pb_status status; /* the first failure; later input is ignored */
    /* line: line being fed; row_line: line on which the current row began (a quoted field may hold newlines) */
    size_t line, row_line;
    bool header_done, cut;      /* cut: the input so far does not end with a newline */
    int nfields, field;         /* nfields: fields of the header; field: fields of the current row so far */
    int column[PB_COLUMNS_MAX]; /* header position -> index into columns, or IGNORED */
    const char
        *last[NCOLUMNS]; /* interned text of the previous row: most columns repeat it, so the lookup is skipped */
    size_t last_len[NCOLUMNS];
    size_t checked_keys; /* distinct keys that were parsed; if t->keys has more, the current key is new */
    struct {
        const char *was, *is;
    } renamed_key;           /* the last translated key: in bench_version 1 and now; NULL: none yet */
    size_t capacity, nslots; /* capacity: of t->rows; nslots: of `slots`, a power of two */
    struct slot {
        uint32_t row, hash;       /* row: 1 + the index into t->rows; 0: free slot. hash: avoids comparing most rows */
    } * slots;                    /* hash table over (key, metric, process, run_id), to find duplicates */
    pb_row row;                   /* the current row; status PB_ROW_STATUSES: status.def does not have the text */
    char no_status[PB_AXIS_TEXT]; /* first characters of a status that status.def does not have */
} reader;

/* Records the first failure. `detail` may be text from the file, so only its first 127 bytes are shown. */
static void fail(reader *r, pb_status s, const char *what, const char *detail)
{
    if (r->status == PB_OK) r->status = pb_fail(s, "%s:%zu: %s%.127s", r->t->path, r->row_line, what, detail);
}

/* ---- parsing the header and the fields --------------------------------------------------------- */

static void header_field(reader *r, const char *text)
{
    if (r->nfields == PB_COLUMNS_MAX) {
        fail(r, PB_EINVAL, "more than 256 columns", "");
        return;
    }
    int found = IGNORED;
    for (int c = 0; c < NCOLUMNS; c++)
        if (!strcmp(columns[c].name, pb_renamed_column(text))) found = c;
    for (int i = 0; i < r->nfields && found != IGNORED; i++)
        if (r->column[i] == found) fail(r, PB_EINVAL, "two columns are called ", text);
    r->column[r->nfields++] = found;
    if (found == IGNORED) r->t->ignored++;
}

static void set_text(reader *r, int c, char *text, size_t n)
{
    bool is_note = columns[c].offset == offsetof(pb_row, note);
    bool is_key = columns[c].offset == offsetof(pb_row, key);
    if (!pb_is_printable(text) && !is_note) fail(r, PB_EINVAL, "a control character in the column ", columns[c].name);
    pb_make_printable(text, ' ');
    if (!r->last[c] || r->last_len[c] != n || memcmp(r->last[c], text, n) != 0) {
        r->last[c] = pb_intern(is_key ? r->t->keys : r->t->strings, text, n);
        r->last_len[c] = n;
        if (!r->last[c]) fail(r, PB_ENOMEM, "out of memory", "");
    }
    memcpy((char *)&r->row + columns[c].offset, &r->last[c], sizeof r->last[c]);
}

static void header_end(reader *r)
{
    for (int c = 0; c < NCOLUMNS; c++) {
        bool found = false;
        for (int i = 0; i < r->nfields; i++) found |= r->column[i] == c;
        if (!found && columns[c].kind == KIND_opt) set_text(r, c, (char[1]){0}, 0);
        else if (!found) fail(r, PB_EINVAL, "the header lacks the column ", columns[c].name);
    }
    r->header_done = true;
}

static void set_integer(reader *r, int c, const char *text)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < 0) {
        char what[96];
        snprintf(what, sizeof what, "%s is not a whole number >= 0: ", columns[c].name);
        fail(r, PB_EINVAL, what, text);
    }
    memcpy((char *)&r->row + columns[c].offset, &v, sizeof v);
}

static void set_number(reader *r, int c, const char *text)
{
    char *end = (char *)text;
    double v = *text ? strtod(text, &end) : (double)NAN;
    if (*text && (end == text || *end || !isfinite(v))) {
        char what[96];
        snprintf(what, sizeof what, "%s is not a finite number: ", columns[c].name);
        fail(r, PB_EINVAL, what, text);
    }
    memcpy((char *)&r->row + columns[c].offset, &v, sizeof v);
}

/* Stores the row's status. An unknown status is kept as PB_ROW_STATUSES, and check_row() rejects it after it has
 * checked the preceding columns. */
static void set_status(reader *r, char *text)
{
    r->row.status = PB_ROW_STATUSES;
    if (pb_row_status_find(text, &r->row.status)) return;
    pb_make_printable(text, ' ');
    snprintf(r->no_status, sizeof r->no_status, "%s", text);
}

static void on_field(void *bytes, size_t n, void *self)
{
    reader *r = self;
    if (r->status != PB_OK) return;
    char *text = bytes ? bytes : (char[1]){0};
    if (n > PB_FIELD_MAX) {
        fail(r, PB_EINVAL, "a field of more than 64 KiB (a quote left open?)", "");
    } else if (!r->header_done) {
        header_field(r, text);
    } else if (r->field < r->nfields && r->column[r->field] != IGNORED) {
        int c = r->column[r->field];
        switch (columns[c].kind) {
        case KIND_str:
        case KIND_opt: set_text(r, c, text, n); break;
        case KIND_i64: set_integer(r, c, text); break;
        case KIND_f64: set_number(r, c, text); break;
        case KIND_status: set_status(r, text); break;
        }
    }
    r->field++;
}

/* ---- checking and storing rows ----------------------------------------------------------------- */

static bool one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(text, *words)) return true;
    return false;
}

static void check_metric(reader *r)
{
    const pb_row *row = &r->row;
    const pb_metric *m = pb_metric_find(row->metric);
    char what[160];
    if (m && strcmp(m->unit, row->unit) != 0) {
        snprintf(what, sizeof what, "%s is in %s, not in ", m->name, m->unit);
        fail(r, PB_EINVAL, what, row->unit);
    }
    if (m && strcmp(m->better, row->better) != 0) {
        snprintf(what, sizeof what, "better of %s is %s, not ", m->name, m->better);
        fail(r, PB_EINVAL, what, row->better);
    }
}

/* Translates the names in a row of bench_version 1 into the current ones. */
static void rename_row(reader *r)
{
    pb_row *row = &r->row;
    char key[PB_KEY_TEXT];
    const char *metric = pb_renamed_metric(row->metric);
    row->bench_version = pb_intern(r->t->strings, PB_BENCH_VERSION, strlen(PB_BENCH_VERSION));
    row->metric = pb_intern(r->t->strings, metric, strlen(metric));
    if (r->renamed_key.was != row->key) {
        if (pb_renamed_key(row->key, key) != PB_OK) return; /* check_row() rejects the key */
        r->renamed_key.was = row->key;
        r->renamed_key.is = pb_intern(r->t->keys, key, strlen(key));
        r->checked_keys = pb_strings_count(r->t->keys);
    }
    row->key = r->renamed_key.is;
    if (!row->bench_version || !row->metric || !row->key) fail(r, PB_ENOMEM, "out of memory", "");
}

static void check_row(reader *r)
{
    static const char *const directions[] = {"lower", "higher", "none", NULL};
    const pb_row *row = &r->row;
    if (!strcmp(row->bench_version, PB_RENAMED_VERSION)) rename_row(r);
    if (r->status != PB_OK) return;
    if (!*row->bench_version) fail(r, PB_EINVAL, "no bench_version", "");
    if (!*row->run_id) fail(r, PB_EINVAL, "no run_id", "");
    if (!*row->machine_id) fail(r, PB_EINVAL, "no machine_id", "");
    if (!*row->metric) fail(r, PB_EINVAL, "no metric", "");
    if (!one_of(row->better, directions)) fail(r, PB_EINVAL, "better is lower, higher or none, not ", row->better);
    if (row->status == PB_ROW_STATUSES) fail(r, PB_EINVAL, "no such status: ", r->no_status);
    if (row->status == PB_ROW_OK && isnan(row->value)) fail(r, PB_EINVAL, "status ok without a value", "");
    check_metric(r);
    if (r->status != PB_OK || r->checked_keys == pb_strings_count(r->t->keys)) return;
    pb_case parsed; /* the interned key is new, so it has not been checked yet */
    if (pb_case_parse(row->key, &parsed) != PB_OK) fail(r, PB_EINVAL, "not a key: ", row->key);
    r->checked_keys++;
}

/* Hashes (key, metric, process, run_id). The strings are interned, so their addresses are hashed. */
static uint32_t identity(const pb_row *a)
{
    uint64_t h = (uintptr_t)a->key * 0x9e3779b97f4a7c15u;
    h = (h ^ (uintptr_t)a->metric) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)a->process ^ (uintptr_t)a->run_id) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

static bool same_identity(const pb_row *a, const pb_row *b)
{
    return a->key == b->key && a->metric == b->metric && a->process == b->process && a->run_id == b->run_id;
}

/* Returns the slot that holds a row with the identity of `row`, or the free slot where `row` must be stored. */
static struct slot *slot_of(const reader *r, const pb_row *row, uint32_t hash)
{
    size_t i = hash & (r->nslots - 1);
    while (r->slots[i].row && (r->slots[i].hash != hash || !same_identity(&r->t->rows[r->slots[i].row - 1], row)))
        i = (i + 1) & (r->nslots - 1);
    return &r->slots[i];
}

/* Rehashes n old slots into r->slots. Their rows are distinct, so rows are not compared. */
static void move_slots(const reader *r, const struct slot *old, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        size_t i = old[k].hash & (r->nslots - 1);
        while (r->slots[i].row) i = (i + 1) & (r->nslots - 1);
        if (old[k].row) r->slots[i] = old[k];
    }
}

/* Makes room for one more row, and keeps the slots at most half full. False: out of memory. */
static bool make_room(reader *r)
{
    if (r->t->n < r->capacity) return true;
    size_t capacity = r->capacity ? r->capacity * 2 : 256;
    pb_row *rows = realloc(r->t->rows, capacity * sizeof *rows);
    if (rows) r->t->rows = rows;
    struct slot *old = r->slots,
                *slots = rows && capacity < UINT32_MAX / 2 ? calloc(capacity * 2, sizeof *slots) : NULL;
    if (!slots) return false;
    const size_t nold = r->nslots;
    r->slots = slots;
    r->nslots = capacity * 2;
    r->capacity = capacity;
    move_slots(r, old, nold);
    free(old);
    return true;
}

static void add_row(reader *r)
{
    if (!make_room(r)) {
        fail(r, PB_ENOMEM, "out of memory", "");
        return;
    }
    const uint32_t hash = identity(&r->row);
    struct slot *slot = slot_of(r, &r->row, hash);
    if (slot->row) {
        char what[PB_AXIS_TEXT + 64];
        snprintf(what, sizeof what, "process %lld has a second %.64s of ", r->row.process, r->row.metric);
        fail(r, PB_EINVAL, what, r->row.key);
        return;
    }
    r->t->rows[r->t->n++] = r->row;
    *slot = (struct slot){(uint32_t)r->t->n, hash};
}

static void on_row(int terminator, void *self)
{
    reader *r = self;
    if (terminator == -1 || r->status != PB_OK) return; /* -1: csv_fini() ended the last row */
    if (r->field == 0) {
        /* a blank line, or the LF of a CRLF */
    } else if (!r->header_done) {
        header_end(r);
    } else if (r->field != r->nfields) {
        char what[96];
        snprintf(what, sizeof what, "%d fields where the header has %d", r->field, r->nfields);
        fail(r, PB_EINVAL, what, "");
    } else {
        check_row(r);
        if (r->status == PB_OK) add_row(r);
    }
    r->field = 0;
    r->row_line = r->line + 1;
}

/* ---- reading the whole file -------------------------------------------------------------------- */

static pb_status open_reader(reader *r, pb_table *t, const char *name)
{
    memset(r, 0, sizeof *r);
    memset(t, 0, sizeof *t);
    r->t = t;
    r->line = r->row_line = 1;
    snprintf(t->path, sizeof t->path, "%s", name);
    t->strings = pb_strings_new();
    t->keys = pb_strings_new();
    if (!t->strings || !t->keys || csv_init(&r->csv, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL | CSV_REPALL_NL)) {
        pb_table_free(t);
        return pb_fail(PB_ENOMEM, "%s: out of memory", name);
    }
    csv_set_blk_size(&r->csv, 4096);
    return PB_OK;
}

/* Feeds the parser line by line, so that r->line is right when a callback fails. Skips a byte order mark at the start
 * of the file. */
static void feed(reader *r, const char *p, size_t n)
{
    if (r->line == 1 && !r->header_done && n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) && !r->cut) p += 3, n -= 3;
    while (n && r->status == PB_OK) {
        const char *nl = memchr(p, '\n', n);
        size_t len = nl ? (size_t)(nl - p) + 1 : n;
        if (memchr(p, 0, len)) {
            fail(r, PB_EINVAL, "a NUL byte: not a text file", "");
        } else if (csv_parse(&r->csv, p, len, on_field, on_row, r) != len) {
            bool quote = csv_error(&r->csv) == CSV_EPARSE;
            fail(r, quote ? PB_EINVAL : PB_ENOMEM, quote ? "a quote out of place" : "out of memory", "");
        } else if (csv_get_buffer_size(&r->csv) > PB_FIELD_MAX + BLOCK) {
            fail(r, PB_EINVAL, "a field of more than 64 KiB (a quote left open?)", "");
        }
        if (nl) r->line++;
        r->cut = !nl;
        p += len;
        n -= len;
    }
}

static pb_status close_reader(reader *r)
{
    if (r->status == PB_OK && r->line == 1 && !r->cut) fail(r, PB_EINVAL, "the file is empty", "");
    if (r->cut) fail(r, PB_EINVAL, "cut off: the last line has no newline", "");
    if (r->status == PB_OK && csv_fini(&r->csv, on_field, on_row, r))
        fail(r, PB_EINVAL, "a quote that opens here is never closed", "");
    if (!r->header_done) fail(r, PB_EINVAL, "no header", "");
    csv_free(&r->csv);
    free(r->slots);
    if (r->status != PB_OK) pb_table_free(r->t);
    return r->status;
}

pb_status pb_table_parse(const char *name, const void *bytes, size_t n, pb_table *out)
{
    reader r;
    PB_TRY(open_reader(&r, out, name));
    feed(&r, bytes, n);
    return close_reader(&r);
}

static pb_status read_stream(FILE *f, const char *path, pb_table *out)
{
    reader r;
    char block[BLOCK];
    PB_TRY(open_reader(&r, out, path));
    for (size_t n; r.status == PB_OK && (n = fread(block, 1, sizeof block, f)) > 0;) feed(&r, block, n);
    if (ferror(f)) fail(&r, PB_EIO, "cannot be read: ", strerror(errno));
    return close_reader(&r);
}

pb_status pb_table_read(const char *path, pb_table *out)
{
    char file[PB_PATH_TEXT];
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int n = snprintf(file, sizeof file, "%s%s", path, folder ? "/results.csv" : "");
    if (n < 0 || n >= (int)sizeof file) return pb_fail(PB_EINVAL, "the path is too long (%d characters)", n);
    FILE *f;
    PB_TRY(pb_file_read(file, &f));
    pb_status s = read_stream(f, file, out);
    fclose(f);
    if (s != PB_OK) return s;
    s = pb_processes_apply(out);
    if (s != PB_OK) pb_table_free(out);
    return s;
}

void pb_table_free(pb_table *t)
{
    free(t->rows);
    pb_strings_free(t->strings);
    pb_strings_free(t->keys);
    t->rows = NULL;
    t->strings = t->keys = NULL;
    t->n = 0;
}

/* Returns a number > 0 if a is later than b, 0 if both are the same time. */
static int later(const struct timespec *a, const struct timespec *b)
{
    if (a->tv_sec != b->tv_sec) return a->tv_sec > b->tv_sec ? 1 : -1;
    return (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

pb_status pb_newest_run(const char *runs, char *out, size_t n)
{
    char best[PB_PATH_TEXT] = "", file[2 * PB_PATH_TEXT];
    struct timespec latest = {0};
    struct stat st;
    DIR *d = opendir(runs);
    if (!d) return pb_fail_errno(errno, "no run found; name a run folder or a CSV: %s", runs);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s/results.csv", runs, e->d_name);
        if (e->d_name[0] == '.' || !pb_is_printable(e->d_name) || stat(file, &st) != 0) continue;
        const int by = later(&st.st_mtim, &latest);
        if (by < 0 || (by == 0 && strcmp(e->d_name, best) < 0)) continue;
        latest = st.st_mtim;
        snprintf(best, sizeof best, "%s", e->d_name);
    }
    closedir(d);
    if (!*best) return pb_fail(PB_EPATH, "%s: the folder holds no run", runs);
    int len = snprintf(out, n, "%s/%s", runs, best);
    return len < 0 || (size_t)len >= n ? pb_fail(PB_EINVAL, "the path is too long (%d characters)", len) : PB_OK;
}
