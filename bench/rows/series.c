/* series.c - joins the rows of a table into series, after sorting them by key, metric, session and process. */
#include "bench/rows/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/metric.h"
#include "bench/stats/stats.h"

static int row_order(const void *a, const void *b)
{
    const pb_row *x = *(const pb_row *const *)a, *y = *(const pb_row *const *)b;
    if (x->key != y->key || x->metric != y->metric) return pb_series_order(x->key, x->metric, y->key, y->metric);
    if (x->run_id != y->run_id) return strcmp(x->run_id, y->run_id);
    return x->process < y->process ? -1 : x->process > y->process;
}

/* The median of the trends that the notes of n rows report. room: n doubles. */
static double trend_of(const pb_row *const *row, size_t n, double *room)
{
    for (size_t i = 0; i < n; i++) room[i] = pb_trend_of_note(row[i]->note);
    return pb_median(room, (int)n);
}

/* True if this row's status replaces s->status: its status is more severe, or the row is stored (rows are sorted by
 * session, so it is then of a newer session). */
static bool replaces_status(const pb_series *s, const pb_row *r)
{
    return pb_stored(r->run_id) || r->status > s->status;
}

static bool throttled(const pb_row *r) { return r->status == PB_ROW_THROTTLED; }

/* The first row that is not throttled; the first row if all are throttled. */
static const pb_row *first_of(const pb_row *const *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!throttled(row[i])) return row[i];
    return row[0];
}

/* The reason why the value of a row with status ok (or throttled) must be wrong; NULL: it may be right. Each row is
 * checked, because a median over processes would hide a single wrong value. */
static const char *refutation(const pb_row *r)
{
    const size_t n = strlen(r->unit);
    const bool time_or_rate = !strcmp(r->unit, "s") || (n > 2 && !strcmp(r->unit + n - 2, "/s"));
    if (!isfinite(r->value) || (r->status != PB_ROW_OK && !throttled(r))) return NULL;
    if (time_or_rate && strcmp(r->better, "none") != 0 && !(r->value > 0))
        return !strcmp(r->unit, "s") ? "a time that is not above zero" : "a rate that is not above zero";
    const pb_metric_bound *b = pb_metric_bound_find(r->key, r->metric);
    return b && !b->relative && !pb_metric_bound_keeps(b, 0, r->value) ? b->text : NULL;
}

/* Working arrays, each with as many elements as the table has rows, or more. */
typedef struct figures {
    double *all, *value; /* values of the series; values of the current session */
    pb_session *session; /* the first free element of the set's sessions */
    const pb_row *kept;  /* the table's first row of a kept session */
} figures;

/* Adds one row to the series. `r` is the series' first row that is not throttled; *mine and *all are the numbers of
 * values in f.value and f.all. */
static void count(pb_series *s, const pb_row *row, const pb_row *r, figures f, int *mine, int *all)
{
    const pb_row_class class = pb_row_class_of(row->status);
    s->mixed |= row->unit != r->unit || row->machine_id != r->machine_id || row->bench_version != r->bench_version ||
                row->better != r->better;
    if ((class == PB_ROW_FIGURE || class == PB_ROW_VERDICT) && isfinite(row->value)) {
        f.value[(*mine)++] = f.all[(*all)++] = row->value;
        s->processes += pb_stored(r->run_id) ? (int)row->process : 1;
    }
    if (!throttled(row) && replaces_status(s, row)) s->status = row->status, s->note = row->note;
}

/* Marks the series as wrong if any of its rows must be wrong. */
static void refute(pb_series *s, const pb_row *const *row, size_t n)
{
    for (size_t i = 0; i < n && !s->refuted; i++) {
        const char *why = refutation(row[i]);
        if (!why) continue;
        s->refuted = true;
        s->status = PB_ROW_WRONG;
        s->note = why;
    }
}

/* pb_series.scatter of n values, n >= 1. room: n doubles. */
static double scatter_of(const pb_series *s, const double *value, int n, double *room)
{
    for (int i = 0; i < n; i++) room[i] = value[i] > 0 ? log(value[i]) : (double)NAN;
    const pb_sample logs = pb_sample_of(room, n);
    return s->sessions > 1 || pb_stored(s->run_id) || isinf(logs.sd) ? (double)NAN : logs.sd * logs.sd;
}

/* Joins row[0..n), which have one key and metric and are sorted by session. Fills the first `sessions` elements of
 * f.session. */
