/* choose.h - which ranks of a job are profiled, and in which steps; pure functions of the options and the topology, so
 * every rank computes the same answer, or the same error, without communication.
 *
 * Ranks (--profile-ranks, PB_PROFILE_RANKS):
 *     auto            up to four ranks: all. More, with pipeline stages: the first rank (coordinate 0 on the other
 *                     axes) of the first, the middle (number PP/2) and the last stage; {0,32,48} of 64 ranks with PP 4.
 *                     More, without stages: 0, N/2 and N-1
 *     none, all
 *     0,32,48  0-7    ranks and ranges of ranks
 *     pp:0,mid,last   the first rank of each of these stages; likewise tp:, cp:, ep:, dp:
 *     node:2          every rank of a host; hosts are numbered by their lowest rank
 * A prefix holds for the words after it, up to the next prefix; `rank:` begins a list of ranks again. Rank 0 is always
 * added, except to `none`: analyses need it as the reference.
 *
 * Steps (--profile-steps SKIP:WAIT:WARMUP:ACTIVE:REPEAT, the schedule of torch.profiler): after SKIP steps of the
 * process, cycles of WAIT steps without profiling, WARMUP steps that are profiled and discarded, and ACTIVE steps that
 * are written; REPEAT cycles, 0: until the end. Words at the end may be left out: REPEAT is then 1, ACTIVE 1, others
 * 0. */
#ifndef PB_TRACE_CHOOSE_H
#define PB_TRACE_CHOOSE_H
#include <stdbool.h>

#include "ranks/topology.h"

typedef struct pb_chosen {
    bool *rank; /* [ranks], owned */
    int ranks, count;
    char why[200]; /* one line: the ranks and the reason, such as "ranks 0,32,48: the first rank of ..." */
} pb_chosen;

/* node[rank]: the number of its host, 0..; NULL: all ranks are on one host. EINVAL: a word that is not in the table
 * above, or a rank, coordinate or host that does not exist; the message names it. ENOMEM. */
pb_status pb_choose_ranks(const char *text, const pb_topology *t, const int *node, pb_chosen *out);
void pb_chosen_free(pb_chosen *c); /* {0} is allowed */

typedef struct pb_profile_steps {
    long skip, wait, warmup, active, repeat;
} pb_profile_steps;

/* EINVAL: not one to five whole numbers, or ACTIVE is 0. */
pb_status pb_choose_steps(const char *text, pb_profile_steps *out);

typedef enum pb_profile_phase { PB_PROFILE_OFF, PB_PROFILE_WARM, PB_PROFILE_ON } pb_profile_phase;

/* Says whether step `step` of this process (0, 1, ...) is profiled. *first, *last: it begins or ends an active part. */
pb_profile_phase pb_profile_phase_of(const pb_profile_steps *s, long step, bool *first, bool *last);
#endif
