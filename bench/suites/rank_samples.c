/* rank_samples.c - samples of work that several ranks do together, with and without its collectives, eager or as
 * graphs. */
#include "bench/suites/rank_samples.h"

#include <stdlib.h>
#include <string.h>

#include "bench/stats/stats.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"
#include "os/memory.h"
#include "os/where.h"

enum { SPANS = PB_RANK_SPANS, STEP = PB_RANK_STEP };

/* A case while it is sampled. graph: of the step, and of the step without collectives; NULL: eager. room: times of all
 * ranks, [ranks][SPANS], and after them the steps of all ranks, [ranks]. */
typedef struct job {
    const pb_suite_env *env;
    const pb_measure_opts *o;
    const pb_rank_work *work;
    pb_rank_samples *x;
    pb_graph *graph[2];
    double *room;
    bool communicates; /* on a GPU: the graph without pb_comm_skip has collectives */
} job;

static void skip_collectives(const job *j, bool skip)
{
    for (int i = 0; i < 2; i++) pb_comm_skip(j->work->comms[i], skip);
}

/* Does the work once. If the phases are timed, an event precedes each, otherwise there are events around the work. */
static pb_status marked_step(pb_ctx *ctx, job *j, bool skip)
{
    if (j->o->flush) PB_TRY(ctx->be->flush_cache(ctx));
    PB_TRY(ctx->be->mark(ctx, 0));
    if (j->graph[skip]) PB_TRY(pb_replay(ctx, j->graph[skip]));
    else if (!j->x->phases) PB_TRY(j->work->run(ctx, j->work->self));
    for (int i = 0; j->x->phases && i < PB_NPHASES; i++) {
        if (i) PB_TRY(ctx->be->mark(ctx, i));
        PB_TRY(pb_phases[i](ctx, j->work->phases));
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
    double most[SPANS] = {0}, others = 0;
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < SPANS; i++)
            if (all[r * SPANS + i] > most[i]) most[i] = all[r * SPANS + i];
        steps[r] = all[r * SPANS + STEP];
        if (r && steps[r] > others) others = steps[r];
    }
    if (skip) {
        x->without[x->n] = most[STEP];
        return;
    }
    for (int i = 0; i < SPANS; i++) x->span[i][x->n] = most[i];
    x->others[x->n] = others;
    x->spread[x->n] = most[STEP] / pb_median(steps, ranks);
}

/* Takes one sample of the step, with (skip false) or without its collectives. */
static pb_status take(pb_ctx *ctx, job *j, bool skip)
{
    double mine[SPANS];
    pb_lockstep *l = j->env->lockstep;
    const int ranks = j->work->ranks;
    PB_TRY(pb_lockstep_meet(l, PB_OK));
    if (l && l->over) return PB_OK;
    PB_TRY(pb_lockstep_meet(l, time_step(ctx, j, skip, mine)));
    if (l && l->over) return PB_OK;
    PB_TRY(pb_lockstep_gather(l, mine, SPANS, j->room));
    add_sample(j->x, j->room, ranks, skip, j->room + ranks * SPANS);
    pb_heartbeat_send_if_due(j->env->heartbeat);
    return PB_OK;
}

static bool in_pairs(const pb_rank_work *work) { return work->ranks > 1 && !work->always_communicates; }

/* Takes pairs of samples, with and without collectives; which of the two is first alternates. */
static pb_status sample(pb_ctx *ctx, job *j)
{
    const pb_measure_opts *o = j->o;
    double total = 0;
    const pb_lockstep *l = j->env->lockstep;
    const bool pairs = in_pairs(j->work);
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
    pb_status s = pb_record(ctx, j->work->run, j->work->self, &j->graph[skip]);
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
    if (!in_pairs(j->work)) return PB_OK;
    PB_TRY(pb_lockstep_meet(l, record(ctx, j, true)));
    const size_t with = pb_graph_nodes(ctx, j->graph[0]), without = pb_graph_nodes(ctx, j->graph[1]);
    /* Without collectives, as in the optimizer of replicated weights, the graphs are equal. On a CPU they always are: a
     * replayed call sees pb_comm_skip. */
    if (without < with || !j->communicates || ctx->id == PB_CPU) return PB_OK;
    return pb_fail(PB_EDEVICE, "the graph without collectives has %zu nodes, that with them %zu", without, with);
}

static pb_status run(pb_ctx *ctx, job *j)
{
    const pb_measure_opts *o = j->o;
    pb_status s = PB_OK;
    for (int i = 0; i < o->warmup && s == PB_OK; i++) s = j->work->run(ctx, j->work->self);
    PB_TRY(pb_lockstep_meet(j->env->lockstep, s == PB_OK ? pb_sync(ctx) : s));
    if (o->graph) PB_TRY(record_both(ctx, j));
    PB_TRY(sample(ctx, j));
    return o->graph ? PB_OK : read_peak(ctx, &j->x->peak);
}

pb_status pb_rank_samples_take(pb_ctx *ctx, const pb_measure_opts *o, const pb_suite_env *env, const pb_rank_work *work,
                               pb_rank_samples *out)
{
    job j = {.env = env, .o = o, .work = work, .x = out};
    out->phases = !o->graph && work->phases;
    j.room = calloc((size_t)work->ranks * (SPANS + 1), sizeof *j.room);
    pb_status s = j.room ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the times of %d ranks", work->ranks);
    s = pb_lockstep_meet(env->lockstep, s);
    if (s == PB_OK && j.room) s = run(ctx, &j);
    pb_graph_free(ctx, j.graph[0]);
    pb_graph_free(ctx, j.graph[1]);
    free(j.room);
    return s;
}

pb_status pb_rank_samples_emit(pb_emitter *emitter, const pb_case *c, const char *metric, const double *seconds, int n,
                               const char *note)
{
    pb_timing *t = calloc(1, sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for samples");
    t->n = n;
    memcpy(t->seconds, seconds, (size_t)n * sizeof *t->seconds);
    t->median = pb_median_of(seconds, n);
    const pb_status s = pb_emit_timing(emitter, c, metric, t, note);
    free(t);
    return s;
}

pb_status pb_rank_samples_emit_exposed(pb_emitter *emitter, const pb_case *c, const pb_rank_samples *x)
{
    double waited[PB_RANK_SAMPLES];
    for (int i = 0; i < x->n; i++) waited[i] = x->span[STEP][i] - x->without[i];
    return pb_emit(emitter, c, "exposed_communication_time", pb_median_of(waited, x->n), x->n, PB_ROW_OK, "");
}
