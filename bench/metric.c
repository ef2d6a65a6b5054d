/* metric.c - the table that metrics.def makes. */
#include "bench/metric.h"

#include <stddef.h>
#include <string.h>

const pb_metric pb_metrics[] = {
#define METRIC(name, unit, better, what) {#name, unit, #better, what},
#include "bench/metrics.def"
#undef METRIC
    {NULL, NULL, NULL, NULL},
};

const pb_metric *pb_metric_find(const char *name)
{
    for (const pb_metric *m = pb_metrics; m->name; m++)
        if (!strcmp(m->name, name)) return m;
    return NULL;
}
