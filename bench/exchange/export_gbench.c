/* export_gbench.c - writes google-benchmark's JSON: repetitions, their aggregates, and errors. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/exchange/export.h"
#include "bench/stats/stats.h"

/* A family of google-benchmark: one key and metric. */
typedef struct family {
    pb_export_page *p;
    size_t from, to;        /* rows of the key: [from, to) */
    size_t first, last;     /* rows of the metric: [first, last) */
    int index, repetitions; /* index: of this family in the file; repetitions: number of rows that have a time */
    char name[PB_KEY_TEXT + PB_AXIS_TEXT];
    json_t *all;
} family;

enum { MEAN, MEDIAN, STDDEV, CV, NAGGREGATES };
static const char *const aggregate_names[NAGGREGATES] = {"mean", "median", "stddev", "cv"};

/* Returns the mean, median, standard deviation or coefficient of variation of n >= 2 values, as `which` says. The
 * median sorts v. */
static double aggregate(int which, double *v, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    const double mean = sum / n;
    for (int i = 0; i < n; i++) squares += (v[i] - mean) * (v[i] - mean);
    const double stddev = sqrt(squares / (n - 1));
    return which == MEAN     ? mean
           : which == MEDIAN ? pb_median(v, n)
           : which == STDDEV ? stddev
           : mean != 0       ? stddev / mean
                             : 0;
}

static json_t *entry(const family *f, const char *run_type, const char *suffix)
{
    json_t *e = json_object();
    json_object_set_new(e, "name", json_sprintf("%s%s%s", f->name, *suffix ? "_" : "", suffix));
    json_object_set_new(e, "family_index", json_integer(f->index));
    json_object_set_new(e, "per_family_instance_index", json_integer(0));
    json_object_set_new(e, "run_name", json_string(f->name));
    json_object_set_new(e, "run_type", json_string(run_type));
    json_object_set_new(e, "repetitions", json_integer(f->repetitions));
    json_object_set_new(e, "threads", json_integer(1));
    if (*suffix) json_object_set_new(e, "aggregate_name", json_string(suffix));
    return e;
}

static void set_times(json_t *e, double value)
{
    json_object_set_new(e, "real_time", json_real(value));
    json_object_set_new(e, "cpu_time", json_real(value));
    json_object_set_new(e, "time_unit", json_string("ns"));
}

/* Returns the index after the last of the key's consecutive rows that begin with row `from` and have its metric. */
static size_t metric_end(const family *f, size_t from)
{
    size_t to = from + 1;
    while (to < f->to && f->p->row[to]->metric == f->p->row[from]->metric) to++;
    return to;
}

static bool is_time(const pb_row *r) { return !strcmp(r->unit, "s"); }

/* Finds the row of the same run and process as `process` among the rows [from, to) of one key and metric. NULL: no such
 * row. */
static const pb_row *of_process(const family *f, size_t from, size_t to, const pb_row *process)
{
    while (from < to) {
        size_t mid = from + (to - from) / 2;
        const pb_row *r = f->p->row[mid];
        int order = pb_process_order(r, process);
        if (!order) return r;
        if (order < 0) from = mid + 1;
        else to = mid;
    }
    return NULL;
}

static void set_counters(const family *f, const pb_row *process, json_t *e)
{
    for (size_t from = f->from, to; from < f->to; from = to) {
        to = metric_end(f, from);
        const pb_row *r = is_time(f->p->row[from]) ? NULL : of_process(f, from, to, process);
        if (!r || !pb_row_ok(r)) continue;
        json_object_set_new(e, r->metric, json_real(r->value));
        f->p->written++;
    }
}

static void add_repetitions(const family *f)
{
    int index = 0;
    for (size_t i = f->first; i < f->last; i++) {
        const pb_row *r = f->p->row[i];
        if (!pb_row_ok(r)) continue;
        json_t *e = entry(f, "iteration", "");
        json_object_set_new(e, "repetition_index", json_integer(index++));
        json_object_set_new(e, "iterations", json_integer(r->samples));
        set_times(e, pb_export_value(r->value, r->unit));
        set_counters(f, r, e);
        json_array_append_new(f->all, e);
        f->p->written++;
    }
}

/* Collects the values of a metric (rows [from, to)) from the processes that have a time in this family. Returns their
 * number. */
static int collect(const family *f, size_t from, size_t to, double *v)
{
    int n = 0;
    for (size_t i = f->first; i < f->last; i++) {
        const pb_row *r = pb_row_ok(f->p->row[i]) ? of_process(f, from, to, f->p->row[i]) : NULL;
        if (r && pb_row_ok(r)) v[n++] = pb_export_value(r->value, r->unit);
    }
    return n;
}

