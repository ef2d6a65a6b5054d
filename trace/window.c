/* window.c - implements window.h. */
#include "trace/window.h"

#include <math.h>
#include <stdlib.h>

#include "trace/records.h"

bool pb_window_must_shift(const pb_trace_about *about)
{
    const pb_clock_offset *c = about->clock;
    if (!about->compared || !c[0].known || !c[1].known) return false;
    return llabs(c[0].offset_ns) > c[0].uncertainty_ns || llabs(c[1].offset_ns) > c[1].uncertainty_ns;
}

/* This rank's time t on rank 0's clock. */
static int64_t shifted(const pb_clock_offset c[2], int64_t t)
{
    const double span = (double)(c[1].at_ns - c[0].at_ns), part = span > 0 ? (double)(t - c[0].at_ns) / span : 0;
    return t + c[0].offset_ns + llround(part * (double)(c[1].offset_ns - c[0].offset_ns));
}

static void shift(const pb_clock_offset c[2], pb_ring_window *w, pb_gpu_window *gpu)
{
    for (int i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->threads[i].n; k++) {
            pb_ring_record *r = &w->threads[i].records[k];
            r->begin_ns = shifted(c, r->begin_ns);
            r->end_ns = shifted(c, r->end_ns);
        }
    for (size_t i = 0; i < gpu->n; i++) {
        gpu->events[i].begin_ns = shifted(c, gpu->events[i].begin_ns);
        gpu->events[i].end_ns = shifted(c, gpu->events[i].end_ns);
    }
    for (size_t i = 0; i < gpu->samples.n; i++) {
        gpu->samples.sample[i].begin_ns = shifted(c, gpu->samples.sample[i].begin_ns);
        gpu->samples.sample[i].end_ns = shifted(c, gpu->samples.sample[i].end_ns);
    }
    w->begin_ns = shifted(c, w->begin_ns);
    w->end_ns = shifted(c, w->end_ns);
}

/* Reads the samples of the window. Only while counters are sampled could CUPTI fail to record kernels in silence. */
static pb_status read_samples(const pb_window_files *files, const pb_ring_window *w, pb_gpu_window *all)
{
    PB_TRY(pb_gpu_sampler_read(files->sampler, w->begin_ns, w->end_ns, &all->samples));
    if (!files->gpu || !pb_gpu_lacks_work(all)) return PB_OK;
    return pb_fail(PB_EDEVICE,
                   "profile: kernels were launched while counters were sampled, and none was recorded: CUPTI "
                   "does not do both here; leave out --profile-sampling");
}

pb_status pb_window_write(const pb_disk *d, const pb_window_files *files, pb_trace_about *about, pb_ring_window *w,
                          pb_window_gpu *gpu, pb_trace_size *size)
{
    pb_gpu_window all = {0};
    pb_status s = files->gpu ? pb_gpu_read(&all) : PB_OK;
    const pb_status sampled = s == PB_OK && files->sampler ? read_samples(files, w, &all) : PB_OK;
    const bool wanted = s == PB_OK && files->records;
    const pb_status kept = wanted ? pb_records_write(d, files->records, about, w, &all) : PB_OK;
    about->shifted = pb_window_must_shift(about);
    if (about->shifted) shift(about->clock, w, &all);
    pb_gpu_place(&all);
    if (s == PB_OK) s = pb_trace_write(d, files->trace, about, w, &all, size);
    if (s == PB_OK) s = kept;
    if (s == PB_OK) s = sampled;
    *gpu = (pb_window_gpu){.dropped = all.dropped,
                           .replayed = all.replayed,
                           .unplaced = all.unplaced,
                           .buffer_bytes = all.buffer_bytes,
                           .interval_us = all.samples.interval_us,
                           .lost = all.samples.lost,
                           .outside = all.samples.outside,
                           .overflows = all.samples.overflows,
                           .decode_s = all.samples.decode_s};
    pb_gpu_free(&all);
    return s;
}
