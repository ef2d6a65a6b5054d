/* suite_optimizer.c - the optimizer phase alone, on the gradients of one batch: AdamW, and NorMuon with each
 * Newton-Schulz iteration, with and without its NaN guard. Case "step" is the phase, case "matrices" the part of it
 * that NorMuon does. With several ranks the optimizer's state is replicated or sharded (axis shard), and the ranks
 * divide the matrices. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/measure/measure.h"
#include "bench/suites/rank_steps.h"
#include "bench/suites/suite.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/op.h"

/* Computes the gradients of the loaded batch, and their norms. */
static pb_status gradients(pb_ctx *ctx, pb_trainer *t)
{
    for (int i = 0; i < PB_PHASE_optimizer; i++) PB_TRY(pb_phases[i](ctx, t));
    return PB_OK;
}

static bool of_matrices(const pb_case *c) { return strcmp(c->name, "matrices") == 0; }
static pb_fn timed(const pb_case *c) { return of_matrices(c) ? pb_train_matrices : pb_phases[PB_PHASE_optimizer]; }

/* Decides whether the timed steps were real: none was skipped, and the loss of the changed weights is finite. */
static pb_status judge(pb_ctx *ctx, pb_trainer *t, pb_check *v)
{
    pb_adamw_state state;
    double loss;
    PB_TRY(pb_trainer_state(t, &state));
    for (int i = 0; i <= PB_PHASE_loss; i++) PB_TRY(pb_phases[i](ctx, t));
    PB_TRY(pb_trainer_loss(t, &loss));
    *v = (pb_check){.status = PB_ROW_OK};
    if (state.skipped == 0 && isfinite(loss)) return PB_OK;
    v->status = PB_ROW_WRONG;
    snprintf(v->note, sizeof v->note, "%d of the steps were skipped; the loss after them is %g", state.skipped, loss);
    return PB_OK;
}

static pb_status emit_rows(pb_ctx *ctx, const pb_case *c, const pb_timing *timing, pb_emitter *emitter)
{
    PB_TRY(pb_emit_timing(emitter, c, "optimizer_time", timing, ""));
    if (ctx->id != PB_CPU) PB_TRY(pb_emit(emitter, c, "host_time", timing->host_median, timing->n, PB_ROW_OK, ""));
    if (pb_train_case_graph(c)) PB_TRY(pb_emit_graph(emitter, c, timing));
    PB_TRY(pb_emit_counters(emitter, c, ctx, timing, 0));
    return pb_train_case_memory(ctx, c, emitter);
}

static pb_status measure(pb_ctx *ctx, const pb_case *c, pb_trainer *t, const pb_suite_env *env, pb_timing *timing)
{
    pb_check v;
    pb_measure_opts o = pb_env_measure_opts(
        env,
        (pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 40, .min_time = ctx->id == PB_CPU ? 1 : 0.3});
    o.graph = pb_train_case_graph(c);
    PB_TRY(pb_train_case_fresh(ctx, t));
    PB_TRY(gradients(ctx, t));
    const pb_status s = pb_measure(ctx, timed(c), t, &o, timing);
    if (s == PB_EUNSUPPORTED)
        return pb_emit(env->emitter, c, "optimizer_time", (double)NAN, 0, PB_ROW_UNSUPPORTED, pb_error());
    PB_TRY(s);
    if (timing->n) PB_TRY(emit_rows(ctx, c, timing, env->emitter)); /* before anything else runs: it has counters */
    PB_TRY(judge(ctx, t, &v));
    return v.status == PB_ROW_OK ? PB_OK : pb_emit(env->emitter, c, "optimizer_time", (double)NAN, 0, v.status, v.note);
}

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_trainer *t;
    if (pb_rank_steps_needed(c, env)) return pb_rank_steps_run(ctx, c, env, timed(c));
    pb_timing *timing = calloc(1, sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status s = pb_train_case_open(ctx, c, &t);
    if (s == PB_OK) {
        s = measure(ctx, c, t, env, timing);
        pb_trainer_close(t);
    }
    free(timing);
    return s;
}

static bool is_normuon(const pb_case *c) { return pb_case_is(c, "optimizer", "normuon"); }

static double ranks_of(const pb_case *c)
{
    const char *ranks = pb_case_get(c, "ranks");
    return ranks ? strtod(ranks, NULL) : 1;
}

