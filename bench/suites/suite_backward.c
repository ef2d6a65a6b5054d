/* suite_backward.c - backward pass and gradient clipping of a model on real text: eager and as a graph, with
 * host-synchronous and with fused clipping. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/measure/measure.h"
#include "bench/suites/graph_requirement.h"
#include "bench/suites/parity.h"
#include "bench/suites/suite.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/op.h"

/* The work that is timed: `parts` backward passes whose gradients are added, then the clip. */
typedef struct work {
    pb_trainer *t;
    int parts;
} work;

/* Runs the backward passes of `parts` micro-batches, all on the activations of the batch that is loaded, then the clip.
 * With a loss chunk each pass includes the loss phase, because that then computes the head's forward and backward pass.
 * Has the signature of pb_fn. */
static pb_status backward_and_clip(pb_ctx *ctx, void *self)
{
    const work *w = self;
    pb_status s = PB_OK;
    for (int k = 0; s == PB_OK && k < w->parts; k++) {
        pb_trainer_accumulate(w->t, k > 0);
        if (pb_trainer_config(w->t)->loss_chunk) s = pb_run_phase(ctx, w->t, PB_PHASE_loss);
        if (s == PB_OK) s = pb_run_phase(ctx, w->t, PB_PHASE_backward);
    }
    pb_trainer_accumulate(w->t, false);
    return s == PB_OK ? pb_run_phase(ctx, w->t, PB_PHASE_clip) : s;
}

static work work_of(pb_trainer *t)
{
    const int parts = pb_trainer_config(t)->micro_batches;
    return (work){t, parts > 1 ? parts : 1};
}

/* Compares the gradients of a graph replay with those of an eager call. */
static pb_status graph_difference(pb_ctx *ctx, pb_trainer *t, pb_apart *out)
{
    work w = work_of(t);
    float *eager = NULL;
    pb_graph *g;
    size_t n;
    PB_TRY(backward_and_clip(ctx, &w));
    PB_TRY(pb_record(ctx, backward_and_clip, &w, &g));
    pb_status s = pb_gradient_copy(t, &eager, &n);
    if (s == PB_OK) s = pb_replay(ctx, g);
    if (s == PB_OK) s = pb_gradient_apart(t, NULL, eager, out);
    free(eager);
    pb_graph_free(ctx, g);
    return s;
}

/* Compares the gradients of graph and eager. With deterministic implementations they must be bit-identical. Faster
 * implementations of a GPU may vary from run to run, within a bound. */
static pb_status check_graph(pb_ctx *ctx, const pb_case *c, pb_trainer *t, pb_emitter *emitter, pb_check *v)
{
    /* Another order of f32 sums can change a bf16 rounding. Two runs may therefore differ by as much as each may differ
     * from the true gradient. */
    const double bound = pb_gradient_bound(pb_trainer_config(t)->model.dtype);
    pb_apart same = {0}, fast = {0};
    ctx->deterministic = true;
    pb_status s = graph_difference(ctx, t, &same);
    ctx->deterministic = false;
    if (s == PB_OK && ctx->id != PB_CPU) s = graph_difference(ctx, t, &fast);
    if (s == PB_EUNSUPPORTED) return PB_OK; /* the timing that follows emits a row of status unsupported */
    PB_TRY(s);
    if (!(same.max <= 0)) {
        v->status = PB_ROW_WRONG;
        snprintf(v->note, sizeof v->note, "graph and eager gradients differ by %g", same.max);
    } else if (!(fast.rel <= bound)) {
        v->status = PB_ROW_WRONG;
        snprintf(v->note, sizeof v->note,
                 "two computations of the gradient differ by %g (relative L2), at most %g is allowed", fast.rel, bound);
    }
    PB_TRY(pb_emit(emitter, c, "graph_difference", same.max, 0, v->status, v->note));
    return ctx->id == PB_CPU ? PB_OK : pb_emit(emitter, c, "run_variation", fast.rel, 0, v->status, v->note);
}

/* Emits the rows of all checks. v->status is PB_ROW_OK if the case may be timed. */
static pb_status check(pb_ctx *ctx, const pb_case *c, pb_trainer *t, bool graph, pb_emitter *emitter, pb_check *v)
{
    double loss = 0;
    PB_TRY(pb_train_case_gradient(ctx, c, t, emitter, v));
    PB_TRY(pb_trainer_loss(t, &loss));
    PB_TRY(pb_emit(emitter, c, "loss", loss, 0, isfinite(loss) ? PB_ROW_OK : PB_ROW_WRONG,
                   isfinite(loss) ? "" : "not finite"));
    return graph ? check_graph(ctx, c, t, emitter, v) : PB_OK;
}

