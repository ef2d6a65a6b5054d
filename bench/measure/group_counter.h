/* group_counter.h - counts the events of a metric group in calls of a case, and emits its metrics as rows.
 *
 * Every case is called PB_REPLAYS times with the same inputs, and each call is counted by itself (A/A). A metric's
 * value is the median of the calls; if they differ, its note has the least and the largest value. An exact counter
 * (EXACT in metrics.def) has a value only if all calls agree within its bound, so that it gates nothing that it cannot
 * repeat. A metric that was not measured has no value, and its note says why: never 0. */
#ifndef PB_GROUP_COUNTER_H
#define PB_GROUP_COUNTER_H
#include "bench/measure/cpu_counters.h"
#include "bench/measure/emit.h"
#include "kernels/engine/op.h"
#include "trace/gpu_counters.h"

enum { PB_REPLAYS = 10 };

typedef struct pb_group_counter {
    pb_counter_group group;
    pb_cpu_counters cpu;
    pb_gpu_counters *gpu; /* NULL: the group is of the CPU */
    size_t l2;            /* bytes of the GPU's L2; 0: not known */
    int n;                /* calls of the last case that were counted */
    double counts[PB_REPLAYS][PB_GROUP_EVENTS];
    char why[PB_COUNTS_WHY]; /* why a call has no counts; "": all have */
} pb_group_counter;

/* Finds a group, and checks that metrics.def has its metrics with the same units, and that the group is for this
 * backend. Opens nothing. EINVAL, EPATH: see pb_group_find(); or the group is one that is sampled, or a metric or the
 * backend is wrong. */
pb_status pb_group_counter_find(const char *name, pb_backend_id device, pb_counter_group *out);
/* Opens the counters of a group for the calling thread, whose device ctx has open. The caller closes *out. The errors
 * of pb_group_counter_find(), pb_cpu_counters_open() and pb_gpu_counters_open(). */
pb_status pb_group_counter_open(const char *name, const pb_ctx *ctx, pb_group_counter *out);
void pb_group_counter_close(pb_group_counter *c);

/* Around one call (pb_measure); ran: the call succeeded. The errors of the functions that count. */
pb_status pb_group_counter_begin(pb_group_counter *c);
pb_status pb_group_counter_end(pb_group_counter *c, bool ran);

/* Emits a row for each metric of the group. bytes: of the tensors that the call must read and write, by the op's cost
 * function; 0: not known. */
pb_status pb_emit_group(pb_emitter *e, const pb_case *c, const pb_group_counter *counter, double bytes);
/* Emits counter_error: |counted - known| / known, for the metric of the group that is counted. Beyond its bound the row
 * is wrong. */
pb_status pb_emit_counter_error(pb_emitter *e, const pb_case *c, const pb_group_counter *counter, const char *metric,
                                double known);
#endif
