/* series.c - joins the rows of a table over launches, by one sort. */
#include "bench/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int row_order(const void *a, const void *b)
{
    const pb_row *x = *(const pb_row *const *)a, *y = *(const pb_row *const *)b;
    if (x->key != y->key || x->metric != y->metric) return pb_series_order(x->key, x->metric, y->key, y->metric);
    if (x->run_id != y->run_id) return strcmp(x->run_id, y->run_id);
    return x->launch < y->launch ? -1 : x->launch > y->launch;
}

/* Joins row[0..n), all of one key and metric; `value` is room for n. */
static pb_series join(const pb_row *const *row, size_t n, double *value)
{
    const pb_row *r = row[0];
    pb_series s = {
        r->key, r->metric, r->unit, r->better, r->machine_id, r->bench_version, r->run_id, r->status, r->note, false,
        0,      NAN,       NAN,     NAN};
    for (size_t i = 0; i < n; i++) {
        s.mixed |= row[i]->unit != r->unit || row[i]->machine_id != r->machine_id ||
                   row[i]->bench_version != r->bench_version || row[i]->better != r->better;
        if (!strcmp(row[i]->status, "ok")) {
            value[s.launches++] = row[i]->value;
        } else if (pb_series_ok(&s)) {
            s.status = row[i]->status;
            s.note = row[i]->note;
        }
    }
    if (s.launches) {
        s.median = pb_median(value, s.launches); /* which sorts them */
        s.min = value[0];
        s.max = value[s.launches - 1];
        if (!strncmp(r->run_id, PB_BASELINE_RUN, strlen(PB_BASELINE_RUN)) && n == 1) s.launches = (int)r->launch;
    } else if (n && !strcmp(s.metric, "contract")) {
        s.median = s.min = s.max = r->value; /* pass and fail carry the figure that was bounded */
    }
    return s;
}

static pb_status fill(const pb_row **rows, double *values, size_t n, pb_series_set *out)
{
    qsort(rows, n, sizeof *rows, row_order);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && rows[end]->key == rows[i]->key && rows[end]->metric == rows[i]->metric;) end++;
        out->s[out->n++] = join(rows + i, end - i, values);
    }
    return PB_OK;
}

pb_status pb_series_make(const pb_table *t, pb_series_set *out)
{
    const pb_row **rows = malloc((t->n + 1) * sizeof *rows);
    double *values = malloc((t->n + 1) * sizeof *values);
    *out = (pb_series_set){malloc((t->n + 1) * sizeof *out->s), 0};
    pb_status s = PB_ENOMEM;
    if (rows && values && out->s) {
        for (size_t i = 0; i < t->n; i++) rows[i] = &t->rows[i];
        s = fill(rows, values, t->n, out);
    }
    free(rows);
    free(values);
    if (s == PB_OK) return s;
    pb_series_free(out);
    return pb_fail(s, "%s: out of memory for %zu rows", t->path, t->n);
}

void pb_series_free(pb_series_set *set)
{
    free(set->s);
    *set = (pb_series_set){NULL, 0};
}

const pb_series *pb_series_find(const pb_series_set *set, const char *key, const char *metric)
{
    size_t lo = 0, hi = set->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = pb_series_order(set->s[mid].key, set->s[mid].metric, key, metric);
        if (c == 0) return &set->s[mid];
        if (c < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}
