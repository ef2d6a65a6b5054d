/* suite_throughput.c - whole training steps: seconds per phase, tokens per second, FLOP/s and peak memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/measure/measure.h"
#include "bench/stats/stats.h"
#include "bench/suites/rank_steps.h"
#include "bench/suites/step_ratios.h"
#include "bench/suites/suite.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/clock.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"
#include "os/memory.h"
#include "profiles/ranges.h"

/* MARKS: events per step (before each phase, and after the last). UNSLOWED: number of the first of the events that
 * record where a phase ends without its injected delay. */
enum { SAMPLES = 40, MARKS = PB_NPHASES + 1, UNSLOWED = SAMPLES * MARKS };

/* Runs one step and records an event before each phase and after the last one. If a delay is injected, one more event
 * per phase, whose number is larger by UNSLOWED, records where the phase ends without the delay. */
static pb_status marked_step(pb_ctx *ctx, pb_trainer *t, const pb_slowdown slow[PB_NPHASES], int sample)
{
    const int first = sample * MARKS;
    for (int i = 0; i < PB_NPHASES; i++) {
        PB_TRY(ctx->be->mark(ctx, first + i));
        PB_TRY(pb_run_phase(ctx, t, i));
        PB_TRY(pb_slow_down(ctx, &slow[i], first + i, UNSLOWED + first + i));
    }
    return ctx->be->mark(ctx, first + PB_NPHASES);
}

static pb_status slowdown_round(pb_ctx *ctx, pb_trainer *t, pb_slowdown slow[PB_NPHASES])
{
    enum { STEPS = 5 };
    double seconds[STEPS], own[STEPS];
    for (int s = 0; s < STEPS; s++) PB_TRY(marked_step(ctx, t, slow, s));
    PB_TRY(pb_sync(ctx));
    for (int i = 0; i < PB_NPHASES; i++) {
        for (int s = 0; s < STEPS; s++) {
            PB_TRY(ctx->be->between(ctx, s * MARKS + i, s * MARKS + i + 1, &seconds[s]));
            PB_TRY(ctx->be->between(ctx, s * MARKS + i, UNSLOWED + s * MARKS + i, &own[s]));
        }
        pb_slowdown_find(seconds, own, STEPS, &slow[i]);
    }
    return PB_OK;
}

/* Calibrates the injected delay for each phase. Only a GPU needs it: on a CPU the overhead of a delay is negligible
 * compared with a phase. */
static pb_status find_slowdown(pb_ctx *ctx, pb_trainer *t, double share, pb_slowdown slow[PB_NPHASES])
{
    const pb_counts counts = ctx->counts; /* kernel launches and host syncs of the calibration are not counted */
    for (int i = 0; i < PB_NPHASES; i++) slow[i] = (pb_slowdown){.share = share};
    if (!(share > 0) || ctx->id == PB_CPU) return PB_OK;
    PB_TRY(ctx->be->delay(ctx, 0)); /* the first call may sync with the host */
    for (int r = 0; r < PB_SLOWDOWN_ROUNDS; r++) PB_TRY(slowdown_round(ctx, t, slow));
    ctx->counts = counts;
    return PB_OK;
}

/* Emits the injected delay that was achieved, over all phases of a step. */
static pb_status emit_slowed(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter, double share, int n)
{
    double all[SAMPLES], own[SAMPLES], one;
    if (!(share > 0)) return PB_OK;
    for (int s = 0; s < n; s++) {
        PB_TRY(ctx->be->between(ctx, s * MARKS, s * MARKS + PB_NPHASES, &all[s]));
        own[s] = 0;
        for (int i = 0; i < PB_NPHASES; i++, own[s] += one)
            PB_TRY(ctx->be->between(ctx, s * MARKS + i, UNSLOWED + s * MARKS + i, &one));
    }
    return pb_emit_slowed(emitter, c, pb_slowed(all, own, n));
}

static pb_measure_opts usual(const pb_ctx *ctx, const pb_suite_env *env)
{
    return pb_env_measure_opts(
        env, (pb_measure_opts){
                 .warmup = 1, .min_samples = 5, .max_samples = SAMPLES, .min_time = ctx->id == PB_CPU ? 1.5 : 0.4});
}

/* The delay to inject, as a fraction of a phase's time; 0: none. */
static double injected(const pb_suite_env *env) { return env->slowdown ? env->slowdown->share : 0; }

/* Adds what one step counted to *out: launches, host syncs and searches as sums, allocations as the most of a step. */
static void count_step(const pb_counts *before, const pb_counts *after, pb_timing *out)
{
    out->kernel_launches += (double)(after->kernel_launches - before->kernel_launches);
    out->host_syncs += (double)(after->host_syncs - before->host_syncs);
    out->searches += (double)(after->searches - before->searches);
    if (after->allocs - before->allocs > out->allocations) out->allocations = after->allocs - before->allocs;
}

