/* slowdown.h - injects a delay, a known fraction of a call's time, to test whether a comparison finds it.
 *
 * On a CPU the delay is a busy wait whose length follows from the call's own time. On a GPU it is a kernel that spins;
 * the kernel's own overhead is measured first and subtracted. */
#ifndef PB_SLOWDOWN_H
#define PB_SLOWDOWN_H
#include "bench/measure/hooks.h"

typedef struct pb_slowdown {
    pb_call_hook hook; /* set by pb_slowdown_hook() */
    double share; /* delay as a fraction of the call's own time: 0.02 makes every timed call 2 % longer; 0: no delay */
    double usual; /* seconds of a call without the delay. Used on a GPU only: there the call has not ended when the
                     delay is enqueued. On a CPU each call is timed before its delay */
    double least; /* seconds of overhead of the shortest delay; subtracted from the requested delay */
} pb_slowdown;
/* Delays the call that began at event `from`: records event `end`, where the call ends without the delay, and enqueues
 * the delay. With share 0 it does nothing. Suites that record their own events call it; pb_measure() does so through a
 * call hook. */
pb_status pb_slow_down(pb_ctx *ctx, const pb_slowdown *s, int from, int end);
/* One round of calibrating the delay on a GPU, from n calls that were delayed with the present *slow: seconds[n] with
 * the delay, own[n] without it. Updates `usual` and `least`, and overwrites own[]. Begin with usual 0; the values
 * converge within PB_SLOWDOWN_ROUNDS rounds. */
enum { PB_SLOWDOWN_ROUNDS = 4 };
void pb_slowdown_find(const double *seconds, double *own, int n, pb_slowdown *slow);
/* The injected delay that was achieved, as a fraction: the median of seconds[i]/own[i] - 1. 1 <= n <=
 * PB_MEDIAN_MOST. */
double pb_slowed(const double *seconds, const double *own, int n);
/* The delay as a call hook of pb_measure(), which calibrates it for the function that is measured: usual and least are
 * overwritten. *s must outlive the measurement. NULL: no delay (s is NULL or has share 0). */
pb_call_hook *pb_slowdown_hook(pb_slowdown *s);
#endif
