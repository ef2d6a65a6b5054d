/* rank_steps.c - measures the data parallel step of several ranks, with and without its collectives, and that of one
 * rank alone. */
#include "bench/suites/rank_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/stats.h"
#include "bench/suites/rank_samples.h"
#include "bench/suites/train_case.h"
#include "os/interrupt.h"
#include "os/memory.h"
#include "trainer/parallel/context.h"

/* A case while it is measured. */
typedef struct job {
    const pb_case *c;
    const pb_suite_env *env;
    pb_rank_steps steps;
    pb_rank_results one; /* rank 0: of one rank alone; norm NULL: none, for lack of device memory */
    double one_seconds;  /* rank 0: time of one rank alone; 0: none */
    double loss;         /* of the first step */
    int shares;          /* axis cp */
    pb_comm *context;    /* of the ranks that share rows; NULL: none do */
    char why[160];       /* why there is no step of one rank */
    pb_rank_samples x;
} job;

/* The metric of the time of a case. */
static const char *time_metric(const job *j) { return j->steps.part ? "optimizer_time" : "step_time"; }

pb_status pb_rank_timed(pb_ctx *ctx, void *self)
{
    const pb_rank_steps *s = self;
    return s->part ? s->part(ctx, s->t) : pb_rank_step(ctx, self);
}

bool pb_rank_steps_needed(const pb_case *c, const pb_suite_env *env)
{
    return pb_lockstep_size(env->lockstep) > 1 || pb_case_get(c, "accumulate");
}

bool pb_rank_steps_of(const pb_emitter *emitter, const char *suite)
{
    const char *key;
    for (int i = 0; (key = pb_emitted_key(emitter, i)); i++)
        if (pb_key_of(key, suite) && pb_key_has_ranks(key)) return true;
    return false;
}

/* Checks that the ranks divide into groups that share rows, and the rows into their parts. */
static pb_status check_shares(const pb_case *c)
{
    const int shares = pb_train_case_shares(c);
    const bool given = pb_case_get(c, "slices") && !pb_case_is(c, "slices", "auto");
    long ranks = 1, seq;
    pb_train_config cfg;
    if (pb_case_get(c, "ranks")) PB_TRY(pb_case_int(c, "ranks", &ranks));
    if (ranks % shares) return pb_fail(PB_EINVAL, "cp=%d: %ld ranks do not divide by it: --ranks N", shares, ranks);
    if (shares == 1)
        return !given ? PB_OK
                      : pb_fail(PB_EINVAL, "slices=%s needs ranks that share rows: --cp N", pb_case_get(c, "slices"));
    PB_TRY(pb_train_case_config(c, &cfg));
    PB_TRY(pb_train_check_slicing(&cfg));
    const pb_context context = pb_train_context(&cfg, shares, 0);
    PB_TRY(pb_case_int(c, "seq", &seq));
    if (seq % pb_context_unit(&context))
        return pb_fail(PB_EINVAL, "seq=%ld: %d ranks share a row, so it needs a multiple of %d", seq, shares,
                       pb_context_unit(&context));
    return PB_OK;
}

pb_status pb_rank_steps_check(const pb_case *c)
{
    const bool ranks = pb_case_get(c, "ranks") != NULL;
    const bool parts = pb_case_get(c, "accumulate") && !pb_case_is(c, "accumulate", "1");
    if (!ranks && pb_case_get(c, "shard") && !pb_case_is(c, "shard", "none"))
        return pb_fail(PB_EINVAL, "shard=%s needs several ranks: --ranks N", pb_case_get(c, "shard"));
    PB_TRY(check_shares(c));
    if ((ranks || parts) && !pb_case_is(c, "clip", "multi") && !pb_case_is(c, "clip", "fused"))
        return pb_fail(PB_EINVAL,
                       "clip=%s: several ranks or micro-batches need multi or fused, whose norms are checked",
                       pb_case_get(c, "clip"));
    return PB_OK;
}

