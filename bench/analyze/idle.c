/* idle.c - implements idle.h: goes through the GPU's work by its begin. */
#include "bench/analyze/idle.h"

#include <math.h>
#include <stdlib.h>

static int by_begin(const void *x, const void *y)
{
    const pb_gpu_span *a = *(const pb_gpu_span *const *)x, *b = *(const pb_gpu_span *const *)y;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* One step: `at` is work sorted by its begin. */
static void divide_step(const pb_gpu_span *const *at, size_t n, const pb_interval *step, double *host, double *unknown)
{
    double idle_from = step->begin; /* everything that began before has ended by then */
    for (size_t i = 0; i <= n; i++) {
        const pb_gpu_span *g = i < n ? at[i] : NULL; /* NULL: nothing follows in the trace */
        const double end = g ? fmin(g->begin, step->end) : step->end, gap = end - idle_from;
        if (gap > 0 && g && isnan(g->enqueued)) *unknown += gap;
        else if (gap > 0) *host += g ? fmin(fmax(g->enqueued - idle_from, 0), gap) : gap;
        if (!g || g->begin >= step->end) return;
        idle_from = fmax(idle_from, g->end);
    }
}

pb_status pb_idle_divide(const pb_trace *t, const pb_intervals *steps, double *host_bound, double *unknown)
{
    const pb_gpu_span **at = malloc((t->ngpu + 1) * sizeof *at);
    *host_bound = *unknown = 0;
    if (!at) return pb_fail(PB_ENOMEM, "no memory to sort %zu records of a GPU", t->ngpu);
    for (size_t i = 0; i < t->ngpu; i++) at[i] = &t->gpu[i];
    qsort(at, t->ngpu, sizeof *at, by_begin);
    for (size_t k = 0; k < steps->n; k++) divide_step(at, t->ngpu, &steps->at[k], host_bound, unknown);
    free(at);
    return PB_OK;
}
