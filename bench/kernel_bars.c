/* kernel_bars.c - the bars, and which measured case each of them is about. */
#include "bench/kernel_bars.h"

#include <stdio.h>
#include <string.h>

#include "bench/contracts.h"
#include "bench/results.h"

typedef struct bar {
    const char *id, *op, *dtype, *shape, *metric;
    bool least;    /* the smallest figure is the best */
    bool absolute; /* holds for one kind of GPU */
} bar;

static const bar bars[] = {
#define BAR(op, dtype, shape, id, metric, least, absolute) {id, op, dtype, shape, metric, least, absolute},
#include "bench/kernel_bars.def"
#undef BAR
};

bool pb_kernel_bar(size_t i, const char **op, const char **shape)
{
    if (i >= sizeof bars / sizeof *bars) return false;
    *op = bars[i].op;
    *shape = bars[i].shape;
    return true;
}

static bool is(const pb_case *c, const char *axis, const char *value)
{
    const char *v = pb_case_get(c, axis);
    return v && strcmp(v, value) == 0;
}

/* The best figure of the bar's case over implementations. */
static bool best(const pb_sink *sink, const bar *b, pb_case *out, double *figure)
{
    const char *key;
    bool found = false;
    for (int i = 0; (key = pb_sink_key(sink, i)) != NULL; i++) {
        pb_case c;
        double v;
        if (pb_case_parse(key, &c) != PB_OK || strcmp(c.suite, "kernels") != 0 || strcmp(c.name, b->op) != 0) continue;
        if (!is(&c, "dtype", b->dtype) || !is(&c, "shape", b->shape)) continue;
        if (!pb_sink_value(sink, key, b->metric, &v)) continue;
        if (found && (b->least ? v >= *figure : v <= *figure)) continue;
        *out = c;
        *figure = v;
        found = true;
    }
    return found;
}

pb_status pb_kernel_bars_conclude(pb_sink *sink)
{
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++) {
        const bar *b = &bars[i];
        const bool here = !b->absolute || strstr(sink->machine_id, "-h200-");
        pb_case c;
        double figure = 0;
        char how[200];
        if (!best(sink, b, &c, &figure)) continue;
        snprintf(how, sizeof how, "%s %s %s by %.40s: %.4g", b->op, b->dtype, b->shape, pb_case_get(&c, "impl"),
                 figure);
        PB_TRY(pb_case_set(&c, "op", b->op));
        PB_TRY(pb_contract_emit(sink, b->id, c.axes, c.n, figure, here, how));
    }
    return PB_OK;
}