/* The options by which a step is measured. */
static pb_measure_opts measure_opts(const pb_ctx *ctx, const job *j)
{
    pb_measure_opts o = pb_env_measure_opts(j->env, (pb_measure_opts){.warmup = 1,
                                                                      .min_samples = 5,
                                                                      .max_samples = PB_RANK_SAMPLES,
                                                                      .min_time = ctx->id == PB_CPU ? 1.5 : 0.4});
    o.graph = pb_train_case_graph(j->c);
    return o;
}

/* ---- rank 0 alone ----------------------------------------------------------------------------------------------- */

static pb_status measure_one(pb_ctx *ctx, job *j, pb_rank_steps *s)
{
    pb_measure_opts o = measure_opts(ctx, j);
    o.lockstep = NULL;
    pb_timing *t = malloc(sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status st = pb_train_case_batch(s->c, s->t, 0);
    if (st == PB_OK) st = pb_measure(ctx, pb_rank_timed, s, &o, t);
    if (st == PB_OK && t->n) j->one_seconds = t->median;
    free(t);
    return st;
}

/* Checks the gradient, trains on the micro-batches of all ranks, and measures. *v: the gradient is right. */
static pb_status train_one(pb_ctx *ctx, job *j, pb_trainer *t, pb_check *v)
{
    const int all = j->steps.parts * j->steps.groups;
    pb_rank_steps s = {.c = j->c, .t = t, .ranks = 1, .groups = 1, .parts = all, .part = j->steps.part};
    PB_TRY(pb_train_case_gradient(ctx, j->c, t, j->env->emitter, v));
    if (v->status != PB_ROW_OK) return PB_OK;
    PB_TRY(pb_rank_results_get(ctx, &s, all, j->env->heartbeat, &j->one));
    s.parts = j->steps.parts;
    return measure_one(ctx, j, &s);
}

static pb_status open_trainer(pb_ctx *ctx, const job *j, pb_comm *comm, pb_trainer **out)
{
    pb_train_config cfg;
    PB_TRY(pb_train_case_config(j->c, &cfg));
    cfg.comm = comm;
    cfg.context = comm ? j->context : NULL;
    if (!comm) cfg.shard = PB_SHARD_NONE;
    PB_TRY(pb_train_case_shape(j->c, &cfg));
    PB_TRY(pb_train_case_trainer(ctx, j->c, &cfg, out));
    const pb_status s = pb_train_case_batch(j->c, *out, 0);
    if (s != PB_OK) pb_trainer_close(*out);
    return s;
}

/* On a GPU a model may be too large for one rank without sharding: then there is nothing to compare with. */
static pb_status alone(pb_ctx *ctx, job *j, pb_check *v)
{
    pb_trainer *t;
    pb_status s = open_trainer(ctx, j, NULL, &t);
    if (s == PB_OK) {
        s = train_one(ctx, j, t, v);
        pb_trainer_close(t);
        pb_ctx_release_scratch(ctx);
    }
    if (s != PB_ENOMEM || ctx->id == PB_CPU) return s;
    snprintf(j->why, sizeof j->why, "one rank alone lacks memory: %.120s", pb_error());
    free(j->one.norm);
    j->one = (pb_rank_results){0};
    return PB_OK;
}

/* ---- checking the ranks ----------------------------------------------------------------------------------------- */

/* Emits ranks_difference; *wrong is above 0 on every rank if the case is wrong. */
static pb_status compare(job *j, const pb_rank_results *mine, double *wrong)
{
    char note[256] = "";
    *wrong = 0;
    if (pb_lockstep_leads(j->env->lockstep) && j->one.norm) {
        const double d = pb_rank_difference(pb_trainer_config(j->steps.t), &j->one, mine, note, sizeof note);
        *wrong = !(d <= 1);
        PB_TRY(pb_emit(j->env->emitter, j->c, "ranks_difference", d, 0, *wrong > 0 ? PB_ROW_WRONG : PB_ROW_OK, note));
        if (*wrong > 0) PB_TRY(pb_emit(j->env->emitter, j->c, time_metric(j), (double)NAN, 0, PB_ROW_WRONG, note));
    } else if (pb_lockstep_leads(j->env->lockstep))
        PB_TRY(pb_emit(j->env->emitter, j->c, "ranks_difference", (double)NAN, 0, PB_ROW_UNSUPPORTED, j->why));
    return PB_OK;
}

static pb_status check_ranks(pb_ctx *ctx, job *j, double *wrong)
{
    pb_rank_results mine = {0};
    pb_lockstep *l = j->env->lockstep;
    pb_status s = pb_rank_results_get(ctx, &j->steps, j->steps.parts * j->steps.groups, j->env->heartbeat, &mine);
    if (s == PB_OK) s = compare(j, &mine, wrong);
    j->loss = mine.loss[0];
    free(mine.norm);
    PB_TRY(pb_lockstep_meet(l, s));
    return pb_lockstep_sum(l, wrong);
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* Emits the times of the step. */
static pb_status emit_times(job *j)
{
    const pb_rank_samples *x = &j->x;
    pb_emitter *e = j->env->emitter;
    for (int i = 0; x->phases && i < PB_NPHASES; i++) {
        char metric[32];
        snprintf(metric, sizeof metric, "%s_time", pb_phase_names[i]);
        PB_TRY(pb_rank_samples_emit(e, j->c, metric, x->span[i], x->n, ""));
    }
    PB_TRY(pb_rank_samples_emit(e, j->c, time_metric(j), x->span[PB_RANK_STEP], x->n, ""));
    if (x->record_seconds > 0) PB_TRY(pb_emit(e, j->c, "record_time", x->record_seconds, 1, PB_ROW_OK, ""));
    if (j->steps.ranks == 1) return PB_OK;
    PB_TRY(pb_rank_samples_emit_exposed(e, j->c, x));
    return pb_emit(e, j->c, "step_time_spread", pb_median_of(x->spread, x->n), x->n, PB_ROW_OK, "");
}

/* Emits the most that a rank has used. */
static pb_status emit_memory(job *j)
{
    double most = 0;
    const int ranks = j->steps.ranks;
    double *all = calloc((size_t)ranks, sizeof *all);
    pb_status s = all ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the peaks of %d ranks", ranks);
    s = pb_lockstep_meet(j->env->lockstep, s);
    if (s == PB_OK && all) s = pb_lockstep_gather(j->env->lockstep, &j->x.peak, 1, all);
    for (int r = 0; s == PB_OK && all && r < ranks; r++) most = all[r] > most ? all[r] : most;
    free(all);
    return s == PB_OK ? pb_emit(j->env->emitter, j->c, "peak_memory", most, 0, PB_ROW_OK, "") : s;
}

/* Emits the FLOP/s of one rank, as the suite does for one rank. */
static pb_status emit_flops(const pb_ctx *ctx, const job *j, double step)
{
    const pb_flops f = pb_trainer_flops(j->steps.t);
    const double does = j->steps.parts * (f.forward + f.backward), needs = does - j->steps.parts * f.again;
    const bool wide = pb_trainer_config(j->steps.t)->model.dtype == PB_F32;
    const double ceiling = pb_env_ceiling(j->env, wide ? "matmul_f32_rate" : "matmul_rate");
    pb_emitter *e = j->env->emitter;
    if (ctx->id == PB_CPU) return PB_OK;
    PB_TRY(pb_emit(e, j->c, "model_flops", needs / step, 0, PB_ROW_OK, ""));
    PB_TRY(pb_emit(e, j->c, "hardware_flops", does / step, 0, PB_ROW_OK, ""));
    if (!(ceiling > 0))
        return pb_emit(e, j->c, "mfu", (double)NAN, 0, PB_ROW_UNSUPPORTED, "this process has no ceiling");
    return pb_emit(e, j->c, "mfu", needs / step / ceiling, 0, PB_ROW_OK, "");
}

static pb_status emit_scaling(const job *j, double step)
{
    pb_emitter *e = j->env->emitter;
    const char *ratio = j->steps.part ? "optimizer_speedup" : "scaling_efficiency";
    if (!(j->one_seconds > 0)) /* also on ranks other than 0, which write nothing */
        return pb_emit(e, j->c, ratio, (double)NAN, 0, PB_ROW_UNSUPPORTED, j->why);
    PB_TRY(pb_emit(e, j->c, j->steps.part ? "one_rank_optimizer_time" : "one_rank_step_time", j->one_seconds, 0,
                   PB_ROW_OK, ""));
    return pb_emit(e, j->c, ratio, j->one_seconds / (step * j->shares), 0, PB_ROW_OK, "");
}

/* The scores of the rank that computes the most of them, over the mean of the ranks that share rows. */
static pb_status emit_imbalance(const job *j)
{
    if (j->shares == 1) return PB_OK;
    return pb_emit(j->env->emitter, j->c, "score_imbalance", pb_trainer_imbalance(j->steps.t), 0, PB_ROW_OK, "");
}

/* Emits what only whole steps have: the loss, and rates. */
static pb_status emit_rates(const pb_ctx *ctx, const job *j, double step)
{
    const pb_train_config *cfg = pb_trainer_config(j->steps.t);
    const double each = (double)cfg->B * cfg->S * j->steps.parts / step;
    pb_emitter *e = j->env->emitter;
    PB_TRY(pb_emit(e, j->c, "loss", j->loss, 0, isfinite(j->loss) ? PB_ROW_OK : PB_ROW_WRONG, "of the first step"));
    PB_TRY(pb_emit(e, j->c, "tokens_per_second", each * j->steps.ranks, 0, PB_ROW_OK, ""));
    if (j->steps.ranks > 1) PB_TRY(pb_emit(e, j->c, "tokens_per_second_per_rank", each, 0, PB_ROW_OK, ""));
    return emit_flops(ctx, j, step);
}

/* Runs the phases before the optimizer, so that a part of the step has gradients and their norms. */
static pb_status gradients(pb_ctx *ctx, const job *j)
{
    for (int i = 0; j->steps.part && i < PB_PHASE_optimizer; i++) PB_TRY(pb_phases[i](ctx, j->steps.t));
    return PB_OK;
}

/* Sets *skipped to a number above 0 on every rank if a timed repetition was skipped: it has no valid optimizer time. */
static pb_status count_skipped(job *j, double *skipped)
{
    pb_adamw_state state = {0};
    pb_lockstep *l = j->env->lockstep;
    PB_TRY(pb_lockstep_meet(l, pb_trainer_state(j->steps.t, &state)));
    *skipped = j->steps.part ? state.skipped : 0;
    PB_TRY(pb_lockstep_sum(l, skipped));
    if (!(*skipped > 0)) return PB_OK;
    return pb_emit(j->env->emitter, j->c, time_metric(j), (double)NAN, 0, PB_ROW_WRONG, "steps were skipped");
}

static pb_status measure(pb_ctx *ctx, job *j)
{
    double skipped;
    if (ctx->id == PB_CPU) PB_TRY(pb_memory_reset_peak());
    PB_TRY(pb_lockstep_meet(j->env->lockstep, pb_train_case_fresh(ctx, j->steps.t)));
    PB_TRY(pb_lockstep_meet(j->env->lockstep, gradients(ctx, j)));
    const pb_measure_opts o = measure_opts(ctx, j);
    const pb_rank_work work = {.run = pb_rank_timed,
                               .self = &j->steps,
                               .ranks = j->steps.ranks,
                               .comms = {j->env->lockstep ? j->env->lockstep->comm : NULL, j->context},
                               .phases = j->steps.parts == 1 && !j->steps.part ? j->steps.t : NULL};
    PB_TRY(pb_rank_samples_take(ctx, &o, j->env, &work, &j->x));
    if (!j->x.n || pb_interrupted()) return PB_OK;
    PB_TRY(count_skipped(j, &skipped));
    if (skipped > 0) return PB_OK;
    PB_TRY(emit_times(j));
    const double step = pb_median_of(j->x.span[PB_RANK_STEP], j->x.n);
    if (!j->steps.part) PB_TRY(emit_rates(ctx, j, step));
    if (j->steps.ranks > 1) PB_TRY(emit_scaling(j, step));
    PB_TRY(emit_imbalance(j));
    return emit_memory(j);
}

/* ---- the case --------------------------------------------------------------------------------------------------- */

/* Opens the communicator of the ranks that share rows. Ranks with consecutive numbers do. */
static pb_status open_context(pb_ctx *ctx, job *j)
{
    pb_lockstep *l = j->env->lockstep;
    if (j->shares == 1) return PB_OK;
    const int rank = pb_world_rank(l->world);
    return pb_comm_open(l->world, ctx, "cp", rank / j->shares, rank % j->shares, &j->context);
}

static pb_status share(pb_ctx *ctx, job *j)
{
    pb_lockstep *l = j->env->lockstep;
    double wrong = 0;
    pb_status s = open_trainer(ctx, j, l ? l->comm : NULL, &j->steps.t);
    const bool open = s == PB_OK;
    if (s == PB_OK) s = pb_trainer_shard(j->steps.t);
    s = pb_lockstep_meet(l, s);
    if (s == PB_OK) s = check_ranks(ctx, j, &wrong);
    if (s == PB_OK && !(wrong > 0)) s = measure(ctx, j);
    if (open) pb_trainer_close(j->steps.t);
    return s;
}

static pb_status together(pb_ctx *ctx, job *j)
{
    PB_TRY(pb_lockstep_meet(j->env->lockstep, open_context(ctx, j)));
    const pb_status s = share(ctx, j);
    pb_comm_close(j->context);
    return s;
}

pb_status pb_rank_steps_run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_fn part)
{
    pb_train_config cfg;
    pb_check v = {PB_ROW_OK, ""};
    double wrong = 0;
    pb_lockstep *l = env->lockstep;
    PB_TRY(pb_train_case_config(c, &cfg));
    if (env->slowdown && env->slowdown->share > 0)
        return pb_fail(PB_EUNSUPPORTED, "no delay can be injected into steps of several ranks or micro-batches");
    job *j = calloc(1, sizeof *j);
    pb_status s = pb_lockstep_meet(l, j ? PB_OK : pb_fail(PB_ENOMEM, "no memory for samples"));
    if (s != PB_OK || !j) {
        free(j);
        return s;
    }
    j->c = c, j->env = env;
    j->shares = pb_train_case_shares(c);
    j->steps = (pb_rank_steps){.c = c,
                               .ranks = pb_lockstep_size(l),
                               .group = (l ? pb_comm_rank(l->comm) : 0) / j->shares,
                               .groups = pb_lockstep_size(l) / j->shares,
                               .parts = cfg.micro_batches > 1 ? cfg.micro_batches : 1,
                               .part = part};
    s = pb_lockstep_meet(l, pb_lockstep_leads(l) ? alone(ctx, j, &v) : PB_OK);
    if (s == PB_OK && v.status != PB_ROW_OK) {
        wrong = 1;
        s = pb_emit(env->emitter, c, time_metric(j), (double)NAN, 0, v.status, v.note);
    }
    if (s == PB_OK) s = pb_lockstep_sum(l, &wrong);
    if (s == PB_OK && !(wrong > 0) && !pb_interrupted() && !(l && l->over)) s = together(ctx, j);
    free(j->one.norm);
    free(j);
    return s;
}