/* Runs the warm-up steps, which size scratch memory and touch the pages. The last one counts its kernels by name. */
static pb_status warm_up(pb_ctx *ctx, pb_trainer *t, int steps, pb_tally *names)
{
    pb_status s = PB_OK;
    for (int i = 0; i < steps && s == PB_OK; i++) {
        ctx->tally = i + 1 == steps ? names : NULL;
        s = pb_train_step(ctx, t);
    }
    ctx->tally = NULL;
    return s;
}

/* Takes one sample, which is a profiler range. *host: seconds until the step is enqueued. */
static pb_status timed_step(pb_ctx *ctx, pb_trainer *t, const pb_slowdown slow[PB_NPHASES], int sample, double *host)
{
    pb_range_push(PB_RANGE_sample, "sample", 1);
    const double start = pb_clock_seconds();
    const pb_status s = marked_step(ctx, t, slow, sample);
    *host = pb_clock_seconds() - start;
    pb_range_pop();
    return s;
}

/* Takes the samples. Fills n and host[] of *out, and the counters of a step: how often and which kernels are launched.
 * */
static pb_status sample_steps(pb_ctx *ctx, pb_trainer *t, const pb_suite_env *env, const pb_measure_opts *o,
                              pb_timing *out)
{
    pb_slowdown slow[PB_NPHASES];
    double total = 0, one;
    int n = 0;
    PB_TRY(warm_up(ctx, t, o->warmup, &out->names));
    PB_TRY(find_slowdown(ctx, t, injected(env), slow));
    for (; n < o->max_samples && n < SAMPLES && !pb_interrupted(); n++) {
        if (n >= o->min_samples && total >= o->min_time) break;
        const pb_counts before = ctx->counts;
        PB_TRY(timed_step(ctx, t, slow, n, &out->host[n]));
        count_step(&before, &ctx->counts, out);
        PB_TRY(pb_sync(ctx));
        PB_TRY(ctx->be->between(ctx, n * MARKS, n * MARKS + PB_NPHASES, &one));
        total += one;
        pb_heartbeat_send_if_due(env->heartbeat);
        pb_time_slice_pass(env->time_slice);
    }
    out->n = n;
    if (!n) return PB_OK;
    out->host_median = pb_median_of(out->host, n);
    out->kernel_launches /= n;
    out->host_syncs /= n;
    out->searches /= n;
    return PB_OK;
}

