/* metric.h - what metrics.def says, to look up: the unit and the better direction of every metric, the bounds of those
 * that tell right from wrong, and which are counters. */
#ifndef PB_METRIC_H
#define PB_METRIC_H
#include <stdbool.h>

typedef struct pb_metric {
    const char *name, *unit, *better, *what; /* better: lower, higher or none */
} pb_metric;
extern const pb_metric pb_metrics[];               /* in the order of metrics.def; a NULL name ends it */
const pb_metric *pb_metric_find(const char *name); /* NULL: no such metric */

typedef struct pb_metric_bound {
    const char *suite, *metric, *dtype; /* "*": any */
    bool relative;                      /* to the base's figure; false: of the figure by itself */
    double limit;
    const char *text; /* "beyond its bound, absolute 1e-2" */
} pb_metric_bound;
/* The bound of a metric of the case with this key; NULL: it has none. */
const pb_metric_bound *pb_metric_bound_find(const char *key, const char *metric);
/* The absolute bound of a metric of any suite in this dtype, which must have one. */
double pb_metric_bound_of(const char *metric, const char *dtype);
/* Whether x stays within the bound; `base` counts for a relative one. False for NaN. */
bool pb_metric_bound_keeps(const pb_metric_bound *b, double base, double x);

/* The share of its figure by which a counter may differ from the base's unnoticed; -1: the metric is no counter. */
double pb_counter_share(const char *metric);
#endif
