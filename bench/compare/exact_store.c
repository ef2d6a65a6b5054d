/* exact_store.c - reads and writes baselines/exact/<suite>.csv. */
#include "bench/compare/session_file.h"
#include "bench/compare/exact_rule.h"
#include "bench/compare/exact_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SUITES = 32 };
#define FOLDER "exact"

/* ---- reading the stored counters of a suite -------------------------------------------------------- */

/* Moves the rows that are comparable under `key` to the front, and returns their number. */
static size_t partition(pb_table *t, const pb_exact_key *key)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const char *own = pb_exact_key_for(key, t->rows[i].metric);
        if (!own || strcmp(own, t->rows[i].machine_id) != 0) continue;
        const pb_row r = t->rows[n];
        t->rows[n++] = t->rows[i];
        t->rows[i] = r;
    }
    return n;
}

/* Keeps one row of each case and metric, whatever its exact key, and returns their number. */
static size_t one_each(pb_row *rows, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool have = false;
        for (size_t k = kept; k-- > 0 && !have;) have = rows[k].key == rows[i].key && rows[k].metric == rows[i].metric;
        if (!have) rows[kept++] = rows[i];
    }
    return kept;
}

pb_status pb_exact_store_read(const char *baselines, const char *suite, const pb_exact_key *key, pb_exact_store *out)
{
    memset(out, 0, sizeof *out);
    PB_TRY(pb_baseline_path(pb_baseline_folder(baselines), FOLDER, suite, out->path, sizeof out->path));
    if (access(out->path, F_OK) != 0) return PB_OK;
    PB_TRY(pb_table_read(out->path, &out->t));
    const size_t same = partition(&out->t, key);
    pb_table part = out->t;
    part.n = same;
    PB_TRY(pb_series_make(&part, &out->same));
    part.rows = out->t.rows + same;
    part.n = one_each(part.rows, out->t.n - same);
    return pb_series_make(&part, &out->other);
}

void pb_exact_store_free(pb_exact_store *s)
{
    pb_series_free(&s->same);
    pb_series_free(&s->other);
    pb_table_free(&s->t);
}

/* ---- storing the counters of a run ----------------------------------------------------------------- */

typedef struct storing {
    pb_table run, old;
    pb_series_set set;
    pb_exact_key key;
    char run_id[PB_KEY_TEXT];
    const char *reason;
    pb_row *rows; /* [n]: the rows of the new file */
    size_t n;
    int added, changed;
} storing;

static int file_order(const void *a, const void *b)
{
    const pb_row *x = a, *y = b;
    const int by_key = strcmp(x->machine_id, y->machine_id);
    return by_key ? by_key : pb_series_order(x->key, x->metric, y->key, y->metric);
}

/* Returns the row of the new file with the exact key, key and metric of `r`. NULL: the file has no such row. */
static pb_row *row_like(storing *s, const pb_row *r)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->rows[i].machine_id, r->machine_id) && !strcmp(s->rows[i].key, r->key) &&
            !strcmp(s->rows[i].metric, r->metric))
            return &s->rows[i];
    return NULL;
}

static void put(storing *s, const pb_row *r, FILE *out)
{
    pb_row *old = row_like(s, r);
    if (!old) {
        s->added++;
        s->rows[s->n++] = *r;
    } else if (!pb_exact_same(pb_exact_find(r->metric), old->value, r->value) ||
               strcmp(old->bench_version, r->bench_version) != 0) {
        s->changed++;
        fprintf(out, "%s of %s: %.15g -> %.15g\n", r->metric, r->key, old->value, r->value);
        *old = *r;
    }
}

static pb_status put_counter(storing *s, const pb_series *c, FILE *out)
{
    const pb_exact_counter *x = pb_exact_find(c->metric);
    const char *key = pb_exact_key_for(&s->key, c->metric);
    if (!key) return pb_fail(PB_EINVAL, "%s: its run.json does not say what the counters depend on", s->run.path);
    /* The rows of a throttled process count too, because throttling and other work change no counter. */
    if (!(pb_series_ok(c) || pb_series_throttled(c)) || !isfinite(c->median))
        return pb_fail(PB_EINVAL, "%s: cannot be stored: %s of %s is %s", s->run.path, c->metric, c->key,
                       pb_row_status_name(c->status));
    put(s,
        &(pb_row){.bench_version = c->bench_version,
                  .run_id = s->run_id,
                  .machine_id = key,
                  .process = c->processes,
                  .key = c->key,
                  .metric = c->metric,
                  .unit = c->unit,
                  .better = c->better,
                  .value = c->median,
                  .status = PB_ROW_OK,
                  .note = x->listed ? c->note : s->reason,
                  .commit = s->run.rows[0].commit},
        out);
    return PB_OK;
}

/* Counters of one kind that are not stored: how many, and one of them. */
typedef struct left_out {
    const char *why;
    int n;
    const pb_series *one;
} left_out;

