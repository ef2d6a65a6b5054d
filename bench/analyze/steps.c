/* steps.c - implements steps.h. */
#include "bench/analyze/steps.h"

/* The thread that has ranges of this kind; -1: none. */
static int thread_with(const pb_trace *t, pb_range_kind kind)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->events[i].kind == kind) return t->events[i].tid;
    return -1;
}

pb_step_ranges pb_steps_find(const pb_trace *t)
{
    const pb_range_kind kind = thread_with(t, PB_RANGE_step) >= 0 ? PB_RANGE_step : PB_RANGE_sample;
    return (pb_step_ranges){kind, thread_with(t, kind)};
}

void pb_steps_list(const pb_trace *t, pb_intervals *out)
{
    const pb_step_ranges steps = pb_steps_find(t);
    out->n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->events[i].tid == steps.tid && t->events[i].kind == steps.kind)
            pb_intervals_add(out, t->events[i].begin, t->events[i].end);
    pb_intervals_unite(out);
}
