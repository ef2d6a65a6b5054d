/* profile_ranks.c - implements profile_ranks.h. */
#include "bench/suites/profile_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/suites/rank_samples.h"
#include "bench/suites/rank_steps.h"
#include "bench/suites/train_case.h"

/* A case while it is measured. */
typedef struct job {
    const pb_case *c;
    const pb_suite_env *env;
    pb_trainer *t;
    pb_levelled l; /* of this rank */
    pb_rank_samples x;
} job;

pb_status pb_profile_ranks_check(const pb_case *c, pb_level level)
{
    const char *recorders = pb_case_get(c, "recorders");
    if (!pb_case_get(c, "ranks"))
        return !recorders ? PB_OK : pb_fail(PB_EINVAL, "recorders=%.40s needs several ranks: --ranks N", recorders);
    PB_TRY(pb_rank_steps_check(c));
    if (level == PB_LEVEL_off)
        return !recorders ? PB_OK : pb_fail(PB_EINVAL, "recorders=%.40s: at level=off no rank records", recorders);
    if (!recorders)
        return pb_fail(PB_EINVAL, "level=%s: which ranks record? recorders=first or all", pb_case_get(c, "level"));
    if (!pb_case_is(c, "recorders", "first") && !pb_case_is(c, "recorders", "all"))
        return pb_fail(PB_EINVAL, "recorders=%.40s: need first or all", recorders);
    return PB_OK;
}

static pb_status open_trainer(pb_ctx *ctx, job *j)
{
    pb_train_config cfg;
    const pb_lockstep *l = j->env->lockstep;
    PB_TRY(pb_train_case_config(j->c, &cfg));
    cfg.comm = l->comm;
    PB_TRY(pb_train_case_shape(j->c, &cfg));
    PB_TRY(pb_train_case_trainer(ctx, j->c, &cfg, &j->t));
    PB_TRY(pb_trainer_shard(j->t));
    return pb_train_case_micro_batch(j->c, j->t, 0, (size_t)pb_lockstep_size(l), (size_t)pb_world_rank(l->world));
}

static pb_status take(pb_ctx *ctx, job *j)
{
    pb_measure_opts o = pb_env_measure_opts(
        j->env, (pb_measure_opts){.warmup = 3, .min_samples = 10, .max_samples = PB_RANK_SAMPLES, .min_time = 1});
    pb_rank_steps step = {.c = j->c, .t = j->t, .ranks = pb_lockstep_size(j->env->lockstep), .parts = 1};
    const pb_rank_work work = {.run = pb_rank_step, .self = &step, .ranks = step.ranks, .always_communicates = true};
    o.graph = pb_train_case_graph(j->c);
    return pb_rank_samples_take(ctx, &o, j->env, &work, &j->x);
}

/* recording: the number of ranks that have recorded. */
static pb_status emit(job *j, double recording, double dropped, double loss)
{
    char note[160] = "";
    pb_emitter *e = j->env->emitter;
    const pb_rank_samples *x = &j->x;
    if (recording > 0)
        snprintf(note, sizeof note, "recorded on %.0f of %d ranks; rank 0: %zu ranges, %zu records of the GPU",
                 recording, pb_lockstep_size(j->env->lockstep), j->l.ranges, j->l.records);
    if (dropped > 0) {
        snprintf(note, sizeof note, "%.0f records or samples of the GPU were lost: a complete recording costs more",
                 dropped);
        return pb_emit(e, j->c, "step_time", (double)NAN, 0, PB_ROW_FAILED, note);
    }
    PB_TRY(pb_rank_samples_emit(e, j->c, "step_time", x->span[PB_RANK_STEP], x->n, note));
    if (!pb_case_is(j->c, "recorders", "all"))
        PB_TRY(pb_rank_samples_emit(e, j->c, "other_ranks_time", x->others, x->n, ""));
    return pb_emit(e, j->c, "loss", loss, 0, isfinite(loss) ? PB_ROW_OK : PB_ROW_WRONG,
                   isfinite(loss) ? "of rank 0's micro-batch" : "not finite");
}

static pb_status measure(pb_ctx *ctx, job *j)
{
    PB_TRY(pb_lockstep_meet(j->env->lockstep, open_trainer(ctx, j)));
    return take(ctx, j);
}

/* Ends the level of this rank. After a failure s it is only ended: what was recorded then is not judged, so that the
 * message of the failure is kept. */
static pb_status end_level(pb_ctx *ctx, job *j, pb_status s)
{
    char why[512];
    snprintf(why, sizeof why, "%s", s != PB_OK ? pb_error() : "");
    const pb_status ended = pb_level_end(ctx, &j->l);
    return s != PB_OK ? pb_fail(s, "%s", why) : ended;
}

/* Begins the level, measures, and ends the level on every rank whatever happened. Level before trainer: CUPTI names the
 * op of a graph's node only if it saw the capture. */
static pb_status run(pb_ctx *ctx, job *j, pb_level level)
{
    pb_lockstep *lockstep = j->env->lockstep;
    double recording, dropped, loss = 0;
    pb_status s = pb_level_begin(ctx, level, false, &j->l);
    const bool begun = s == PB_OK;
    s = pb_lockstep_meet(lockstep, s);
    if (s == PB_OK) s = measure(ctx, j);
    const bool measured = s == PB_OK;
    if (begun) s = end_level(ctx, j, s);
    if (!measured) return s;
    PB_TRY(pb_lockstep_meet(lockstep, s));
    if (lockstep->over || !j->x.n) return PB_OK; /* a rank was interrupted */
    recording = j->l.ranges > 0;
    dropped = (double)j->l.dropped;
    PB_TRY(pb_lockstep_sum(lockstep, &recording));
    PB_TRY(pb_lockstep_sum(lockstep, &dropped));
    PB_TRY(pb_lockstep_meet(lockstep, pb_trainer_loss(j->t, &loss)));
    return emit(j, recording, dropped, loss);
}

pb_status pb_profile_ranks_run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_level level)
{
    const bool records = pb_lockstep_leads(env->lockstep) || pb_case_is(c, "recorders", "all");
    job *j = calloc(1, sizeof *j);
    pb_status s = pb_lockstep_meet(env->lockstep, j ? PB_OK : pb_fail(PB_ENOMEM, "no memory for samples"));
    if (s == PB_OK && j) {
        j->c = c, j->env = env;
        s = run(ctx, j, records ? level : PB_LEVEL_off);
        pb_trainer_close(j->t);
    }
    free(j);
    return s;
}
