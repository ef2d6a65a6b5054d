/* lockstep.h - several ranks that measure the same cases together: sample by sample, with one result.
 *
 * Every rank calls the functions below in the same order: for each case pb_lockstep_begin, then around each sample
 * pb_lockstep_meet and pb_lockstep_slowest, and at the end pb_lockstep_end. Each call is one exchange between all ranks
 * over TCP (ranks/world.h), never timed. It passes on what every rank must know to continue in the same way: whether a
 * rank was interrupted, and whether a rank has ended the case because of a failure, in which case no rank takes another
 * sample and all of them get that rank's failure.
 *
 * The time of a sample is that of the slowest rank, so every rank sees the same samples and takes the same number.
 * NULL stands for one rank wherever a function takes a pb_lockstep; it then does nothing. */
#ifndef PB_LOCKSTEP_H
#define PB_LOCKSTEP_H
#include "kernels/comm/comm.h"

typedef struct pb_lockstep {
    pb_world *world;
    pb_comm *comm; /* of all ranks, over the device */
    bool over;     /* the current case: a rank has ended it, so no rank takes another sample */
    bool broken;   /* a rank is gone: no further exchange is possible */
} pb_lockstep;

static inline int pb_lockstep_size(const pb_lockstep *l) { return l ? pb_world_size(l->world) : 1; }
/* True for rank 0, which alone writes rows, marks progress and prints. */
static inline bool pb_lockstep_leads(const pb_lockstep *l) { return !l || pb_world_rank(l->world) == 0; }

/* All functions: EIO if a rank is gone (`broken`). */

/* Begins a case, if rank 0 passes go = true; *go becomes what rank 0 passed. */
pb_status pb_lockstep_begin(pb_lockstep *l, bool *go);
/* A barrier. Each rank passes the status of what it did before; if one of them failed, every rank returns the status
 * and the message of the first one. If l->over is set afterwards, the caller takes no sample and returns PB_OK: a rank
 * was interrupted. */
pb_status pb_lockstep_meet(pb_lockstep *l, pb_status mine);
/* Replaces the times of a sample by the largest of all ranks. */
pb_status pb_lockstep_slowest(pb_lockstep *l, double *seconds, double *host);
/* Ends the case with this rank's status; returns the status that all ranks share, with its message. */
pb_status pb_lockstep_end(pb_lockstep *l, pb_status mine);
/* Gathers n numbers of every rank: all[size][n]. The caller has just returned from a pb_lockstep_meet that succeeded
 * and did not set l->over, so that no rank is elsewhere. */
pb_status pb_lockstep_gather(pb_lockstep *l, const double *mine, int n, double *all);
/* Adds up a count of all ranks. */
pb_status pb_lockstep_sum(pb_lockstep *l, double *count);
#endif