static pb_status emit_times(pb_ctx *ctx, const pb_case *c, pb_trainer *t, const pb_timing *timing, pb_emitter *emitter)
{
    const pb_train_config *cfg = pb_trainer_config(t);
    PB_TRY(pb_emit_timing(emitter, c, "backward_time", timing, ""));
    const double tokens = (double)work_of(t).parts * cfg->B * cfg->S;
    PB_TRY(pb_emit(emitter, c, "tokens_per_second", tokens / timing->median, timing->n, PB_ROW_OK, ""));
    if (ctx->id != PB_CPU) PB_TRY(pb_emit(emitter, c, "host_time", timing->host_median, timing->n, PB_ROW_OK, ""));
    if (pb_train_case_graph(c)) PB_TRY(pb_emit_graph(emitter, c, timing));
    return pb_train_case_memory(ctx, c, emitter);
}

static pb_status emit_rows(pb_ctx *ctx, const pb_case *c, pb_trainer *t, const pb_timing *timing, pb_emitter *emitter)
{
    const pb_flops flops = pb_trainer_flops(t);
    if (!timing->counted) PB_TRY(emit_times(ctx, c, t, timing, emitter));
    const pb_train_config *cfg = pb_trainer_config(t);
    const double head = 2.0 * cfg->B * cfg->S * cfg->model.geometry->V * cfg->model.geometry->D;
    const double each = flops.backward - flops.again + (cfg->loss_chunk ? head : 0);
    return pb_emit_counters(emitter, c, ctx, timing, work_of(t).parts * each);
}

static pb_status measure(pb_ctx *ctx, const pb_case *c, pb_trainer *t, bool graph, const pb_suite_env *env)
{
    work w = work_of(t);
    pb_timing *timing = malloc(sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_measure_opts o = pb_env_measure_opts(
        env,
        (pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 40, .min_time = ctx->id == PB_CPU ? 1 : 0.3});
    o.graph = graph;
    pb_status s = pb_train_case_fresh(ctx, t);
    if (s == PB_OK) s = pb_measure(ctx, backward_and_clip, &w, &o, timing);
    if (s == PB_EUNSUPPORTED)
        s = pb_emit(env->emitter, c, "backward_time", (double)NAN, 0, PB_ROW_UNSUPPORTED, pb_error());
    else if (s == PB_OK) s = emit_rows(ctx, c, t, timing, env->emitter);
    free(timing);
    return s;
}

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    const bool graph = pb_train_case_graph(c);
    pb_check v;
    pb_trainer *t;
    if (pb_graph_losses_is(c)) return pb_graph_losses(ctx, c, env->emitter);
    if (pb_parity_is(c)) return pb_parity(ctx, c, env->emitter);
    PB_TRY(pb_train_case_open(ctx, c, &t));
    pb_status s = check(ctx, c, t, graph, env->emitter, &v);
    if (s == PB_OK && v.status != PB_ROW_OK)
        s = pb_emit(env->emitter, c, "backward_time", (double)NAN, 0, v.status, v.note);
    else if (s == PB_OK) s = measure(ctx, c, t, graph, env);
    pb_trainer_close(t);
    return s;
}

/* The micro-batches of a case. */
static double parts_of(const pb_case *c)
{
    const char *parts = pb_case_get(c, "accumulate");
    return parts ? strtod(parts, NULL) : 1;
}

/* Estimate: set-up, the checks (four forward passes and up to four backward passes), then the samples. A backward pass
 * costs as much as one forward pass if only adapters are trained, and as much as two if all weights are. */
static double expect(const pb_case *c)
{
    if (pb_parity_is(c)) return pb_parity_seconds(c, false);
    const double forward = pb_train_case_seconds(c);
    const char *tuning = pb_case_get(c, "tuning");
    const double backward = parts_of(c) * forward * (tuning && strcmp(tuning, "full") == 0 ? 2 : 1);
    const double samples = backward * 5 > 1 ? backward * 5 : 1;
    return 1 + 4 * forward + 4 * backward + samples;
}

static bool timed(const pb_case *c) { return !pb_parity_is(c) && !pb_graph_losses_is(c); }

