/* gpu_samples.c - implements the part of gpu_samples.h that needs no CUPTI. */
#include "trace/gpu_samples.h"

#include <stdlib.h>
#include <string.h>

void pb_gpu_samples_free(pb_gpu_samples *s)
{
    free(s->sample);
    free(s->value);
    *s = (pb_gpu_samples){0};
}

/* How many samples a time lacks, if `excused` of its intervals are no loss. */
static size_t intervals(const pb_gpu_samples *s, int64_t ns, int64_t excused)
{
    const int64_t interval = 1000LL * s->interval_us, n = (ns + interval / 2) / interval - excused;
    return n > 0 ? (size_t)n : 0;
}

static void count_gaps(pb_gpu_samples *s)
{
    for (size_t i = 1; i < s->n; i++) s->lost += intervals(s, s->sample[i].begin_ns - s->sample[i - 1].end_ns, 0);
}

/* Excused are the intervals in which sampling began and ended, and the first sample, which is discarded. */
static void count_ends(pb_gpu_samples *s, const pb_sampled_span *span)
{
    s->lost += intervals(s, (s->n ? s->sample[0].begin_ns : span->stopped_ns) - span->started_ns, 2);
    if (s->n) s->lost += intervals(s, span->stopped_ns - span->last_ns, 1);
}

pb_status pb_gpu_samples_fit(pb_gpu_samples *s, const pb_sampled_span *span)
{
    const int64_t slack = 1000000 + 1000LL * s->interval_us, first = s->n ? s->sample[0].begin_ns : 0;
    size_t kept = 0;
    count_gaps(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->sample[i].begin_ns < span->begin_ns - slack || s->sample[i].end_ns > span->end_ns + slack) continue;
        s->sample[kept] = s->sample[i];
        memmove(&s->value[kept * (size_t)s->metrics], &s->value[i * (size_t)s->metrics],
                (size_t)s->metrics * sizeof *s->value);
        kept++;
    }
    s->outside = s->n - kept;
    s->n = kept;
    if (!s->outside) count_ends(s, span);
    if (!kept && !s->outside && s->lost)
        return pb_fail(PB_EDEVICE,
                       "counters: the GPU completed none of the %zu samples of the window (CUPTI had begun %zu)",
                       s->lost, s->partial);
    if (kept || !s->outside) return PB_OK;
    return pb_fail(
        PB_EDEVICE,
        "counters: none of %zu samples is in the window, and the first begins %.6g s after its begin: CUPTI's "
        "clock of samples is not CLOCK_REALTIME, so they are left out",
        s->outside, 1e-9 * (double)(first - span->begin_ns));
}
