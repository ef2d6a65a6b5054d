/* ceilings.c - implements ceilings.h. */
#include "bench/analyze/ceilings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/rows/rows.h"

static double median_of(const pb_series_set *set, const char *metric)
{
    for (size_t i = 0; i < set->n; i++) {
        const pb_series *s = &set->s[i];
        if (pb_key_of(s->key, "ceiling") && strcmp(s->metric, metric) == 0 &&
            (pb_series_ok(s) || pb_series_throttled(s)) && s->median > 0)
            return s->median;
    }
    return 0;
}

static pb_status find(const pb_table *t, const pb_series_set *set, bool gpu, pb_ceilings *out)
{
    const char *machine = set->n ? set->s[0].machine_id : "";
    *out = (pb_ceilings){.copy = median_of(set, "copy_rate"), .matmul = median_of(set, "matmul_rate")};
    snprintf(out->machine, sizeof out->machine, "%s", machine);
    if (!(out->copy > 0) || !(out->matmul > 0))
        return pb_fail(PB_EINVAL, "%s: the run has no ceilings copy_rate and matmul_rate", t->path);
    if ((strncmp(machine, "cuda-", 5) == 0) != gpu)
        return pb_fail(PB_EINVAL, "%s: ceilings of %s, but the traces are of a %s", t->path, machine,
                       gpu ? "GPU" : "CPU");
    return PB_OK;
}

pb_status pb_ceilings_read(const char *run, bool gpu, pb_ceilings *out)
{
    pb_table t;
    pb_series_set set;
    PB_TRY(pb_table_read(run, &t));
    pb_status s = pb_series_make(&t, &set);
    if (s == PB_OK) {
        s = find(&t, &set, gpu, out);
        pb_series_free(&set);
    }
    pb_table_free(&t);
    return s;
}

double pb_ceilings_share(const pb_ceilings *c, double flops, double bytes, double seconds)
{
    if (!c || !(seconds > 0)) return 0;
    return fmax(flops / c->matmul, bytes / c->copy) / seconds;
}
