/* gpu_counters_none.c - used when the build has no CUPTI: a GPU's events cannot be counted. */
#include "trace/gpu_counters.h"

#include <stddef.h>

static pb_status none(void)
{
    return pb_fail(PB_EUNSUPPORTED,
                   "counters: this build has no CUPTI, which counts events of a GPU; it comes with CUDA");
}

pb_status pb_gpu_counters_passes(const pb_counter_group *g, int *passes) { return (void)g, *passes = 0, none(); }
pb_status pb_gpu_counters_open(const pb_counter_group *g, pb_gpu_counters **out)
{
    return (void)g, *out = NULL, none();
}
pb_status pb_gpu_counters_open_ranges(const pb_counter_group *g, int most, pb_gpu_counters **out)
{
    return (void)g, (void)most, *out = NULL, none();
}
void pb_gpu_counters_close(pb_gpu_counters *c) { (void)c; }
pb_status pb_gpu_counters_begin(pb_gpu_counters *c) { return (void)c, none(); }
pb_status pb_gpu_counters_end(pb_gpu_counters *c, double *values) { return (void)c, (void)values, none(); }
pb_status pb_gpu_counters_push(pb_gpu_counters *c) { return (void)c, none(); }
pb_status pb_gpu_counters_pop(pb_gpu_counters *c) { return (void)c, none(); }
pb_status pb_gpu_counters_end_ranges(pb_gpu_counters *c, double *values, int n)
{
    return (void)c, (void)values, (void)n, none();
}
void pb_gpu_counters_release(pb_gpu_counters *c) { (void)c; }
