/* stored_pairs.c - reads the stored form of sessions of pairs: libcsv splits it into fields. */
#include "bench/pairs/stored_pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"
#include "os/file.h"

enum { VERSION, MACHINE, SESSION, KEY, METRIC, PAIRS, RATIOS, NFIELDS };
static const char *const names[NFIELDS] = {"bench_version", "machine_id", "session", "key",
                                           "metric",        "pairs",      "ratios"};

typedef struct reader {
    pb_stored_pairs *out;
    pb_status status; /* the first failure; later input is ignored */
    size_t line, capacity;
    int field, column[PB_COLUMNS_MAX]; /* field of the current line; column -> index into names, or -1 */
    const char *text[NFIELDS];         /* interned fields of the current line; NULL: the line lacks the field */
} reader;

static void fail(reader *r, pb_status s, const char *what, const char *detail)
{
    if (r->status == PB_OK) r->status = pb_fail(s, "%s:%zu: %s%.100s", r->out->t.path, r->line, what, detail);
}

static void on_field(void *bytes, size_t n, void *self)
{
    reader *r = self;
    const char *text = bytes ? bytes : "";
    const int at = r->field++;
    if (at >= PB_COLUMNS_MAX) {
        fail(r, PB_EINVAL, "more than 256 columns", "");
    } else if (r->line == 1) {
        r->column[at] = -1;
        for (int i = 0; i < NFIELDS; i++)
            if (!strcmp(names[i], text)) r->column[at] = i;
    } else if (r->column[at] >= 0) {
        const char *kept = r->text[r->column[at]] = pb_intern(r->out->t.strings, text, n);
        if (!kept) fail(r, PB_ENOMEM, "out of memory", "");
    }
}

static void end_header(reader *r)
{
    for (int i = 0; i < NFIELDS; i++) {
        bool found = false;
        for (int c = 0; c < r->field; c++) found |= r->column[c] == i;
        if (!found) fail(r, PB_EINVAL, "the header lacks the column ", names[i]);
    }
    for (int c = r->field; c < PB_COLUMNS_MAX; c++) r->column[c] = -1;
}

static pb_status make_room(reader *r)
{
    pb_stored_pairs *s = r->out;
    if (s->t.n < r->capacity) return PB_OK;
    const size_t capacity = r->capacity ? 2 * r->capacity : 256;
    pb_row *rows = realloc(s->t.rows, capacity * sizeof *rows);
    if (rows) s->t.rows = rows;
    void *ratios = rows ? realloc(s->log_ratio, capacity * sizeof *s->log_ratio) : NULL;
    if (!ratios) return PB_ENOMEM;
    s->log_ratio = ratios;
    r->capacity = capacity;
    return PB_OK;
}

/* Reads the numbers of a row's ratios to d[0..PB_SIGN_FLIP_MAX). Returns their number; -1: not such a list. */
static int ratios_of(const char *text, double *d)
{
    int n = 0;
    for (char *end; *text; text = end) {
        const double x = strtod(text, &end);
        if (end == text || (*end && *end != ' ') || !isfinite(x) || n == PB_SIGN_FLIP_MAX) return -1;
        d[n++] = x;
    }
    return n;
}

static bool sorted(const pb_row *a, const pb_row *b)
{
    const int by_session = strcmp(a->run_id, b->run_id);
    return by_session < 0 || (!by_session && pb_series_order(a->key, a->metric, b->key, b->metric) < 0);
}

static void add_row(reader *r)
{
    pb_table *t = &r->out->t;
    for (int i = 0; i < NFIELDS; i++)
        if (!r->text[i]) fail(r, PB_EINVAL, "the line lacks the column ", names[i]);
    if (r->status == PB_OK && make_room(r) != PB_OK) fail(r, PB_ENOMEM, "out of memory", "");
    if (r->status != PB_OK) return;
    const pb_metric *m = pb_metric_find(r->text[METRIC]);
    if (!m) {
        fail(r, PB_EINVAL, "no such metric: ", r->text[METRIC]);
        return;
    }
    const int pairs = ratios_of(r->text[RATIOS], r->out->log_ratio[t->n]);
    if (pairs < 1 || strtol(r->text[PAIRS], NULL, 10) != pairs)
        fail(r, PB_EINVAL, "ratios is not a list of as many numbers as pairs says, 1 to 24: ", r->text[RATIOS]);
    t->rows[t->n] = (pb_row){.bench_version = r->text[VERSION],
                             .run_id = r->text[SESSION],
                             .machine_id = r->text[MACHINE],
                             .process = pairs,
                             .key = r->text[KEY],
                             .metric = m->name,
                             .unit = m->unit,
                             .better = m->better,
                             .value = (double)NAN,
                             .samples = 2,
                             .status = PB_ROW_OK,
                             .note = "",
                             .commit = ""};
    if (t->n && !sorted(&t->rows[t->n - 1], &t->rows[t->n]))
        fail(r, PB_EINVAL, "not sorted by session, key and metric, or a second row of ", r->text[KEY]);
    t->n++;
}

static void on_line(int terminator, void *self)
{
    reader *r = self;
    (void)terminator;
    if (r->status == PB_OK && r->line == 1) end_header(r);
    else if (r->status == PB_OK) add_row(r);
    memset(r->text, 0, sizeof r->text);
    r->field = 0;
    r->line++;
}

bool pb_stored_pairs_are(const char *path)
{
    FILE *f;
    char line[1024] = "";
    if (pb_file_read(path, &f) != PB_OK) return false;
    const bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    return read && strstr(line, ",ratios");
}

pb_status pb_stored_pairs_read(const char *path, pb_stored_pairs *out)
{
    reader r = {.out = out, .line = 1};
    FILE *f;
    *out = (pb_stored_pairs){.t.strings = pb_strings_new()};
    snprintf(out->t.path, sizeof out->t.path, "%s", path);
    pb_status s = out->t.strings ? pb_file_read(path, &f) : pb_fail(PB_ENOMEM, "%s: out of memory", path);
    if (s == PB_OK) {
        s = pb_csv_split(f, &(pb_csv_split_to){on_field, on_line, &r, path, &r.line, &r.status});
        if (r.status != PB_OK) s = r.status;
        fclose(f);
    }
    if (s != PB_OK) pb_stored_pairs_free(out);
    return s;
}

void pb_stored_pairs_free(pb_stored_pairs *s)
{
    pb_table_free(&s->t);
    free(s->log_ratio);
    s->log_ratio = NULL;
}
