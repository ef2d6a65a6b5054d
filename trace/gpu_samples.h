/* gpu_samples.h - samples hardware counters of a whole GPU at a fixed interval while work runs, by CUPTI's PM sampling
 * (https://docs.nvidia.com/cupti, PM Sampling API).
 *
 *     PB_TRY(pb_gpu_sampler_open(&group, 1000, 0, &s));
 *     PB_TRY(pb_gpu_sampler_begin(s));
 *     run work
 *     PB_TRY(pb_gpu_sampler_end(s));
 *     PB_TRY(pb_gpu_sampler_read(s, begin_ns, end_ns, &samples));
 *     pb_gpu_sampler_close(s);
 *
 * The GPU reads its counters by itself: no kernel runs twice or waits, so other ranks may take part. A sample has the
 * work of all processes that use the GPU. One process samples a GPU at a time, and no other tool counts meanwhile.
 * Records of activity (gpu.h) may be taken at the same time.
 *
 * Threads. One thread, whose CUDA context is that of the GPU, calls open, begin, end and close. Between begin and end,
 * and shortly after, a thread of the sampler decodes what the GPU's buffer holds, every 100 ms or more often. Any one
 * thread may call read after end, and must have returned from it before the next begin or close.
 *
 * Clock. Times of samples have the clock of activity records, CLOCK_REALTIME: so it was on an H200 with CUPTI 13.0.
 * CUPTI does not promise it, so read counts the samples outside the window. */
#ifndef PB_TRACE_GPU_SAMPLES_H
#define PB_TRACE_GPU_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"
#include "profiles/groups.h"

/* Microseconds between samples, and samples of a window that are kept by default: 29 MB of 12 events each. */
enum { PB_SAMPLE_US_LEAST = 50, PB_SAMPLE_US_MOST = 1000000, PB_SAMPLES_MOST = 1 << 18 };

typedef struct pb_gpu_sample {
    int64_t begin_ns, end_ns; /* CLOCK_REALTIME */
} pb_gpu_sample;

/* A metric of a metric group. */
typedef struct pb_sampled_metric {
    char name[40], unit[8];
} pb_sampled_metric;

/* The samples of a window. */
typedef struct pb_gpu_samples {
    uint32_t device; /* as in pb_gpu_event */
    int interval_us; /* 0: nothing was sampled */
    int metrics;
    pb_sampled_metric metric[PB_GROUP_METRICS];
    pb_gpu_sample *sample; /* [n], by begin */
    double *value;         /* [n][metrics]; NAN: no value */
    size_t n;
    size_t lost;      /* samples that are missing between the first and the last moment of sampling */
    size_t partial;   /* samples that CUPTI had begun and not completed when they were decoded; not in records */
    size_t outside;   /* samples that are left out, because they are not of the window */
    size_t overflows; /* how often CUPTI said that the GPU's buffer was full, so that samples were lost */
    double decode_s;  /* CPU seconds of the thread that decoded */
} pb_gpu_samples;

void pb_gpu_samples_free(pb_gpu_samples *s); /* {0} is allowed */

typedef struct pb_sampled_span {
    int64_t begin_ns, end_ns;       /* the window whose samples are wanted */
    int64_t started_ns, stopped_ns; /* when sampling was on */
    int64_t last_ns;                /* the end of the last sample, kept or not; 0: none */
} pb_sampled_span;

/* Leaves out the samples that are not in the window, within 1 ms and one interval, and counts them in `outside`.
 * Adds to `lost` the intervals that are missing between two samples, and before the first and after the last one.
 * There, those in which sampling began and ended are no loss, nor is the first sample, which the sampler discards.
 * EDEVICE: the GPU completed no sample; or none is in the window, so that they have another clock. */
pb_status pb_gpu_samples_fit(pb_gpu_samples *s, const pb_sampled_span *span);

typedef struct pb_gpu_sampler pb_gpu_sampler;

/* The number of passes in which PM sampling of the chip `g->chip` reads the group's events; only groups of one pass
 * can be sampled. Needs no GPU, only libcupti. EUNSUPPORTED: there is no libcupti, or it does not know the chip.
 * EINVAL: the chip lacks an event, or the group is not one that is sampled. */
pb_status pb_gpu_sampler_passes(const pb_counter_group *g, int *passes);

/* Switches sampling on for the GPU of the calling thread's CUDA context, which must exist; until close, other tools
 * cannot count. *g is copied. most: samples of a window that are kept; 0: PB_SAMPLES_MOST. Returns NULL in *out
 * after an error. EUNSUPPORTED, with one line that says why: no libcupti, another chip than the group's, no
 * permission, another tool holds the counters, a virtual GPU or partition without counters, or more than one pass.
 * EINVAL: an interval outside PB_SAMPLE_US_LEAST to PB_SAMPLE_US_MOST, a group that is not sampled, or an event
 * that the chip lacks. EDEVICE: CUPTI failed. ENOMEM. */
pb_status pb_gpu_sampler_open(const pb_counter_group *g, int interval_us, size_t most, pb_gpu_sampler **out);
/* Begin and end of a window. begin forgets the samples of the window before. end waits at most until a decoding has
 * ended. After a window in which CUPTI failed or the GPU's buffer overflowed, begin switches sampling off and on again.
 * EUNSUPPORTED: see open. EDEVICE: CUPTI failed. */
pb_status pb_gpu_sampler_begin(pb_gpu_sampler *s);
pb_status pb_gpu_sampler_end(pb_gpu_sampler *s);
/* Waits until the last window's samples are decoded, and evaluates the group's formulas. The caller frees *out, also
 * after an error. EDEVICE: CUPTI failed while it decoded, so that *out has the samples before; or see
 * pb_gpu_samples_fit(). ENOMEM. */
pb_status pb_gpu_sampler_read(pb_gpu_sampler *s, int64_t begin_ns, int64_t end_ns, pb_gpu_samples *out);
void pb_gpu_sampler_close(pb_gpu_sampler *s); /* NULL: does nothing */
#endif
