/* clock.h - seconds of the host's monotonic clock: only differences mean anything. */
#ifndef PB_CLOCK_H
#define PB_CLOCK_H
#include <time.h>

static inline double pb_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
