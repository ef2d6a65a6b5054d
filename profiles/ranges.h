/* ranges.h - named stretches of host time for profilers: NVTX ranges in the domain "plumb" (NVIDIA Nsight, or whatever
 * else NVTX_INJECTION64_PATH names).
 *
 * A leaf that every layer may include. Steps hold phases, phases hold ops: ranges nest on their thread. With no tool
 * attached each end of a range is a load and a branch that is never taken; the ceiling suite measures both, as
 * range_time. */
#ifndef PB_RANGES_H
#define PB_RANGES_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Whether a tool listens; settled by the first call of pb_ranges_start, before that false. */
extern bool pb_ranges_on;
/* Looks for a tool. Called when a context is opened; further calls do nothing. */
void pb_ranges_start(void);

/* `name` is static storage: it is registered once, by its address. */
void pb_range_begin(const char *name);
void pb_range_finish(void);

static inline void pb_range_push(const char *name)
{
    if (__builtin_expect(pb_ranges_on, 0)) pb_range_begin(name);
}
static inline void pb_range_pop(void)
{
    if (__builtin_expect(pb_ranges_on, 0)) pb_range_finish();
}
#ifdef __cplusplus
}
#endif
#endif
