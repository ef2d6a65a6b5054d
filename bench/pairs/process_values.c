/* process_values.c - reads samples.csv next to a results table. The samples of one row are contiguous in the file, so
 * only one row's samples are in memory at a time, however large the file is. */
#include "bench/pairs/process_values.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/measure/measure.h"
#include "bench/rows/rows.h"
#include "bench/stats/stats.h"
#include "os/file.h"

enum { RUN, PROCESS, KEY, METRIC, INDEX, VALUE, NFIELDS };
static const char *const header[NFIELDS] = {"run_id", "process", "key", "metric", "index", "value"};

typedef struct reader {
    const char *path;
    pb_process_values *out;
    const pb_row **sorted; /* the table's rows, sorted by row_order() */
    bool renamed;          /* the file has the names of bench_version 1 (renames.h) */
    bool *seen;            /* [t.n] rows whose samples were read already */
    pb_status status;
    size_t line;
    int field;
    char text[NFIELDS][PB_KEY_TEXT];
    char group[4][PB_KEY_TEXT]; /* run id, process, key and metric of the samples being collected */
    const pb_row *row;          /* the row they belong to; NULL: no such row, so they are ignored */
    double sample[PB_MAX_SAMPLES], work[PB_MAX_SAMPLES];
    int n;
} reader;

static void fail(reader *r, pb_status s, const char *what, const char *detail)
{
    if (r->status == PB_OK) r->status = pb_fail(s, "%s:%zu: %s%.100s", r->path, r->line, what, detail);
}

static int row_order(const void *a, const void *b)
{
    const pb_row *x = *(const pb_row *const *)a, *y = *(const pb_row *const *)b;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    int by_series = pb_series_order(x->key, x->metric, y->key, y->metric);
    return by_series ? by_series : strcmp(x->run_id, y->run_id);
}

static const pb_row *row_of_group(const reader *r, const char *key, const char *metric)
{
    const pb_row wanted = {
        .run_id = r->group[RUN], .process = strtoll(r->group[PROCESS], NULL, 10), .key = key, .metric = metric};
    const pb_row *at = &wanted;
    const pb_row **found = bsearch(&at, r->sorted, r->out->t.n, sizeof *r->sorted, row_order);
    return found ? *found : NULL;
}

static void end_group(reader *r)
{
    if (!r->n || !r->row || r->status != PB_OK) return;
    size_t at = (size_t)(r->row - r->out->t.rows);
    if (!isnan(r->out->log_value[at]) && pb_log_median(r->sample, r->n, 1, r->work, &r->out->log_value[at]) != PB_OK)
        fail(r, PB_EINVAL, "a sample above this line is not a positive number: ", r->row->key);
}

static void begin_group(reader *r)
{
    end_group(r);
    memcpy(r->group, r->text, sizeof r->group);
    r->n = 0;
    char key[PB_KEY_TEXT], metric[PB_KEY_TEXT];
    snprintf(metric, sizeof metric, "%s", r->renamed ? pb_renamed_metric(r->text[METRIC]) : r->text[METRIC]);
    if (!r->renamed || pb_renamed_key(r->text[KEY], key) != PB_OK) snprintf(key, sizeof key, "%s", r->text[KEY]);
    r->row = row_of_group(r, key, metric);
    if (!r->row) return;
    bool *seen = &r->seen[r->row - r->out->t.rows];
    if (*seen) fail(r, PB_EINVAL, "the samples of a row are not contiguous: ", r->row->key);
    *seen = true;
}

static void on_field(void *bytes, size_t n, void *self)
{
    reader *r = self;
    if (r->field < NFIELDS) {
        if (n >= PB_KEY_TEXT) fail(r, PB_EINVAL, "a field is too long in the column ", header[r->field]);
        else snprintf(r->text[r->field], PB_KEY_TEXT, "%s", bytes ? (const char *)bytes : "");
    }
    r->field++;
}

static void sample_line(reader *r)
{
    char *end;
    if (!r->n || strcmp(r->group[METRIC], r->text[METRIC]) != 0 || strcmp(r->group[KEY], r->text[KEY]) != 0 ||
        strcmp(r->group[PROCESS], r->text[PROCESS]) != 0 || strcmp(r->group[RUN], r->text[RUN]) != 0)
        begin_group(r);
    if (r->n == PB_MAX_SAMPLES) {
        fail(r, PB_EINVAL, "more than 1024 samples of ", r->text[KEY]);
        return;
    }
    r->sample[r->n] = strtod(r->text[VALUE], &end);
    if (end == r->text[VALUE] || *end) r->sample[r->n] = (double)NAN;
    r->n++;
}

