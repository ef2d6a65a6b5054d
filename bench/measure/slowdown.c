/* slowdown.c - injects a delay into a timed call, and calibrates that delay. */
#include "bench/measure/slowdown.h"

#include <math.h>

#include "bench/stats/stats.h"

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

/* ---- the delay as a call hook of a measurement ---------------------------------------------------------- */

/* Measures the overhead of the shortest delay on a CPU, with an empty interval in place of a call. `least` 1 makes
 * pb_slow_down() request a delay of 0 s. */
static pb_status find_least_wait(pb_ctx *ctx, pb_slowdown *s)
{
    enum { INTERVALS = 16, BEGIN = 0, END = 1, OWN_END = 2 }; /* the last three are events */
    double v[INTERVALS];
    for (int i = 0; i < INTERVALS; i++) {
        PB_TRY(ctx->be->mark(ctx, BEGIN));
        PB_TRY(pb_slow_down(ctx, &(pb_slowdown){.share = s->share, .least = 1}, BEGIN, OWN_END));
        PB_TRY(ctx->be->mark(ctx, END));
        PB_TRY(ctx->be->between(ctx, OWN_END, END, &v[i]));
    }
    s->least = pb_median(v, INTERVALS);
    return PB_OK;
}

/* Starts the calibration. On a GPU the first trial requests a delay of 0 s; every further one uses the calibration of
 * the previous one. */
static pb_status begin(pb_call_hook *h, pb_ctx *ctx, int *trials)
{
    pb_slowdown *s = (pb_slowdown *)h;
    s->usual = s->least = 0;
    *trials = ctx->id == PB_CPU ? 0 : PB_SLOWDOWN_ROUNDS;
    return ctx->id == PB_CPU ? find_least_wait(ctx, s)
                             : ctx->be->delay(ctx, 0); /* the first delay may set up the device and sync */
}

static pb_status after_call(const pb_call_hook *h, pb_ctx *ctx, int from, int end)
{
    return pb_slow_down(ctx, (const pb_slowdown *)h, from, end);
}

static void after_trial(pb_call_hook *h, const double *seconds, double *own, int n)
{
    pb_slowdown_find(seconds, own, n, (pb_slowdown *)h);
}

pb_call_hook *pb_slowdown_hook(pb_slowdown *s)
{
    if (!s || !(s->share > 0)) return NULL;
    s->hook = (pb_call_hook){begin, after_call, after_trial, pb_slowed};
    return &s->hook;
}
