/* rank.h - a measuring process as one of several ranks: connects it to the others and to the launcher. */
#ifndef PB_RANK_H
#define PB_RANK_H
#include "bench/measure/measure.h"
#include "bench/options/options.h"

typedef struct pb_rank {
    pb_lockstep lockstep;
    bool joined;
} pb_rank;

/* Joins the monitor of the launcher (launch/member.h) and the other ranks. Fails on all ranks if it fails on one: the
 * ranks were not started by bench, or this build has no MPI. EINVAL, EUNSUPPORTED, EIO. */
pb_status pb_rank_join(const pb_options *o, pb_rank *r);
/* Opens this rank's device, the GPU with the number of the rank on its host, and the communicator of all ranks. Fails
 * on all ranks if it fails on one: EINVAL if two ranks use the same GPU; otherwise as pb_ctx_open and pb_comm_open. */
pb_status pb_rank_open_device(pb_rank *r, pb_backend_id device, pb_ctx *ctx);
void pb_rank_close_device(pb_rank *r, pb_ctx *ctx);
/* Leaves the job; returns the exit code with which this rank must end. */
int pb_rank_leave(pb_rank *r, int code);
#endif