static void on_line(int terminator, void *self)
{
    reader *r = self;
    (void)terminator;
    if (r->status != PB_OK) return;
    if (r->field != NFIELDS) {
        fail(r, PB_EINVAL, "a line must have six fields: run_id,process,key,metric,index,value", "");
    } else if (r->line == 1) {
        r->renamed = strcmp(r->text[PROCESS], header[PROCESS]) != 0;
        for (int i = 0; i < NFIELDS; i++)
            if (strcmp(pb_renamed_column(r->text[i]), header[i]) != 0)
                fail(r, PB_EINVAL, "the header lacks the column ", header[i]);
    } else {
        sample_line(r);
    }
    r->field = 0;
    r->line++;
}

static pb_status parse(reader *r, FILE *f)
{
    const pb_status s = pb_csv_split(f, &(pb_csv_split_to){on_field, on_line, r, r->path, &r->line, &r->status});
    if (r->status == PB_OK) r->status = s;
    if (r->line == 1) fail(r, PB_EINVAL, "the file has no header line", "");
    end_group(r);
    return r->status;
}

static pb_status read_samples(const char *path, FILE *f, pb_process_values *out)
{
    const size_t n = out->t.n;
    reader *r = calloc(1, sizeof *r); /* about 20 KB, too large for the stack */
    pb_status s = PB_ENOMEM;
    if (r) {
        *r = (reader){.path = path, .out = out, .line = 1};
        r->sorted = malloc((n + 1) * sizeof *r->sorted);
        r->seen = calloc(n + 1, sizeof *r->seen);
    }
    if (r && r->sorted && r->seen) {
        for (size_t i = 0; i < n; i++) r->sorted[i] = &out->t.rows[i];
        qsort(r->sorted, n, sizeof *r->sorted, row_order);
        s = parse(r, f);
    } else {
        pb_fail(s, "%s: out of memory", path);
    }
    if (r) {
        free(r->sorted);
        free(r->seen);
    }
    free(r);
    return s;
}

/* Reads samples.csv of the run folder `path`. Does nothing if `path` is not a folder, or if the folder has no
 * samples.csv and `needed` is false. */
static pb_status add_samples_of(const char *path, bool needed, pb_process_values *out)
{
    char file[PB_PATH_TEXT];
    struct stat st;
    FILE *f;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return PB_OK;
    if (snprintf(file, sizeof file, "%s/samples.csv", path) >= (int)sizeof file)
        return pb_fail(PB_EINVAL, "%.60s...: the path is too long", path);
    if (!needed && stat(file, &st) != 0 && errno == ENOENT) return PB_OK;
    PB_TRY(pb_file_read(file, &f));
    pb_status s = read_samples(file, f, out);
    fclose(f);
    return s;
}

/* Removes the rows of control cases. Runs of a single program, which --simulate reads, have such rows; comparisons by
 * pairs have none. */
static void drop_controls(pb_table *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++)
        if (!pb_key_is_control(t->rows[i].key)) t->rows[kept++] = t->rows[i];
    t->n = kept;
}

pb_status pb_process_values_read(const char *path, bool samples, pb_process_values *out)
{
    *out = (pb_process_values){0};
    PB_TRY(pb_table_read(path, &out->t));
    drop_controls(&out->t);
    out->log_value = malloc((out->t.n + 1) * sizeof *out->log_value);
    pb_status s = out->log_value ? PB_OK : pb_fail(PB_ENOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < out->t.n && s == PB_OK; i++) {
        const pb_row *r = &out->t.rows[i];
        out->log_value[i] = r->status == PB_ROW_OK && r->value >= 0 ? log(r->value) : (double)NAN;
    }
    if (s == PB_OK) s = add_samples_of(path, samples, out);
    if (s != PB_OK) pb_process_values_free(out);
    return s;
}

void pb_process_values_free(pb_process_values *v)
{
    pb_table_free(&v->t);
    free(v->log_value);
    v->log_value = NULL;
}