static double device_expect(const pb_case *c)
{
    if (pb_parity_is(c)) return pb_train_case_device_seconds(c) + pb_parity_seconds(c, true);
    return pb_graph_losses_is(c) ? pb_graph_losses_seconds(c) : parts_of(c) * pb_train_case_device_seconds(c);
}

static pb_status check_case(const pb_case *c)
{
    PB_TRY(pb_train_case_check(c));
    if (pb_parity_is(c)) return pb_parity_check(c);
    return pb_graph_losses_is(c) ? pb_graph_losses_check(c) : PB_OK;
}

/* The variants of a case that can run: a graph cannot record the host syncs of clip=sync. */
#define VARIANTS(cases) cases " mode=eager clip=sync,fused", cases " mode=graph clip=fused"
#define PARITY          "parity tuning=qlora batch=2 seq=4 mode=eager clip=fused"
static const char *const grid[] = {VARIANTS("tuning=lora batch=1"), "tuning=lora batch=4 mode=eager,graph clip=fused",
                                   "tuning=full,qlora batch=1 mode=eager,graph clip=fused", NULL};
static const char *const full_grid[] = {
    "tuning=full,lora,qlora batch=1,2,4,8 seq=128,256,512 mode=eager,graph clip=sync,fused,multi", PARITY, NULL};

/* Grid for a GPU: sizes at which a graph pays and sizes at which it does not, for the requirements F-GRAPH-BWD-003a and
 * 003b. Three processes take less than ten minutes on an H200. */
#define DEVICE        "dtype=bf16 model=qwen2.5-0.5b,qwen2.5-1.5b "
#define LOSSES        "losses dtype=bf16 model=qwen2.5-1.5b tuning=qlora batch=1 seq=512 mode=graph clip=fused"
#define DEVICE_PARITY "parity dtype=bf16 model=qwen2.5-0.5b tuning=qlora batch=2 seq=16 mode=eager clip=fused"
static const char *const device_grid[] = {
    VARIANTS(DEVICE "tuning=lora batch=1,4 seq=128,512"), VARIANTS(DEVICE "tuning=qlora batch=1,4 seq=128,512,2048"),
    VARIANTS("dtype=bf16 model=qwen2.5-0.5b tuning=full batch=1,4 seq=512"), LOSSES, NULL};
static const char *const device_full_grid[] = {
    DEVICE "tuning=lora,qlora,full batch=1,2,4,8 seq=128,256,512,1024,2048 mode=eager clip=sync,fused,multi",
    DEVICE "tuning=lora,qlora,full batch=1,2,4,8 seq=128,256,512,1024,2048 mode=graph clip=fused,multi", LOSSES,
    DEVICE_PARITY, NULL};

static pb_status conclude(pb_ctx *ctx, pb_emitter *emitter)
{
    PB_TRY(pb_requirement_ratios(ctx, emitter));
    PB_TRY(pb_graph_requirements(ctx, emitter));
    return ctx->id == PB_CPU ? PB_OK : pb_graph_gain_conclude(emitter, "backward", "backward_time");
}

#define AXES    PB_TRAIN_AXES " accumulate= batch=1 clip=fused mode=eager seq=128 tuning=lora"
#define OMITTED PB_TRAIN_AXES_OMITTED " accumulate=1"
#define COUNTED "model=tiny seq=32 batch=1 "
static const char *const counted_grid[] = {VARIANTS(COUNTED "tuning=lora"), COUNTED "tuning=full,qlora", NULL};
static const char *const counted_full_grid[] = {
    COUNTED "tuning=full,lora,qlora dtype=f32,bf16 mode=eager,graph clip=sync,fused,multi", NULL};
static const pb_suite counting = {.name = "backward",
                                  .own_input = true,
                                  .axes = AXES,
                                  .omitted = OMITTED,
                                  .grid = counted_grid,
                                  .full_grid = counted_full_grid,
                                  .check = check_case,
                                  .expect = expect,
                                  .run = run};

const pb_suite pb_suite_backward = {
    .name = "backward",
    .own_input = true,
    .what = "the backward pass of a model: what a CUDA graph and a fused gradient clip gain",
    .axes = AXES,
    .omitted = OMITTED,
    .grid = grid,
    .full_grid = full_grid,
    .device_grid = device_grid,
    .device_full_grid = device_full_grid,
    .check = check_case,
    .timed = timed,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
    .counting = &counting,
    .conclude = conclude,
};
