/* strike_train.c - makes one rank of a job die, stop, fail or compute NaN at a chosen point. The program train_struck
 * is `train` linked with this file's wrappers. The environment variable PB_STRIKE holds "RANK STEP WHERE HOW":
 *     STEP   completed steps before the struck one, for `drag` before the first of them
 *     WHERE  recording (an op while the step is recorded), replay (a collective of a replayed step; for `fail`, `hang` and
 *            `slow`, and on a GPU, the replay itself), checkpoint (while the state is read), evaluation (an op), export
 *            (while weights are read; `slow` only), optimizer (the orthogonalisations of an eager step on a CPU; `nan` only),
 *            forward (its first op; `drag` only)
 *     HOW    kill (SIGKILL), stop (SIGSTOP), hang (the thread waits forever), slow (the call takes three seconds), fail
 *            (the call returns EDEVICE), nan (the first element of the result is NaN),
 *            drag (the device works 60 ms longer, also in replays)
 * Rank R writes into the file TMPDIR/eventsR when communicators are aborted and closed, and graphs freed. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/comm/backend.h"
#include "kernels/embedding/embedding.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "os/where.h"
#include "trainer/step/graphs.h"

/* The linker's --wrap option prescribes these reserved names. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
pb_status __real_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
pb_status __real_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
pb_status __real_pb_replay(pb_ctx *ctx, pb_graph *graph);
pb_status __real_pb_comm_perform(pb_comm *c, const pb_comm_call *call);
pb_status __wrap_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
pb_status __wrap_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
pb_status __wrap_pb_replay(pb_ctx *ctx, pb_graph *graph);
pb_status __wrap_pb_comm_perform(pb_comm *c, const pb_comm_call *call);
void __real_pb_graphs_free(pb_graphs *g, pb_ctx *ctx);
void __real_pb_comm_abort(pb_comm *comm);
void __real_pb_comm_close(pb_comm *comm);
void __wrap_pb_graphs_free(pb_graphs *g, pb_ctx *ctx);
void __wrap_pb_comm_abort(pb_comm *comm);
void __wrap_pb_comm_close(pb_comm *comm);

/* This process's rank, by the variables of mpirun or srun; NULL: it was started alone. */
static const char *own_rank(void)
{
    const char *mpirun = getenv("OMPI_COMM_WORLD_RANK");
    return mpirun ? mpirun : getenv("PMIX_RANK");
}

/* True if this call, at `here`, is the chosen point, and the chosen strike is a word of `how`; returns it in chosen. */
static bool is_chosen(const char *here, const char *how, char chosen[8])
{
    char where[32];
    int rank;
    long long step;
    pb_where at;
    const char *text = getenv("PB_STRIKE"), *own = own_rank();
    if (!text || !own || sscanf(text, "%d %lld %31s %7s", &rank, &step, where, chosen) != 4) return false;
    pb_where_read(&at);
    const bool in_step = strcmp(chosen, "drag") == 0 ? at.step >= step : at.step == step;
    if (atoi(own) != rank || !in_step || strcmp(where, here) != 0 || !strstr(how, chosen)) return false;
    return strcmp(here, "recording") == 0 || (at.phase && strcmp(at.phase, here) == 0);
}

/* Strikes at the first call at the chosen point, but a signal comes at the third call (of a replay, which has fewer, at
 * the first). The heartbeats of the time before a signal tell the monitor where this rank is. */
static pb_status strike(const char *here, const char *how)
{
    char chosen[8];
    static int calls;
    if (!is_chosen(here, how, chosen)) return PB_OK;
    if (strcmp(chosen, "fail") == 0) return pb_fail(PB_EDEVICE, "struck while in %s", here);
    if (++calls != (strcmp(here, "replay") == 0 ? 1 : 3)) return PB_OK;
    if (strcmp(chosen, "slow") == 0) return nanosleep(&(struct timespec){.tv_sec = 3}, NULL) == 0 ? PB_OK : PB_EIO;
    (void)nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
    while (strcmp(chosen, "hang") == 0) (void)pause();
    return raise(strcmp(chosen, "kill") == 0 ? SIGKILL : SIGSTOP) == 0 ? PB_OK : PB_EIO;
}

pb_status __wrap_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args)
{
    char chosen[8];
    if (op == &pb_op_embedding_fwd && is_chosen("forward", "drag", chosen)) PB_TRY(ctx->be->delay(ctx, 60e-3));
    else if (op == &pb_op_embedding_fwd && getenv("PB_STRIKE") && !ctx->recording)
        PB_TRY(ctx->be->delay(ctx, 0)); /* a delay that is recorded must not be the first one */
    if (!ctx->planning) PB_TRY(strike(ctx->recording ? "recording" : "evaluation", "kill stop fail"));
    PB_TRY(__real_pb_op_run(ctx, op, args));
    const pb_newton_schulz_run_args *a = args;
    if (op == &pb_op_newton_schulz_run && ctx->id == PB_CPU && !ctx->planning && is_chosen("optimizer", "nan", chosen))
        pb_store(a->y, 0, a->dtype, (double)NAN);
    return PB_OK;
}

pb_status __wrap_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes)
{
    PB_TRY(strike("checkpoint", "kill stop fail"));
    PB_TRY(strike("export", "slow"));
    return __real_pb_download(ctx, host, dev, bytes);
}

pb_status __wrap_pb_replay(pb_ctx *ctx, pb_graph *graph)
{
    PB_TRY(strike("replay", ctx->id == PB_CPU ? "fail hang slow" : "kill stop fail hang slow"));
    return __real_pb_replay(ctx, graph);
}

pb_status __wrap_pb_comm_perform(pb_comm *c, const pb_comm_call *call)
{
    PB_TRY(strike("replay", "kill stop"));
    return __real_pb_comm_perform(c, call);
}
/* Adds a word to the file TMPDIR/eventsR of rank R. */
static void note(const char *event)
{
    char path[4096];
    const char *dir = getenv("TMPDIR"), *own = own_rank();
    if (!dir || !own) return;
    (void)snprintf(path, sizeof path, "%s/events%s", dir, own);
    FILE *f = fopen(path, "a");
    if (!f) return;
    (void)fprintf(f, "%s ", event);
    (void)fclose(f);
}

void __wrap_pb_graphs_free(pb_graphs *g, pb_ctx *ctx)
{
    note("graphs");
    __real_pb_graphs_free(g, ctx);
}

void __wrap_pb_comm_abort(pb_comm *comm)
{
    note("abort");
    __real_pb_comm_abort(comm);
}

void __wrap_pb_comm_close(pb_comm *comm)
{
    if (comm && comm->priv) note("close");
    __real_pb_comm_close(comm);
}
/* NOLINTEND(bugprone-reserved-identifier) */