static void report(const left_out *l, FILE *out)
{
    if (l->n)
        fprintf(out, "not stored: %d counter%s %s, such as %s of %s\n", l->n, l->n == 1 ? "" : "s", l->why,
                l->one->metric, l->one->key);
}

/* True if the number differs between processes, or between the calls of a process: then a count is a mean, and not
 * whole. A counter whose calls may differ a little (metrics.def) is the median of its calls, which may lie between
 * two of them. */
static bool varies(const pb_series *c)
{
    const pb_exact_counter *x = pb_exact_find(c->metric);
    const bool whole = !x->real && !(x->slack > 0) && !(x->share > 0);
    return pb_exact_number_of(c, x).varies || (whole && c->median != floor(c->median));
}

/* Puts the run's counters of the suite into the new file, except those that the run could not count here and those that
 * are not the same in every process: it prints how many. *counters: how many the suite has. */
static pb_status put_counters(storing *s, const char *suite, int *counters, FILE *out)
{
    left_out uncounted = {.why = "that the run could not count"},
             varying = {.why = "with different numbers in different calls"};
    for (size_t i = 0; i < s->set.n; i++) {
        const pb_series *c = &s->set.s[i];
        if (!pb_exact_find(c->metric) || !pb_key_of(c->key, suite)) continue;
        left_out *l = c->status == PB_ROW_UNSUPPORTED ? &uncounted : varies(c) ? &varying : NULL;
        ++*counters;
        if (!l) PB_TRY(put_counter(s, c, out));
        else l->n++, l->one = c;
    }
    report(&uncounted, out);
    report(&varying, out);
    return PB_OK;
}

static pb_status store_suite(storing *s, const char *suite, const pb_baseline_opts *o, FILE *out)
{
    char path[PB_PATH_TEXT];
    PB_TRY(pb_baseline_path(pb_baseline_folder(o->baselines), FOLDER, suite, path, sizeof path));
    if (access(path, F_OK) == 0) PB_TRY(pb_table_read(path, &s->old));
    s->rows = malloc((s->old.n + s->set.n + 1) * sizeof *s->rows);
    if (!s->rows) return pb_fail(PB_ENOMEM, "baseline: out of memory");
    if (s->old.n) memcpy(s->rows, s->old.rows, s->old.n * sizeof *s->rows);
    s->n = s->old.n;
    int counters = 0;
    PB_TRY(put_counters(s, suite, &counters, out));
    if (!counters) return pb_fail(PB_EINVAL, "%s: suite %s has no exact counters", s->run.path, suite);
    qsort(s->rows, s->n, sizeof *s->rows, file_order);
    PB_TRY(pb_baseline_write(pb_baseline_folder(o->baselines), FOLDER, path, s->rows, s->n));
    fprintf(out, "saved %s: %d counters from %s, %d of them new, %d changed\n", path, counters, s->run.path, s->added,
            s->changed);
    return PB_OK;
}

/* Stores the counters of every suite. The caller holds the lock of the baselines. */
static pb_status store(storing *s, const pb_baseline_opts *o, FILE *out)
{
    char suites[MAX_SUITES][PB_AXIS_TEXT];
    if (!s->run.n) return pb_fail(PB_EINVAL, "%s: has a header but no rows", s->run.path);
    pb_exact_key_of(s->run.path, s->run.rows[0].machine_id, &s->key);
    snprintf(s->run_id, sizeof s->run_id, "%s%s", PB_BASELINE_RUN, s->run.rows[0].run_id);
    const int n = pb_baseline_suites(&s->set, suites, MAX_SUITES);
    if (!n) return pb_fail(PB_EINVAL, "%s: the run has no suite that a baseline can store", s->run.path);
    for (int i = 0; i < n; i++) {
        const pb_status st = store_suite(s, suites[i], o, out);
        free(s->rows);
        s->rows = NULL;
        pb_table_free(&s->old);
        memset(&s->old, 0, sizeof s->old);
        PB_TRY(st);
    }
    return PB_OK;
}

pb_exit pb_baseline_counters(const char *run, const pb_baseline_opts *o, FILE *out)
{
    char newest[PB_PATH_TEXT];
    int lock = -1;
    if (!o->reason || !*o->reason)
        return pb_file_exit(pb_fail(PB_EINVAL, "baseline counters: a reason is required: --reason TEXT"));
    storing *s = calloc(1, sizeof *s);
    if (!s) return pb_file_exit(pb_fail(PB_ENOMEM, "baseline: out of memory"));
    s->reason = o->reason;
    pb_status st = run ? PB_OK : pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest);
    if (st == PB_OK) st = pb_table_read(run ? run : newest, &s->run);
    if (st == PB_OK) st = pb_series_make(&s->run, &s->set);
    if (st == PB_OK) st = pb_session_lock(pb_baseline_folder(o->baselines), &lock);
    if (st == PB_OK) st = store(s, o, out);
    if (lock >= 0) close(lock);
    pb_series_free(&s->set);
    pb_table_free(&s->run);
    free(s);
    return pb_file_exit(st);
}
