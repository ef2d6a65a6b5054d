/* metric.h - what metrics.def says, to look up: the unit and the better direction of every metric. */
#ifndef PB_METRIC_H
#define PB_METRIC_H

typedef struct pb_metric {
    const char *name, *unit, *better, *what; /* better: lower, higher or none */
} pb_metric;
extern const pb_metric pb_metrics[];               /* in the order of metrics.def; a NULL name ends it */
const pb_metric *pb_metric_find(const char *name); /* NULL: no such metric */
#endif
