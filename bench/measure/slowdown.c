/* slowdown.c - injects a delay into a timed call, and calibrates that delay. */
#include "bench/measure/slowdown.h"

#include <math.h>

#include "bench/stats/median.h"

/* The seconds of delay to request for a call that takes `own` seconds without it. */
static double wait_of(const pb_slowdown *s, double own) { return fmax(0, s->share * own - s->least); }

pb_status pb_slow_down(pb_ctx *ctx, const pb_slowdown *s, int from, int end)
{
    double own = s->usual;
    if (!(s->share > 0)) return PB_OK;
    PB_TRY(ctx->be->mark(ctx, end));
    if (ctx->id == PB_CPU) PB_TRY(ctx->be->between(ctx, from, end, &own));
    return ctx->be->delay(ctx, wait_of(s, own));
}

void pb_slowdown_find(const double *seconds, double *own, int n, pb_slowdown *slow)
{
    const double asked = wait_of(slow, slow->usual);
    slow->usual = pb_median_of(own, n);
    for (int i = 0; i < n; i++) own[i] = seconds[i] - own[i];
    slow->least = pb_median_of(own, n) - asked;
}

double pb_slowed(const double *seconds, const double *own, int n)
{
    double share[PB_MEDIAN_MOST];
    for (int i = 0; i < n; i++) share[i] = seconds[i] / own[i] - 1;
    return pb_median(share, n);
}
