/* rank.c - connects a measuring process to the other ranks, and leaves them. */
#include "bench/run/rank.h"

#include <stdlib.h>
#include <string.h>

#include "bench/run/run_json.h"
#include "launch/member.h"
#include "ranks/start.h"

static const char *environment(const char *name) { return getenv(name); }

/* Called in the helper thread when a rank is lost: collectives that wait for it end with an error. */
static void end_collectives(void *self, int code, const char *why)
{
    (void)code, (void)why;
    pb_comm_abort(((pb_rank *)self)->lockstep.comm);
}

pb_status pb_rank_join(const pb_options *o, pb_rank *r)
{
    /* The supervisor of bench ends ranks that wait too long, so they wait without a limit of their own. */
    const pb_world_options w = {.version = pb_run_commit(), .mpi = strcmp(o->device, "cpu") == 0, .timeout = 1e6};
    pb_start start;
    PB_TRY(pb_start_read(environment, false, &start));
    if (start.size != o->ranks || !pb_launched())
        return pb_fail(PB_EINVAL, "--ranks %ld, but %s started %d", o->ranks, start.by ? start.by : "nothing",
                       start.size);
    PB_TRY(pb_launch_join(&(pb_launch_self){pb_start_rank(environment), start.size, o->device}, NULL));
    r->joined = true;
    return pb_world_open(&w, &r->lockstep.world);
}

static pb_status open_both(pb_rank *r, pb_backend_id device, pb_ctx *ctx, bool *open)
{
    pb_world *w = r->lockstep.world;
    pb_device_facts facts = {0};
    const int local = device == PB_CPU ? 0 : pb_world_local_rank(w);
    const pb_status s = device == PB_CPU ? PB_OK : pb_backend_facts(device, local, &facts);
    PB_TRY(pb_world_agree(w, "looking for the devices", s));
    PB_TRY(pb_world_check_devices(w, facts.bus));
    const pb_status o = pb_ctx_open(ctx, device, local);
    *open = o == PB_OK;
    PB_TRY(pb_world_agree(w, "opening the devices", o));
    return pb_comm_open(w, ctx, "bench", 0, pb_world_rank(w), &r->lockstep.comm);
}

pb_status pb_rank_open_device(pb_rank *r, pb_backend_id device, pb_ctx *ctx)
{
    bool open = false;
    const pb_status s = open_both(r, device, ctx, &open);
    if (s == PB_OK) pb_launch_on_lost(end_collectives, r);
    else if (open) pb_ctx_close(ctx);
    return s;
}

void pb_rank_close_device(pb_rank *r, pb_ctx *ctx)
{
    pb_launch_on_lost(NULL, NULL);
    pb_comm_close(r->lockstep.comm);
    r->lockstep.comm = NULL;
    pb_ctx_close(ctx);
}

int pb_rank_leave(pb_rank *r, int code)
{
    pb_world_close(r->lockstep.world);
    r->lockstep.world = NULL;
    if (!r->joined) return code;
    if (pb_launch_lost() >= 0) code = pb_launch_lost(); /* the monitor's decision is the same on all ranks */
    pb_launch_leave(code);
    return code;
}
