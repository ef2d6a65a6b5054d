/* ranges.h - named intervals of host time for profilers: NVTX ranges in the domain "plumb", which NVIDIA Nsight and any
 * other tool that NVTX_INJECTION64_PATH names can record.
 *
 * Every layer may include this header; it includes no other. Ranges nest per thread: a step contains phases, a phase
 * contains ops. Without a tool, push and pop each cost a load and a branch that is not taken; the ceiling suite
 * measures the pair as range_time. */
#ifndef PB_RANGES_H
#define PB_RANGES_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

/* True if a profiler is attached. False until the first call of pb_ranges_start, constant after it. */
extern bool pb_ranges_on;
/* Sets pb_ranges_on. Every context that is opened calls this function; only the first call has an effect. */
void pb_ranges_start(void);

/* `name` must have static storage duration: it is registered once and then looked up by address. */
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