static void add_aggregate(const family *f, int which, double *v)
{
    json_t *e = entry(f, "aggregate", aggregate_names[which]);
    json_object_set_new(e, "aggregate_unit", json_string(which == CV ? "percentage" : "time"));
    json_object_set_new(e, "iterations", json_integer(f->repetitions));
    set_times(e, aggregate(which, v, collect(f, f->first, f->last, v)));
    for (size_t from = f->from, to; from < f->to; from = to) {
        to = metric_end(f, from);
        if (is_time(f->p->row[from])) continue;
        int n = collect(f, from, to, v);
        if (n > 1) json_object_set_new(e, f->p->row[from]->metric, json_real(aggregate(which, v, n)));
    }
    json_array_append_new(f->all, e);
}

static pb_status add_aggregates(const family *f)
{
    if (f->repetitions < 2) return PB_OK;
    double *v = malloc((f->last - f->first) * sizeof *v);
    if (!v) return pb_fail(PB_ENOMEM, "export: out of memory");
    for (int which = 0; which < NAGGREGATES; which++) add_aggregate(f, which, v);
    free(v);
    return PB_OK;
}

static void add_errors(const family *f)
{
    for (size_t i = f->first; i < f->last; i++) {
        const pb_row *r = f->p->row[i];
        if (pb_row_ok(r)) continue;
        json_t *e = entry(f, "aggregate", "error");
        json_object_set_new(e, "iterations", json_integer(0));
        json_object_set_new(e, "error_occurred", json_true());
        json_object_set_new(e, "error_message",
                            json_sprintf("%s%s%s", pb_row_status_name(r->status), *r->note ? ": " : "", r->note));
        json_array_append_new(f->all, e);
    }
}

/* True if the metric becomes a family: a time, or a metric with an error, which must be reported. */
static bool becomes_family(const family *f)
{
    for (size_t i = f->first; i < f->last; i++)
        if (is_time(f->p->row[i]) || !pb_row_ok(f->p->row[i])) return true;
    return false;
}

static pb_status add_key(pb_export_page *p, size_t from, size_t to, int *families, json_t *all)
{
    family f = {.p = p, .from = from, .to = to, .all = all};
    bool timed = false;
    for (f.first = from; f.first < to; f.first = f.last) {
        f.last = metric_end(&f, f.first);
        const pb_row *r = p->row[f.first];
        timed |= is_time(r);
        if (!becomes_family(&f)) continue;
        f.index = (*families)++;
        f.repetitions = 0;
        for (size_t i = f.first; i < f.last; i++) f.repetitions += is_time(r) && pb_row_ok(p->row[i]);
        snprintf(f.name, sizeof f.name, "%s/%s", r->key, r->metric);
        if (is_time(r)) add_repetitions(&f);
        if (is_time(r)) PB_TRY(add_aggregates(&f));
        add_errors(&f);
    }
    for (size_t i = from; i < to && !timed; i++)
        if (pb_row_ok(p->row[i])) pb_export_leave_out(p, "belong to cases without a time, which this format requires");
    return PB_OK;
}

static json_t *context(const pb_export_page *p)
{
    const pb_row *r = p->row[0];
    struct tm utc;
    char date[32];
    json_t *c = json_object();
    if (pb_export_time(r->run_id, &utc)) {
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S+00:00", &utc);
        json_object_set_new(c, "date", json_string(date));
    }
    json_object_set_new(c, "host_name", json_string(r->machine_id));
    json_object_set_new(c, "executable", json_string("bench"));
    json_object_set_new(c, "json_schema_version", json_integer(1));
    json_object_set_new(c, "bench_version", json_string(r->bench_version));
    json_object_set_new(c, "run_id", json_string(r->run_id));
    json_object_set_new(c, "cpu_time", json_string("repeats real_time: bench does not measure it"));
    return c;
}

pb_status pb_export_gbench(pb_export_page *p)
{
    pb_status s = PB_OK;
    int families = 0;
    if (!p->n) return PB_OK;
    json_t *root = json_object(), *all = json_array();
    json_object_set_new(root, "context", context(p));
    json_object_set_new(root, "benchmarks", all);
    for (size_t from = 0, to; from < p->n && s == PB_OK; from = to) {
        to = pb_export_key_end(p, from);
        s = add_key(p, from, to, &families, all);
    }
    if (s == PB_OK && json_dumpf(root, p->out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0)
        s = pb_fail(PB_ENOMEM, "export: out of memory");
    fputc('\n', p->out);
    json_decref(root);
    return s;
}
