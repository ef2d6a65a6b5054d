/* range_cost.c - implements range_cost.h. */
#include "bench/suites/range_cost.h"

#include "profiles/ring.h"

enum { RANGES = 1 << 20, UNROLLED = 16 };

#define BARRIER() __asm__ volatile("" ::: "memory")

static inline __attribute__((always_inline)) void one_range(const char *name)
{
    BARRIER();
    pb_range_push(PB_RANGE_work, name, PB_RANGE_NO_VALUE);
    BARRIER();
    pb_range_pop();
}

static pb_status run_ranges(pb_ctx *ctx, void *self)
{
    (void)ctx;
    for (int i = 0; i < RANGES; i += UNROLLED) {
#define FOUR() one_range(self), one_range(self), one_range(self), one_range(self)
        FOUR(), FOUR(), FOUR(), FOUR();
#undef FOUR
    }
    return PB_OK;
}

static pb_status run_clock(pb_ctx *ctx, void *self)
{
    const bool tsc = *(const bool *)self;
    (void)ctx;
    for (int i = 0; i < RANGES; i++) {
        (void)pb_ring_read_clock(tsc);
        (void)pb_ring_read_clock(tsc);
    }
    return PB_OK;
}

/* Divides the host times of the samples by the number of their repetitions, 2^20. */
static pb_status of_one(pb_status s, pb_timing *out)
{
    if (s != PB_OK) return s;
    for (int i = 0; i < out->n; i++) out->seconds[i] = out->host[i] / RANGES;
    out->median = out->host_median / RANGES;
    return PB_OK;
}

pb_status pb_range_cost(pb_ctx *ctx, const pb_measure_opts *o, pb_timing *out)
{
    static char name[] = "range";
    return of_one(pb_measure(ctx, run_ranges, name, o, out), out);
}

pb_status pb_clock_cost(pb_ctx *ctx, const pb_measure_opts *o, bool tsc, pb_timing *out)
{
    return of_one(pb_measure(ctx, run_clock, &tsc, o, out), out);
}
