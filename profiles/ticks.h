/* ticks.h - the clock of a profiling window: the time-stamp counter or clock_gettime, and its line to CLOCK_REALTIME.
 * Private to profiles. */
#ifndef PB_PROFILES_TICKS_H
#define PB_PROFILES_TICKS_H
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

static inline int64_t pb_clock_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* True if the time-stamp counter runs at a constant rate in all power states (Intel SDM volume 3, 18.17.1; AMD's manual
 * has the same bit). */
static inline bool pb_tsc_usable(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8;
#else
    return false;
#endif
}

static inline int64_t pb_ticks(bool tsc)
{
#if defined(__x86_64__)
    if (tsc) return (int64_t)__rdtsc();
#endif
    (void)tsc;
    return pb_clock_ns(CLOCK_MONOTONIC_RAW);
}

/* One moment, read from three clocks. */
typedef struct pb_moment {
    int64_t ticks, real_ns, raw_ns;
} pb_moment;

/* Returns the best of several readings: the one whose two readings of the ticks are closest together. An interrupt
 * between them would shift the line. */
static inline pb_moment pb_moment_now(bool tsc)
{
    pb_moment best = {0};
    int64_t least = INT64_MAX;
    for (int i = 0; i < 16; i++) {
        const int64_t before = pb_ticks(tsc), real = pb_clock_ns(CLOCK_REALTIME),
                      raw = pb_clock_ns(CLOCK_MONOTONIC_RAW), after = pb_ticks(tsc);
        if (after - before >= least) continue;
        least = after - before;
        best = (pb_moment){before + least / 2, real, raw};
    }
    return best;
}

/* CLOCK_REALTIME at `ticks`, on the line through two moments. CLOCK_MONOTONIC_RAW gives the slope, because
 * CLOCK_REALTIME may be set between the moments. */
static inline int64_t pb_ticks_to_real(int64_t ticks, const pb_moment *a, const pb_moment *b)
{
    const double rate = b->ticks > a->ticks ? (double)(b->raw_ns - a->raw_ns) / (double)(b->ticks - a->ticks) : 1;
    return a->real_ns + (int64_t)((double)(ticks - a->ticks) * rate);
}
#endif
