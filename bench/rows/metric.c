/* metric.c - the tables made from metrics.def: all metrics, the bounds beyond which a correctness metric makes its row
 * wrong, the exact counters and the other counters. */
#include "bench/rows/metric.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { absolute, relative }; /* the values of `kind` in metrics.def */
enum { drop, keep };         /* the values of `stored` */

const pb_metric pb_metrics[] = {
#define METRIC(name, unit, better, stored, what) {#name, unit, #better, what, (stored) == keep},
#include "bench/rows/metrics.def"
    {NULL, NULL, NULL, NULL, false},
};

static const pb_metric_bound bounds[] = {
#define BOUND(metric, suite, dtype, kind, limit, why)                                                                  \
    {suite, #metric, dtype, (kind) == relative, limit, "the value exceeds the " #kind " bound " #limit},
#include "bench/rows/metrics.def"
};

enum { fewer, listed, lower };                      /* the values of `rule` */
enum { nothing, isa, threads, build, group, nvcc }; /* the values of `depends`, in the order of pb_exact_depends */
static const pb_exact_counter exact[] = {
#define EXACT(metric, rule, slack, share, depends)                                                                     \
    {#metric, (rule) == listed, (rule) == lower, slack, share, (pb_exact_depends)(depends)},
#include "bench/rows/metrics.def"
};

static const struct counter {
    const char *metric;
    double share;
} counters[] = {
#define COUNTER(metric, share) {#metric, share},
#include "bench/rows/metrics.def"
};

static const struct large {
    const char *metric;
    double times;
} larges[] = {
#define LARGE(metric, times) {#metric, times},
#include "bench/rows/metrics.def"
};

static const char *const of_ranks[] = {
#define OF_RANKS(metric) #metric,
#include "bench/rows/metrics.def"
};

const pb_metric *pb_metric_find(const char *name)
{
    for (const pb_metric *m = pb_metrics; m->name; m++)
        if (!strcmp(m->name, name)) return m;
    return NULL;
}

bool pb_metric_stored(const char *name)
{
    const pb_metric *m = pb_metric_find(name);
    return !m || m->stored;
}

/* True if `pattern` is "*" or equal to text[0..n). */
static bool matches(const char *pattern, const char *text, size_t n)
{
    return !strcmp(pattern, "*") || (strlen(pattern) == n && !strncmp(pattern, text, n));
}

static const pb_metric_bound *find(const char *suite, size_t n, const char *dtype, size_t m, const char *metric)
{
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (!strcmp(bounds[i].metric, metric) && matches(bounds[i].suite, suite, n) &&
            matches(bounds[i].dtype, dtype, m))
            return &bounds[i];
    return NULL;
}

const pb_metric_bound *pb_metric_bound_find(const char *key, const char *metric)
{
    static const char axis[] = "dtype=";
    const char *at = strchr(key, '?');
    while (at && strncmp(at + 1, axis, sizeof axis - 1) != 0) at = strchr(at + 1, '&');
    const char *dtype = at ? at + sizeof axis : "";
    return find(key, strcspn(key, "/"), dtype, strcspn(dtype, "&"), metric);
}

double pb_metric_bound_of(const char *metric, const char *dtype)
{
    const pb_metric_bound *b = find("", 0, dtype, strlen(dtype), metric);
    return b ? b->limit : (double)NAN;
}

bool pb_metric_bound_keeps(const pb_metric_bound *b, double base, double x)
{
    return b->relative ? fabs(x - base) <= b->limit * fabs(base) : x <= b->limit;
}

bool pb_exact_same(const pb_exact_counter *x, double a, double b)
{
    return fabs(a - b) <= x->slack + x->share * fmin(a, b);
}

const pb_exact_counter *pb_exact_find(const char *metric)
{
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (!strcmp(exact[i].metric, metric)) return &exact[i];
    return NULL;
}

double pb_counter_share(const char *metric)
{
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (!strcmp(counters[i].metric, metric)) return counters[i].share;
    return -1;
}

double pb_metric_large(const char *metric)
{
    for (size_t i = 0; i < sizeof larges / sizeof *larges; i++)
        if (!strcmp(larges[i].metric, metric)) return larges[i].times;
    return 0;
}

bool pb_metric_of_ranks(const char *metric)
{
    for (size_t i = 0; i < sizeof of_ranks / sizeof *of_ranks; i++)
        if (!strcmp(of_ranks[i], metric)) return true;
    return false;
}
