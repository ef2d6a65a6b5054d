/* clock.c - reads the host's monotonic clock, in seconds. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/engine/clock.h"

#include <time.h>

double pb_clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
