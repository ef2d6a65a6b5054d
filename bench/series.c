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

/* Of several launches the worst speaks for all. */
static int badness(const char *status)
{
    static const char *const order[] = {"ok", "pass", "unsupported", "truncated", "failed", "wrong", "fail"};
    int i = 0;
    while (i < 6 && strcmp(order[i], status) != 0) i++;
    return i;
}

static bool throttled(const pb_row *r) { return strcmp(r->status, "throttled") == 0; }

/* The first that counts: a throttled one only where there is no other. */
static const pb_row *first_of(const pb_row *const *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!throttled(row[i])) return row[i];
    return row[0];
}

/* Joins row[0..n), all of one key and metric; `value` is room for n. */
static pb_series join(const pb_row *const *row, size_t n, double *value)
{
    const pb_row *r = first_of(row, n);
    const double none = (double)NAN;
    pb_series s = {.key = r->key,
                   .metric = r->metric,
                   .unit = r->unit,
                   .better = r->better,
                   .machine_id = r->machine_id,
                   .bench_version = r->bench_version,
                   .run_id = row[0]->run_id,
                   .status = r->status,
                   .note = r->note,
                   .median = none,
                   .min = none,
                   .max = none};
    for (size_t i = 0; i < n; i++) {
        int bad = throttled(row[i]) ? 0 : badness(row[i]->status);
        if (throttled(row[i]) && !throttled(r)) {
            s.throttled++;
            continue;
        }
        s.mixed |= row[i]->unit != r->unit || row[i]->machine_id != r->machine_id ||
                   row[i]->bench_version != r->bench_version || row[i]->better != r->better;
        if ((bad < 2 || bad == 6) && isfinite(row[i]->value)) value[s.launches++] = row[i]->value;
        if (throttled(row[i]) || bad <= badness(s.status)) continue;
        s.status = row[i]->status;
        s.note = row[i]->note;
    }
    if (!s.launches) return s;
    s.median = pb_median(value, s.launches); /* which sorts them */
    s.min = value[0];
    s.max = value[s.launches - 1];
    if (n == 1 && !strncmp(r->run_id, PB_BASELINE_RUN, strlen(PB_BASELINE_RUN))) s.launches = (int)r->launch;
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

size_t pb_suite_end(const pb_series_set *set, size_t from)
{
    size_t n = pb_suite_length(set->s[from].key), to = from;
    while (to < set->n && pb_suite_length(set->s[to].key) == n && !strncmp(set->s[to].key, set->s[from].key, n)) to++;
    return to;
}
