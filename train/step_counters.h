/* step_counters.h - --profile-counters: hardware events of the GPU in the steps that the profiler's schedule records on
 * this rank (trace/range_counts.h), in place of traces. Below the folder of --profile-out:
 *
 *     counters/stepN-rankR.csv   the rows of range_counts.h; N: the number of the step in the run
 *
 * GROUP or GROUP:step counts each step as a whole, also while it is a replayed graph. GROUP:phase and GROUP:op count
 * its phases or ops; a replayed graph has no ranges of these, so all ranks run such a step eagerly, even with --mode
 * graph, and column `mode` says so; with --deterministic the results of the step are bitwise identical. Its step_time
 * in the log contains the waits of counting. */
#ifndef PB_STEP_COUNTERS_H
#define PB_STEP_COUNTERS_H
#include "trace/range_counts.h"
#include "train/profiling.h"

typedef struct pb_step_counters {
    bool on; /* false: the option is not given, or this job is not profiled */
    pb_counter_group group;
    pb_range_kind kind;
    pb_range_counts *counts; /* NULL: not open yet */
    long steps;              /* that this process has begun */
    bool now, last;          /* the current step is counted; it is the last one of its window */
    bool eager;              /* the current step runs without graphs because of the option */
    pb_status status;        /* the first failure, with its message; after it nothing more is counted */
    char why[256];
} pb_step_counters;

/* Checks the option, before anything is written. Agrees with the other ranks. EINVAL: no --profile-ranks;
 * --profile-on-demand, --profile-sampling or --capture-gradients besides; no such group or kind; a group that is of a
 * CPU or sampled, or one of more passes than the one that a step has; the steps do not run on a GPU. */
pb_status pb_step_counters_check(const pb_job *j, pb_step_counters *out);
/* Makes the folder, after the check and pb_profiling_open(). Agrees with the other ranks. EINVAL, EPATH, EIO. */
pb_status pb_step_counters_open(const pb_job *j, const pb_profiling *p, pb_step_counters *c);
/* Call it before and after every step. *eager is set if the step must run eagerly, else it stays as it is. A failure to
 * count does not stop training: the first call that fails returns its status, once, and pb_step_counters_close() does
 * again. */
pb_status pb_step_counters_begin(pb_step_counters *c, const pb_job *j, const pb_profiling *p, bool *eager);
pb_status pb_step_counters_end(pb_step_counters *c, const pb_job *j, long number);
/* Returns s, the status of the run, if it is a failure, whose message then stays; else the first failure to count. {0} is
 * allowed. */
pb_status pb_step_counters_close(pb_step_counters *c, pb_status s);
#endif