/* Emits the time between events `from` and `to` of every sample; *median is their median. */
static pb_status emit_span(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter, const char *metric, int n, int from,
                           int to, double *median)
{
    double sorted[SAMPLES];
    pb_timing *timing = calloc(1, sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status s = PB_OK;
    timing->n = n;
    for (int i = 0; s == PB_OK && i < n; i++) {
        s = ctx->be->between(ctx, i * MARKS + from, i * MARKS + to, &timing->seconds[i]);
        sorted[i] = timing->seconds[i];
    }
    *median = timing->median = s == PB_OK ? pb_median(sorted, n) : 0;
    if (s == PB_OK) s = pb_emit_timing(emitter, c, metric, timing, "");
    free(timing);
    return s;
}

/* Emits the counters of one step and, on a GPU, the time until the step is enqueued. */
static pb_status emit_host(pb_ctx *ctx, const pb_case *c, const pb_trainer *t, pb_emitter *emitter,
                           const pb_timing *timing)
{
    const pb_flops f = pb_trainer_flops(t);
    PB_TRY(pb_emit_counters(emitter, c, ctx, timing, f.forward + f.backward - f.again));
    return ctx->id == PB_CPU ? PB_OK : pb_emit(emitter, c, "host_time", timing->host_median, timing->n, PB_ROW_OK, "");
}

static pb_status emit_phases(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, int n, double *step)
{
    double phase;
    for (int i = 0; i < PB_NPHASES; i++) {
        char metric[32];
        snprintf(metric, sizeof metric, "%s_time", pb_phase_names[i]);
        PB_TRY(emit_span(ctx, c, env->emitter, metric, n, i, i + 1, &phase));
    }
    PB_TRY(emit_slowed(ctx, c, env->emitter, injected(env), n));
    return emit_span(ctx, c, env->emitter, "step_time", n, 0, PB_NPHASES, step);
}

static pb_status eager(pb_ctx *ctx, const pb_case *c, pb_trainer *t, const pb_suite_env *env, double *step)
{
    const pb_measure_opts o = usual(ctx, env);
    pb_timing *timing = calloc(1, sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status s = sample_steps(ctx, t, env, &o, timing);
    if (s == PB_OK && timing->n) s = emit_host(ctx, c, t, env->emitter, timing);
    if (s == PB_OK && timing->n) s = emit_phases(ctx, c, env, timing->n, step);
    free(timing);
    return s;
}

static pb_status graphed(pb_ctx *ctx, const pb_case *c, pb_trainer *t, const pb_suite_env *env, double *step)
{
    pb_timing *timing = malloc(sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_measure_opts o = usual(ctx, env);
    o.graph = true;
    pb_status s = pb_measure(ctx, pb_train_step, t, &o, timing);
    if (s == PB_EUNSUPPORTED) s = pb_emit(env->emitter, c, "step_time", (double)NAN, 0, PB_ROW_UNSUPPORTED, pb_error());
    else if (s == PB_OK) {
        *step = timing->median;
        s = pb_emit_timing(env->emitter, c, "step_time", timing, "");
        if (s == PB_OK) s = pb_emit_graph(env->emitter, c, timing);
        if (s == PB_OK) s = emit_host(ctx, c, t, env->emitter, timing);
    }
    free(timing);
    return s;
}

/* Emits the FLOP/s of the model, the FLOP/s of the hardware, which include recomputed activations, and the model FLOP/s
 * as a fraction of the matrix-product ceiling (mfu). */
static pb_status emit_flops(pb_ctx *ctx, const pb_case *c, const pb_trainer *t, double step, const pb_suite_env *env)
{
    const pb_flops f = pb_trainer_flops(t);
    const double does = f.forward + f.backward, needs = does - f.again;
    const double ceiling =
        pb_env_ceiling(env, pb_trainer_config(t)->model.dtype == PB_F32 ? "matmul_f32_rate" : "matmul_rate");
    if (ctx->id == PB_CPU) return PB_OK;
    PB_TRY(pb_emit(env->emitter, c, "model_flops", needs / step, 0, PB_ROW_OK, ""));
    PB_TRY(pb_emit(env->emitter, c, "hardware_flops", does / step, 0, PB_ROW_OK, ""));
    if (!(ceiling > 0))
        return pb_emit(env->emitter, c, "mfu", (double)NAN, 0, PB_ROW_UNSUPPORTED, "this process has no ceiling");
    return pb_emit(env->emitter, c, "mfu", needs / step / ceiling, 0, PB_ROW_OK, "");
}

static pb_status emit_process_memory(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter)
{
    double peak;
    if (ctx->id != PB_CPU) return pb_train_case_memory(ctx, c, emitter);
    PB_TRY(pb_memory_peak(&peak));
    return pb_emit(emitter, c, "peak_memory", peak, 0, PB_ROW_OK, "");
}

static pb_status steps(pb_ctx *ctx, const pb_case *c, pb_trainer *t, const pb_suite_env *env)
{
    const pb_train_config *cfg = pb_trainer_config(t);
    const bool graph = pb_train_case_graph(c);
    double step = 0, loss;
    pb_check v;
    PB_TRY(pb_train_case_gradient(ctx, c, t, env->emitter, &v));
    if (v.status != PB_ROW_OK) return pb_emit(env->emitter, c, "step_time", (double)NAN, 0, v.status, v.note);
    if (ctx->id == PB_CPU) PB_TRY(pb_memory_reset_peak());
    PB_TRY(pb_train_case_fresh(ctx, t));
    PB_TRY(graph ? graphed(ctx, c, t, env, &step) : eager(ctx, c, t, env, &step));
    if (!(step > 0)) return PB_OK;
    PB_TRY(pb_trainer_loss(t, &loss));
    PB_TRY(pb_emit(env->emitter, c, "loss", loss, 0, isfinite(loss) ? PB_ROW_OK : PB_ROW_WRONG,
                   isfinite(loss) ? "" : "not finite"));
    PB_TRY(pb_emit(env->emitter, c, "tokens_per_second", cfg->B * cfg->S / step, 0, PB_ROW_OK, ""));
    PB_TRY(emit_flops(ctx, c, t, step, env));
    return emit_process_memory(ctx, c, env->emitter);
}

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_trainer *t;
    if (pb_rank_steps_needed(c, env)) return pb_rank_steps_run(ctx, c, env, NULL);
    PB_TRY(pb_train_case_open(ctx, c, &t));
    pb_status s = steps(ctx, c, t, env);
    pb_trainer_close(t);
    return s;
}

static pb_status check(const pb_case *c)
{
    PB_TRY(pb_train_case_check(c));
    return pb_rank_steps_check(c);
}

/* How many steps of one micro-batch a sample is: on a CPU the ranks share the processors. */
static double parts_of(const pb_case *c)
{
    const char *ranks = pb_case_get(c, "ranks"), *parts = pb_case_get(c, "accumulate");
    return (ranks ? strtod(ranks, NULL) : 1) * (parts ? strtod(parts, NULL) : 1);
}

/* With several ranks: two steps of one rank and of all ranks for the check, and two steps for each sample. */
static double expect(const pb_case *c)
{
    const double n = parts_of(c), step = 3.2 * n * pb_train_case_seconds(c), samples = n > 1 ? 15 : 5;
    return 2 + (n > 1 ? 7 : 3) * step + (samples * step > 1.5 ? samples * step : 1.5);
}

static double device_expect(const pb_case *c)
{
    const double n = parts_of(c);
    return pb_train_case_device_seconds(c) + (n > 1 ? (4 * n + 15) * pb_train_case_device_step(c) : 0);
}

static const char *const grid[] = {"tuning=full,lora,qlora", NULL};
static const char *const full_grid[] = {"tuning=full,lora,qlora batch=1,4 seq=128,256,512 mode=eager,graph", NULL};

/* Grid for a GPU: whole steps, eager and as one graph. It includes the cases of the step requirements in
 * requirements.def. NorMuon (requirement NAN-GUARD) is not in it, because a line of the grid applies to every --model.
 * Three processes take less than ten minutes on an H200. */
#define DEVICE "dtype=bf16 mode=eager,graph model=qwen2.5-"
#define BOTH   "0.5b,qwen2.5-1.5b "
/* One layer of each kind of DeepSeek-V4 in its original sizes, for requirement V4-STEP. */
#define V4_STEP "dtype=bf16 mode=eager,graph model=v4-flash-layer tuning=full attention=dense,sparse batch=1 "
static const char *const device_grid[] = {DEVICE BOTH "tuning=lora,qlora batch=1,4 seq=512,2048",
                                          DEVICE BOTH "tuning=lora,qlora batch=1 seq=128",
                                          "dtype=bf16 mode=eager clip=sync model=qwen2.5-" BOTH
                                          "tuning=qlora batch=1,4 seq=512,2048",
                                          DEVICE "0.5b tuning=full batch=1,4 seq=512,2048",
                                          DEVICE "1.5b tuning=full batch=4 seq=512",
                                          V4_STEP "seq=4096",
                                          NULL};
static const char *const device_full_grid[] = {DEVICE BOTH
                                               "tuning=lora,qlora,full batch=1,2,4,8 seq=128,256,512,1024,2048",
                                               "dtype=bf16 mode=eager clip=sync model=qwen2.5-" BOTH
                                               "tuning=lora,qlora,full batch=1,2,4,8 seq=128,256,512,1024,2048",
                                               V4_STEP "seq=4096,8192,16384", NULL};

/* Several GPUs: the steps of the requirements on them. Three processes take about four minutes on two H200. */
static const char *const device_ranks_grid[] = {
    "dtype=bf16 mode=graph model=qwen2.5-0.5b tuning=full batch=4 seq=512,2048 reduce=f32,bf16 shard=none,parameters",
    "dtype=bf16 mode=graph model=qwen2.5-1.5b tuning=qlora batch=4 seq=512", NULL};

#define OMITTED PB_TRAIN_AXES_OMITTED " " PB_RANK_AXES_OMITTED " moments=f32 optimizer=adamw"
static pb_status conclude(pb_ctx *ctx, pb_emitter *emitter)
{
    if (ctx->id == PB_CPU) return PB_OK;
    PB_TRY(pb_requirements_conclude(emitter, "throughput", OMITTED));
    if (pb_rank_steps_of(emitter, "throughput")) return PB_OK; /* the others are on one GPU */
    PB_TRY(pb_step_ratios_conclude(emitter));
    return pb_graph_gain_conclude(emitter, "throughput", "step_time");
}

const pb_suite pb_suite_throughput = {
    .name = "throughput",
    .what = "whole training steps: time by phase, tokens per second, peak memory",
    .ranks = true,
    .own_input = true,
    .axes = PB_TRAIN_AXES PB_RANK_AXES PB_OPTIMIZER_AXES " batch=1 clip=multi mode=eager seq=256 tuning=full",
    .omitted = OMITTED,
    .grid = grid,
    .full_grid = full_grid,
    .device_grid = device_grid,
    .device_full_grid = device_full_grid,
    .device_ranks_grid = device_ranks_grid,
    .check = check,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
    .conclude = conclude,
};
