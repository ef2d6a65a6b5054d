/* rank_samples.c - samples of the step of several ranks, with and without its collectives, eager or as graphs. */
#include "bench/suites/rank_samples.h"

#include <stdlib.h>
#include <string.h>

#include "bench/stats/stats.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"
#include "os/memory.h"
#include "os/where.h"

enum { SPANS = PB_RANK_SPANS, STEP = PB_RANK_STEP };

/* A case while it is sampled. graph: of the step, and of the step without collectives; NULL: eager. room: times of all
 * ranks, [ranks][SPANS], and after them the steps of all ranks, [ranks]. */
typedef struct job {
    const pb_suite_env *env;
    pb_comm *comm;
    pb_rank_steps *steps;
    pb_rank_samples *x;
    pb_graph *graph[2];
    double *room;
    bool communicates; /* on a GPU: the graph without pb_comm_skip has collectives */
} job;

pb_measure_opts pb_rank_measure_opts(const pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){.warmup = 1,
                                                                   .min_samples = 5,
                                                                   .max_samples = PB_RANK_SAMPLES,
                                                                   .min_time = ctx->id == PB_CPU ? 1.5 : 0.4});
    o.graph = pb_train_case_graph(c);
    return o;
}

/* Leaves out the collectives over all ranks, and those of the ranks that share rows. */
static void skip_collectives(const job *j, bool skip)
{
    pb_comm_skip(j->comm, skip);
    pb_comm_skip(pb_trainer_config(j->steps->t)->context, skip);
}

/* Runs one step. If the phases are measured, an event precedes each, otherwise there are events around the step. */
static pb_status marked_step(pb_ctx *ctx, job *j, bool skip)
{
    PB_TRY(ctx->be->mark(ctx, 0));
    if (j->graph[skip]) PB_TRY(pb_replay(ctx, j->graph[skip]));
    else if (!j->x->phases) PB_TRY(pb_rank_timed(ctx, j->steps));
    for (int i = 0; j->x->phases && i < PB_NPHASES; i++) {
        if (i) PB_TRY(ctx->be->mark(ctx, i));
        PB_TRY(pb_phases[i](ctx, j->steps->t));
    }
    PB_TRY(ctx->be->mark(ctx, PB_NPHASES));
    return pb_sync(ctx);
}

static pb_status time_step(pb_ctx *ctx, job *j, bool skip, double mine[SPANS])
{
    memset(mine, 0, SPANS * sizeof *mine);
    skip_collectives(j, skip);
    const pb_status s = marked_step(ctx, j, skip);
    skip_collectives(j, false);
    PB_TRY(s);
    for (int i = 0; j->x->phases && i < PB_NPHASES; i++) PB_TRY(ctx->be->between(ctx, i, i + 1, &mine[i]));
    return ctx->be->between(ctx, 0, PB_NPHASES, &mine[STEP]);
}

/* Adds the times of all ranks, all[ranks][SPANS], as sample x->n. */
static void add_sample(pb_rank_samples *x, const double *all, int ranks, bool skip, double *steps)
{
    double most[SPANS] = {0};
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < SPANS; i++)
            if (all[r * SPANS + i] > most[i]) most[i] = all[r * SPANS + i];
        steps[r] = all[r * SPANS + STEP];
    }
    if (skip) {
        x->without[x->n] = most[STEP];
        return;
    }
    for (int i = 0; i < SPANS; i++) x->span[i][x->n] = most[i];
    x->spread[x->n] = most[STEP] / pb_median(steps, ranks);
}

/* Takes one sample of the step, with (skip false) or without its collectives. */
static pb_status take(pb_ctx *ctx, job *j, bool skip)
{
    double mine[SPANS];
    pb_lockstep *l = j->env->lockstep;
    const int ranks = j->steps->ranks;
    PB_TRY(pb_lockstep_meet(l, PB_OK));
    if (l && l->over) return PB_OK;
    PB_TRY(pb_lockstep_meet(l, time_step(ctx, j, skip, mine)));
    if (l && l->over) return PB_OK;
    PB_TRY(pb_lockstep_gather(l, mine, SPANS, j->room));
    add_sample(j->x, j->room, ranks, skip, j->room + ranks * SPANS);
    pb_heartbeat_send_if_due(j->env->heartbeat);
    return PB_OK;
}

