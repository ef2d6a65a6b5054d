/* gpu_samples_none.c - used when the build has no CUPTI: a GPU's counters cannot be sampled. */
#include <stddef.h>

#include "trace/gpu_samples.h"

static pb_status none(void)
{
    return pb_fail(PB_EUNSUPPORTED, "counters: this build has no CUPTI, which samples a GPU; it comes with CUDA");
}

pb_status pb_gpu_sampler_passes(const pb_counter_group *g, int *passes) { return (void)g, *passes = 0, none(); }
pb_status pb_gpu_sampler_open(const pb_counter_group *g, int interval_us, size_t most, pb_gpu_sampler **out)
{
    return (void)g, (void)interval_us, (void)most, *out = NULL, none();
}
pb_status pb_gpu_sampler_begin(pb_gpu_sampler *s) { return (void)s, none(); }
pb_status pb_gpu_sampler_end(pb_gpu_sampler *s) { return (void)s, none(); }
pb_status pb_gpu_sampler_read(pb_gpu_sampler *s, int64_t begin_ns, int64_t end_ns, pb_gpu_samples *out)
{
    return (void)s, (void)begin_ns, (void)end_ns, *out = (pb_gpu_samples){0}, none();
}
void pb_gpu_sampler_close(pb_gpu_sampler *s) { (void)s; }