static pb_series join(const pb_row *const *row, size_t n, figures f)
{
    const pb_row *r = first_of(row, n);
    const double none = (double)NAN;
    pb_series s = {.key = r->key,
                   .metric = r->metric,
                   .unit = r->unit,
                   .better = r->better,
                   .machine_id = r->machine_id,
                   .host = r->host,
                   .bench_version = r->bench_version,
                   .run_id = row[0]->run_id,
                   .status = r->status,
                   .note = r->note,
                   .session = f.session,
                   .median = none,
                   .min = none,
                   .max = none,
                   .scatter = none};
    int figures_n = 0, mine = 0; /* values of the series; of the current session */
    s.trend = trend_of(row, n, f.all);
    for (size_t i = 0; i < n; i++) {
        const bool left_out = throttled(row[i]) && !throttled(r);
        s.throttled += left_out;
        if (!left_out) count(&s, row[i], r, f, &mine, &figures_n);
        if (!mine || (i + 1 < n && row[i + 1]->run_id == row[i]->run_id)) continue;
        f.session[s.sessions++] =
            (pb_session){row[i]->run_id, pb_median(f.value, mine), row[i]->host, row[i] >= f.kept};
        mine = 0;
    }
    refute(&s, row, n);
    if (!figures_n) return s;
    s.scatter = scatter_of(&s, f.all, figures_n, f.value);
    s.median = pb_median(f.all, figures_n); /* also sorts f.all */
    s.min = f.all[0];
    s.max = f.all[figures_n - 1];
    return s;
}

static pb_status check_stored(const pb_table *t, const pb_row *const *row, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (row[i]->run_id == row[i - 1]->run_id && pb_stored(row[i]->run_id))
            return pb_fail(PB_EINVAL, "%s: session %s has two rows of %s %s", t->path,
                           row[i]->run_id + strlen(PB_BASELINE_RUN), row[i]->key, row[i]->metric);
    return PB_OK;
}

static pb_status fill(const pb_table *t, const pb_row **rows, figures f, pb_series_set *out)
{
    const size_t n = t->n;
    for (size_t i = 0; i < n; i++) rows[i] = &t->rows[i];
    if (n) qsort(rows, n, sizeof *rows, row_order);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && rows[end]->key == rows[i]->key && rows[end]->metric == rows[i]->metric;) end++;
        PB_TRY(check_stored(t, rows + i, end - i));
        out->s[out->n] = join(rows + i, end - i, f);
        f.session += out->s[out->n++].sessions;
    }
    return PB_OK;
}

static bool is_control(const pb_series *s)
{
    return pb_row_class_of(s->status) != PB_ROW_BROKEN && pb_key_is_control(s->key);
}

/* Moves the series of control cases after the others, without changing the order of either. */
static pb_status part_controls(pb_series_set *set)
{
    size_t kept = 0, controls = 0;
    for (size_t i = 0; i < set->n; i++) controls += is_control(&set->s[i]);
    if (!controls) return PB_OK;
    pb_series *moved = malloc(controls * sizeof *moved);
    if (!moved) return pb_fail(PB_ENOMEM, "out of memory for %zu series", controls);
    for (size_t i = 0; i < set->n; i++) {
        if (is_control(&set->s[i])) moved[set->controls++] = set->s[i];
        else set->s[kept++] = set->s[i];
    }
    memcpy(set->s + kept, moved, controls * sizeof *moved);
    free(moved);
    set->n = kept;
    return PB_OK;
}

pb_status pb_series_make(const pb_table *t, pb_series_set *out)
{
    const pb_row **rows = malloc((t->n + 1) * sizeof *rows);
    figures f = {malloc((t->n + 1) * sizeof *f.all), malloc((t->n + 1) * sizeof *f.value),
                 malloc((t->n + 1) * sizeof *f.session), t->n ? t->rows + (t->n - t->kept) : NULL};
    *out = (pb_series_set){.s = malloc((t->n + 1) * sizeof *out->s), .sessions = f.session};
    pb_status s = rows && f.all && f.value && f.session && out->s
                      ? fill(t, rows, f, out)
                      : pb_fail(PB_ENOMEM, "%s: out of memory for %zu rows", t->path, t->n);
    if (s == PB_OK) s = part_controls(out);
    free(rows);
    free(f.all);
    free(f.value);
    if (s != PB_OK) pb_series_free(out);
    return s;
}

void pb_series_free(pb_series_set *set)
{
    free(set->s);
    free(set->sessions);
    *set = (pb_series_set){0};
}

static const pb_series *find_in(const pb_series *s, size_t n, const char *key, const char *metric)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = pb_series_order(s[mid].key, s[mid].metric, key, metric);
        if (c == 0) return &s[mid];
        if (c < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

const pb_series *pb_series_find(const pb_series_set *set, const char *key, const char *metric)
{
    return find_in(set->s, set->n, key, metric);
}

const pb_series *pb_series_find_control(const pb_series_set *set, const char *key, const char *metric)
{
    return set->controls ? find_in(set->s + set->n, set->controls, key, metric) : NULL;
}

size_t pb_suite_end(const pb_series_set *set, size_t from)
{
    size_t n = pb_suite_length(set->s[from].key), to = from;
    while (to < set->n && pb_suite_length(set->s[to].key) == n && !strncmp(set->s[to].key, set->s[from].key, n)) to++;
    return to;
}

const char *pb_newest_session(const pb_series_set *set, size_t from, size_t to, const char *key)
{
    const char *newest = "";
    for (size_t i = from; i < to; i++) {
        const pb_series *s = &set->s[i];
        int n = pb_key_same_ranks(s->key, key) ? s->sessions : 0;
        while (n && s->session[n - 1].kept) n--;
        const char *last = n ? s->session[n - 1].run_id : "";
        if (last != newest && strcmp(last, newest) > 0) newest = last;
    }
    return newest;
}
