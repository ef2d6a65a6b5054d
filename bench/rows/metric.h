/* metric.h - looks up what metrics.def defines: the unit and better direction of every metric, whether baselines store
 * it, the bounds of correctness metrics, and which metrics are exact counters or other counters. */
#ifndef PB_METRIC_H
#define PB_METRIC_H
#include <stdbool.h>

typedef struct pb_metric {
    const char *name, *unit, *better, *what; /* better: lower, higher or none */
    bool stored;                             /* baselines store it, even where it does not gate */
} pb_metric;
extern const pb_metric pb_metrics[];               /* in the order of metrics.def; ends with a NULL name */
const pb_metric *pb_metric_find(const char *name); /* NULL: no such metric */
/* True if baselines store the metric even where it does not gate. A metric that metrics.def does not have is stored. */
bool pb_metric_stored(const char *name);

typedef struct pb_metric_bound {
    const char *suite, *metric, *dtype; /* "*": any */
    bool relative;                      /* true: limits |value - base|/|base|; false: limits the value itself */
    double limit;
    const char *text; /* for messages: "the value exceeds the absolute bound 1e-2" */
} pb_metric_bound;
/* Returns the bound of a metric in the case with this key: the first bound in metrics.def that matches both. NULL: no
 * bound. */
const pb_metric_bound *pb_metric_bound_find(const char *key, const char *metric);
/* The bound that metrics.def gives this metric and dtype for every suite ("*"). NaN: no bound. */
double pb_metric_bound_of(const char *metric, const char *dtype);
/* True if x is within the bound. `base` is used by a relative bound only. False if x is NaN. */
bool pb_metric_bound_keeps(const pb_metric_bound *b, double base, double x);

/* An exact counter: a line EXACT of metrics.def, which explains the members. */
typedef enum pb_exact_depends {
    PB_EXACT_ON_NOTHING,
    PB_EXACT_ON_ISA,
    PB_EXACT_ON_THREADS,
    PB_EXACT_ON_BUILD,
    PB_EXACT_ON_GROUP,
    PB_EXACT_ON_NVCC
} pb_exact_depends;
typedef struct pb_exact_counter {
    const char *metric;
    bool listed;         /* a digest of a list; false: a larger number is worse */
    bool real;           /* not a count: the number may have a fraction */
    double slack, share; /* numbers that differ by at most slack + share * the smaller one count as equal */
    pb_exact_depends depends;
} pb_exact_counter;
/* True if two numbers of the counter count as equal: the members slack and share say when. */
bool pb_exact_same(const pb_exact_counter *x, double a, double b);
/* Returns the entry of an exact counter. NULL: the metric is not an exact counter. */
const pb_exact_counter *pb_exact_find(const char *metric);

/* The fraction of the base's value by which a counter may differ before a comparison reports it. -1: the metric is not
 * a counter. */
double pb_counter_share(const char *metric);

/* True if only cases of several ranks have the metric (OF_RANKS of metrics.def). */
bool pb_metric_of_ranks(const char *metric);

/* How many times larger than L2 the tensors of a call must be for this counter to have a value (LARGE of metrics.def).
 * 0: it always has. */
double pb_metric_large(const char *metric);
#endif
