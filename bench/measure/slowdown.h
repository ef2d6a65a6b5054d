/* slowdown.h - injects a delay, a known fraction of a call's time, to test whether a comparison finds it.
 *
 * On a CPU the delay is a busy wait whose length follows from the call's own time. On a GPU it is a kernel that spins;
 * its own overhead is measured first and subtracted. */
#ifndef PB_SLOWDOWN_H
#define PB_SLOWDOWN_H
#include "kernels/engine/op.h"

typedef struct pb_slowdown {
    double share; /* delay as a fraction of the call's own time; 0: no delay */
    double usual; /* seconds of a call without the delay. Used on a GPU only: there the call has not ended when the
                     delay is enqueued. On a CPU each call is timed before its delay */
    double least; /* seconds of overhead of the shortest delay; subtracted from the requested delay */
} pb_slowdown;
/* Delays the call that began at event `from`: records event `end`, where the call ends without the delay, and enqueues
 * the delay. With share 0 it does nothing. pb_measure() calls it; suites that record their own events call it too. */
pb_status pb_slow_down(pb_ctx *ctx, const pb_slowdown *s, int from, int end);
/* One round of calibrating the delay on a GPU, from n calls that were delayed with the present *slow: seconds[n] with
 * the delay, own[n] without it. Updates `usual` and `least`, and overwrites own[]. Begin with usual 0; the values
 * converge within PB_SLOWDOWN_ROUNDS rounds. */
enum { PB_SLOWDOWN_ROUNDS = 4 };
void pb_slowdown_find(const double *seconds, double *own, int n, pb_slowdown *slow);
/* The injected delay that was achieved, as a fraction: the median of seconds[i]/own[i] - 1. 1 <= n <=
 * PB_MEDIAN_MOST. */
double pb_slowed(const double *seconds, const double *own, int n);
#endif
