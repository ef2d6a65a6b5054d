/* range_cost.h - the time of one profiler range on the host: begin and end. */
#ifndef PB_RANGE_COST_H
#define PB_RANGE_COST_H
#include "bench/measure/measure.h"

/* Times ranges, 2^20 in each sample: *out becomes seconds of one range, by the host's clock on every device, because a
 * range does no work on the device. A compiler barrier before every begin and end makes both test the flag of the
 * listeners each time, as around an op that could change it, so that nothing is removed or moved out of the loop. The
 * loop is unrolled 16 times, and its overhead, a sixteenth of an addition and a branch, counts as part of the range.
 * The errors of pb_measure(). */
pb_status pb_range_cost(pb_ctx *ctx, const pb_measure_opts *o, pb_timing *out);
/* Times the two readings of the clock that a recorded range makes, 2^20 times in each sample: the part of a range's
 * time that the ring cannot reduce. Otherwise as above. */
pb_status pb_clock_cost(pb_ctx *ctx, const pb_measure_opts *o, bool tsc, pb_timing *out);
#endif
