/* idle.h - how much of a GPU's idle time is host-bound: the host had not yet enqueued the work that came next. Private
 * to bench/analyze.
 *
 * A stretch of idle time ends when the GPU begins some work, or when the step ends. It is host-bound up to the moment
 * when the call that enqueued the next work, of this step or a later one, returned. The rest is the time that the GPU
 * needs to begin the work, or a pause between two nodes of a graph. After the last work of the trace all idle time is
 * host-bound. The cause is unknown if the trace lacks the call. */
#ifndef PB_IDLE_H
#define PB_IDLE_H
#include "bench/analyze/intervals.h"
#include "bench/analyze/trace_read.h"

/* Sums over the steps, in seconds; host_bound + unknown is at most the idle time. ENOMEM. */
pb_status pb_idle_divide(const pb_trace *t, const pb_intervals *steps, double *host_bound, double *unknown);
#endif