/* Takes pairs of samples, with and without collectives; which of the two is first alternates. */
static pb_status sample(pb_ctx *ctx, job *j, const pb_measure_opts *o)
{
    double total = 0;
    const pb_lockstep *l = j->env->lockstep;
    const bool pairs = j->steps->ranks > 1;
    for (int n = 0; n < o->max_samples && n < PB_RANK_SAMPLES; n++) {
        if (n >= o->min_samples && total >= o->min_time) break;
        for (int half = 0; half < (pairs ? 2 : 1); half++) {
            PB_TRY(take(ctx, j, pairs && (n + half) % 2));
            if (pb_interrupted() || (l && l->over)) return PB_OK;
        }
        total += j->x->span[STEP][n];
        j->x->n++;
    }
    return PB_OK;
}

static pb_status read_peak(const pb_ctx *ctx, double *peak)
{
    *peak = (double)ctx->held_peak;
    return ctx->id == PB_CPU ? pb_memory_peak(peak) : PB_OK;
}

/* Records a graph of the step, and replays it once, which uploads it. */
static pb_status record(pb_ctx *ctx, job *j, bool skip)
{
    const double start = pb_clock_seconds();
    const uint64_t collectives = pb_where_sequence();
    skip_collectives(j, skip);
    pb_status s = pb_record(ctx, pb_rank_timed, j->steps, &j->graph[skip]);
    skip_collectives(j, false);
    if (!skip) j->communicates = pb_where_sequence() != collectives;
    if (!skip) j->x->record_seconds = pb_clock_seconds() - start;
    if (s == PB_OK) s = pb_replay(ctx, j->graph[skip]);
    return s == PB_OK ? pb_sync(ctx) : s;
}

/* Records both graphs. The peak of memory is read between them, because users have one. */
static pb_status record_both(pb_ctx *ctx, job *j)
{
    pb_lockstep *l = j->env->lockstep;
    PB_TRY(pb_lockstep_meet(l, record(ctx, j, false)));
    PB_TRY(read_peak(ctx, &j->x->peak));
    if (j->steps->ranks == 1) return PB_OK;
    PB_TRY(pb_lockstep_meet(l, record(ctx, j, true)));
    const size_t with = pb_graph_nodes(ctx, j->graph[0]), without = pb_graph_nodes(ctx, j->graph[1]);
    /* Without collectives, as in the optimizer of replicated weights, the graphs are equal. On a CPU they always are: a
     * replayed call sees pb_comm_skip. */
    if (without < with || !j->communicates || ctx->id == PB_CPU) return PB_OK;
    return pb_fail(PB_EDEVICE, "the graph without collectives has %zu nodes, that with them %zu", without, with);
}

static pb_status run(pb_ctx *ctx, job *j, const pb_measure_opts *o)
{
    for (int i = 0; i < o->warmup; i++) PB_TRY(pb_rank_timed(ctx, j->steps));
    PB_TRY(pb_lockstep_meet(j->env->lockstep, pb_sync(ctx)));
    if (o->graph) PB_TRY(record_both(ctx, j));
    PB_TRY(sample(ctx, j, o));
    return o->graph ? PB_OK : read_peak(ctx, &j->x->peak);
}

pb_status pb_rank_samples_take(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_rank_steps *steps,
                               pb_rank_samples *out)
{
    const pb_measure_opts o = pb_rank_measure_opts(ctx, c, env);
    job j = {.env = env, .comm = env->lockstep ? env->lockstep->comm : NULL, .steps = steps, .x = out};
    out->phases = !o.graph && steps->parts == 1 && !steps->part;
    j.room = calloc((size_t)steps->ranks * (SPANS + 1), sizeof *j.room);
    pb_status s = j.room ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the times of %d ranks", steps->ranks);
    s = pb_lockstep_meet(env->lockstep, s);
    if (s == PB_OK && j.room) s = run(ctx, &j, &o);
    pb_graph_free(ctx, j.graph[0]);
    pb_graph_free(ctx, j.graph[1]);
    free(j.room);
    return s;
}
