/* idle.h - how much of a GPU's idle time is the host's: it had not yet enqueued the work that came next. Private to
 * bench/analyze.
 *
 * A stretch of idle time ends with the begin of some work, or with the step. It is host-bound until the call that
 * enqueued the next work, of this step or a later one, has ended; the rest is what the GPU needs to begin it, or the pause
 * between two nodes of a graph. After the last work of the trace all of it is host-bound. It is unknown if the trace lacks
 * the call. */
#ifndef PB_IDLE_H
#define PB_IDLE_H
#include "bench/analyze/intervals.h"
#include "bench/analyze/trace_read.h"

/* Seconds inside the steps. ENOMEM. */
pb_status pb_idle_divide(const pb_trace *t, const pb_intervals *steps, double *host_bound, double *unknown);
#endif
