/* profiling.h - opens the profiling of a training run (trace/profile.h) from its options. */
#ifndef PB_PROFILING_H
#define PB_PROFILING_H
#include "train/job.h"
#include "ranks/topology.h"
#include "trace/choose.h"
#include "trace/profile.h"

typedef struct pb_profiling {
    pb_profile *p;     /* NULL: this job is not profiled */
    pb_clocks *clocks; /* compared with rank 0's; NULL: one rank */
    pb_topology topology;
    int *node;         /* [ranks] */
    const char **host; /* [ranks] */
    pb_chosen chosen;  /* the ranks that are profiled, and the steps */
    pb_profile_steps steps;
    bool on_demand;            /* windows open on demand; `steps` is no schedule */
    pb_counter_group sampling; /* of --profile-sampling */
    char device[32], libraries[204];
    char
        why[560]; /* a line that says which ranks are profiled, why, in which steps, and where to; "": none asked for */
} pb_profiling;

/* --profile-ranks, or PB_PROFILE_RANKS if that option is not given; NULL: neither is. */
const char *pb_profiling_ranks(const pb_job *j);
/* Agrees with the other ranks that the options of profiling have an effect. EINVAL: one has none, because no rank is
 * profiled; EINVAL on all ranks if that is so on one. */
pb_status pb_profiling_check(const pb_job *j);
/* Profiles the ranks of pb_profiling_ranks(), if any. A value of PB_PROFILE_RECORDS keeps the
 * records (trace/records.h), for tests. Agrees with the other ranks. EINVAL, EPATH, EIO, ENOMEM. */
pb_status pb_profiling_open(const pb_job *j, pb_profiling *out);
/* Returns how many steps pass before the first one that the schedule records; -1: there is no schedule. */
long pb_profiling_first(const pb_profiling *p);
/* If the next step begins to record, writes a line about the expected size of its trace. launches: what the host
 * enqueued in the step that has just ended, with `replays` graphs among them, which have `nodes` nodes each. */
enum { PB_PROFILING_TEXT = 320 };
bool pb_profiling_expects(const pb_profiling *p, double launches, double replays, double nodes,
                          char out[PB_PROFILING_TEXT]);
/* True if the schedule records step `step` of this process (0, 1, ...), and this rank is one of those it records. */
bool pb_profiling_chosen(const pb_profiling *p, int rank, long step);
/* Waits until the traces are written. The status of pb_profile_close(). {0} is allowed. */
pb_status pb_profiling_close(pb_profiling *p);
#endif
