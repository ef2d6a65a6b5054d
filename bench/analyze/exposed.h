/* exposed.h - communication of a trace by collective and group, for breakdown.c. Private to bench/analyze. */
#ifndef PB_EXPOSED_H
#define PB_EXPOSED_H
#include "bench/analyze/breakdown.h"
#include "bench/analyze/intervals.h"

/* Fills out->collectives. steps: the union of the intervals of all steps. waits: the union of the intervals in which the
 * training thread waits for communication. ENOMEM. */
pb_status pb_exposed_add(const pb_trace *t, const pb_intervals *steps, const pb_intervals *waits, pb_breakdown *out);
#endif
