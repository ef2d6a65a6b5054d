/* trace_samples.h - the times of a trace's events, and its sampled hardware counters. Private to bench/analyze. */
#ifndef PB_TRACE_SAMPLES_H
#define PB_TRACE_SAMPLES_H
#include <jansson.h>

#include "bench/analyze/trace_read.h"

/* True for a time in microseconds that pb_trace_moment can convert: its magnitude is below 1e15 (30 years). */
bool pb_trace_time_valid(double us);
/* The moment `after_us` microseconds after the event's ts, in seconds since begin_ns, which has the same zero as ts. A
 * ts is written in microseconds with three digits, and as a double it may be half a nanosecond off; rounding to whole
 * nanoseconds before the subtraction gives the written time, as long as ts is below 2^43 us (trace/chrome.c chooses
 * its zero so). */
double pb_trace_moment(const json_t *event, double after_us, int64_t begin_ns);

/* Reads the counter events (trace/chrome_samples.h). interval: seconds; 0: the trace has none. The caller frees
 * out->begin and out->value, also after an error. EINVAL: a counter event lacks name, ts or value, or there are more
 * metrics than a group has. ENOMEM. */
pb_status pb_trace_samples_read(const char *path, const json_t *events, double interval, int64_t begin_ns,
                                pb_trace_samples *out);
#endif