/* Estimate: set-up, gradients, and six calls. A Newton-Schulz iteration takes about 100 operations per weight and row
 * of a matrix, of which there are about D. */
static double expect(const pb_case *c)
{
    pb_train_config t;
    const double weights = pb_train_case_weights(c);
    if (pb_train_case_config(c, &t) != PB_OK) return 0;
    const double matrices = weights - (double)t.model.geometry->V * t.model.geometry->D;
    const double call = 1e-9 * weights + (is_normuon(c) ? matrices * 100 * t.model.geometry->D / 1.5e11 : 0);
    const double n = ranks_of(c); /* which share the processors; rank 0 also trains alone */
    return 1 + 4 * (n > 1 ? 6 * n : 1) * pb_train_case_seconds(c) + (n > 1 ? 25 * n : 7) * call;
}
static double device_expect(const pb_case *c)
{
    const double n = ranks_of(c), more = n > 1 ? (4 * n + 4) * pb_train_case_device_step(c) : 0;
    return pb_train_case_device_seconds(c) + more + (is_normuon(c) ? 2 : 0);
}

static pb_status check(const pb_case *c)
{
    if (of_matrices(c) && !is_normuon(c)) return pb_fail(PB_EINVAL, "case matrices needs optimizer=normuon");
    PB_TRY(pb_train_case_check(c));
    return pb_rank_steps_check(c);
}

#define CPU_LINES                                                                                                      \
    "layers=2 optimizer=adamw", "layers=2 optimizer=adamw moments=bf16,8bit",                                          \
        "layers=2 optimizer=normuon iteration=polar_express guard=off,on mode=eager,graph",                            \
        "layers=2 optimizer=normuon iteration=quintic,gram guard=off"
static const char *const grid[] = {CPU_LINES, NULL};
/* scripts/peers/run measures the case matrices on a CPU, too. */
static const char *const full_grid[] = {
    CPU_LINES, "matrices layers=2 optimizer=normuon iteration=polar_express guard=off mode=eager,graph", NULL};
#define DEVICE "dtype=bf16 model=qwen2.5-0.5b "
static const char *const device_grid[] = {
    DEVICE "optimizer=adamw mode=eager,graph",
    DEVICE "optimizer=adamw moments=bf16,8bit mode=graph",
    DEVICE "optimizer=normuon iteration=quintic,polar_express guard=off,on mode=eager,graph",
    DEVICE "optimizer=normuon iteration=gram guard=off mode=graph",
    "matrices " DEVICE "optimizer=normuon iteration=polar_express guard=off mode=eager,graph",
    NULL};
static const char *const device_ranks_grid[] = {
    DEVICE "optimizer=adamw mode=graph shard=none,parameters",
    DEVICE "optimizer=normuon iteration=polar_express guard=off,on mode=graph shard=none,optimizer,parameters",
    "matrices " DEVICE "optimizer=normuon iteration=polar_express guard=off mode=graph shard=none,optimizer", NULL};

#define OMITTED PB_TRAIN_AXES_OMITTED " moments=f32 shard=none"
static pb_status conclude(pb_ctx *ctx, pb_emitter *emitter)
{
    return ctx->id == PB_CPU ? PB_OK : pb_requirements_conclude(emitter, "optimizer", OMITTED);
}

#define AXES                                                                                                           \
    PB_TRAIN_AXES " batch=1 clip=multi guard= iteration= mode=eager moments= optimizer=adamw seq=64 shard= "           \
                  "tuning=full"
#define COUNTED "model=tiny seq=16 "
static const char *const counted_grid[] = {COUNTED "optimizer=adamw", COUNTED "optimizer=adamw moments=bf16,8bit",
                                           COUNTED "optimizer=normuon iteration=polar_express guard=off,on", NULL};
static const pb_suite counting = {.name = "optimizer",
                                  .axes = AXES,
                                  .omitted = OMITTED,
                                  .grid = counted_grid,
                                  .check = check,
                                  .expect = expect,
                                  .run = run};

const pb_suite pb_suite_optimizer = {
    .name = "optimizer",
    .what = "the optimizer phase alone: AdamW, and NorMuon by Newton-Schulz iteration and NaN guard",
    .ranks = true,
    .axes = AXES,
    .omitted = OMITTED,
    .grid = grid,
    .full_grid = full_grid,
    .device_grid = device_grid,
    .device_ranks_grid = device_ranks_grid,
    .check = check,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
    .counting = &counting,
    .conclude = conclude,
};
