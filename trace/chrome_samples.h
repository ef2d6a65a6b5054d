/* chrome_samples.h - the sampled hardware counters in a trace (chrome.h), as counter tracks. Private to trace.
 *
 * One event for each sample and metric: ph C; cat hardware_counters; name the metric with its unit, such as
 * "sm_busy (%)", so that each has a track of its own; pid the device, as of kernels; ts the begin of the sample;
 * args.value. A metric that has no value in a sample has no event. The last value of a track has no end. */
#ifndef PB_TRACE_CHROME_SAMPLES_H
#define PB_TRACE_CHROME_SAMPLES_H
#include "trace/chrome.h"

/* Rough bytes of JSON of one value, for estimates before a window; counted from the format. */
enum { PB_TRACE_SAMPLE_BYTES = 130 };

/* Appends the samples, as long as the text stays within `room` bytes: of a sample, all values or none. */
void pb_chrome_samples(pb_gzip *g, const pb_gpu_samples *s, int64_t base, size_t room, pb_trace_size *size);
/* Appends what a reader must know of the samples, as members of an object; nothing if none were taken. */
void pb_chrome_samples_about(pb_gzip *g, const pb_gpu_samples *s, const pb_trace_size *size);
#endif
