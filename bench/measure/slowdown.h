/* slowdown.h - makes timed calls longer by a known share, to test whether a comparison finds it.
 *
 * On a CPU the delay is a busy wait whose length follows from the call's own time. On a GPU it is a kernel that spins;
 * its own overhead is measured first and subtracted. */
#ifndef PB_SLOWDOWN_H
#define PB_SLOWDOWN_H
#include "kernels/core/op.h"

typedef struct pb_slowdown {
    double share; /* of the call's own time; 0: no delay */
    double usual; /* seconds of a call without the delay, for a GPU, where the call has not ended when the delay is
                     enqueued. On a CPU the time of each call is known */
    double least; /* seconds of overhead of the shortest delay; subtracted from the length that is asked for */
} pb_slowdown;
/* Delays the call that began at event `from`. Records event `end` where the call ends without the delay. With share 0
 * it does nothing. Suites that record their own events call it themselves. */
pb_status pb_slow_down(pb_ctx *ctx, const pb_slowdown *s, int from, int end);
/* Calibrates the delay on a GPU from n calls that were delayed as `slow` says so far: seconds[n] with the delay, own[n]
 * without it. Updates `usual` and `least`; own[] is overwritten. Begin with usual 0; PB_SLOWDOWN_ROUNDS rounds
 * converge. */
enum { PB_SLOWDOWN_ROUNDS = 4 };
void pb_slowdown_find(const double *seconds, double *own, int n, pb_slowdown *slow);
/* The slowdown that was achieved: the median of seconds[i]/own[i] - 1, n from 1 to PB_MEDIAN_MOST. */
double pb_slowed(const double *seconds, const double *own, int n);
#endif
