/* profile_ranks.h - suite profile on several ranks: what recording on some ranks costs them, and the others, which wait
 * for them in every collective.
 *
 * Axis recorders says which ranks record: `first` (rank 0) or `all`. Level off has no such axis. Every rank measures
 * its own step; a sample is taken by all ranks together (rank_samples.h). */
#ifndef PB_PROFILE_RANKS_H
#define PB_PROFILE_RANKS_H
#include "bench/suites/profile_level.h"
#include "bench/suites/suite_env.h"

/* Checks axis recorders of a case. EINVAL. */
pb_status pb_profile_ranks_check(const pb_case *c, pb_level level);
/* Measures a case of several ranks (env->lockstep) at a level, and emits step_time, of the slowest rank, and where not
 * all ranks record, other_ranks_time, of the slowest one but rank 0. Every rank calls it. */
pb_status pb_profile_ranks_run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_level level);
#endif
