/* suite_attention.c - sparse attention over key lists, compared with dense attention and with deterministic sparse
 * attention, forward and backward: time of the whole pass, FLOP/s, roofline fraction and error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/measure/measure.h"
#include "bench/suites/attention_ranks.h"
#include "bench/suites/attention_requirements.h"
#include "bench/suites/gqa_check.h"
#include "bench/suites/suite.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"

/* ---- emitting the error of the outputs ------------------------------------------------------------------- */

static pb_status emit_error(const pb_case *c, const pb_attn_error *e, pb_emitter *emitter, bool *right)
{
    char why[200];
    const int worst = pb_attn_worst(e);
    const double rel = pb_deviation_rel(&e->of[worst]);
    double rel_diff = 0;
    *right = pb_attn_right(e, why, sizeof why);
    if (*right) snprintf(why, sizeof why, "%s, sampled", e->name[worst]);
    PB_TRY(pb_emit(emitter, c, "error", rel, 0, *right ? PB_ROW_OK : PB_ROW_WRONG, why));
    for (int k = 0; k < PB_CHECKED && e->name[k]; k++) {
        const double d = pb_deviation_rel_diff(&e->of[k]);
        if (isnan(d) || d > rel_diff) rel_diff = d;
    }
    return pb_emit(emitter, c, "rel_diff", rel_diff, 0, *right ? PB_ROW_OK : PB_ROW_WRONG, why);
}

/* ---- timing the pass ------------------------------------------------------------------------------------- */

/* One pass that is timed: its case, the call, and its work in pairs per query head and in bytes. */
typedef struct timed {
    pb_attn a;
    pb_fn run;
    void *call;
    const char *impl;
    double valid, listed, bytes;
} timed;

/* Estimated seconds of one call, for --dry-run and for choosing how to time it. Masked slots count as work. */
static double call_seconds(const pb_attn *a, bool device)
{
    const double rate = !device ? 3e10 : a->variant == PB_VARIANT_DETERMINISTIC ? 3e13 : a->backward ? 8e13 : 1.5e14;
    const bool dense = a->variant == PB_VARIANT_DENSE || a->variant == PB_VARIANT_DENSE_GQA;
    const double pairs = dense ? pb_attn_pairs(a, NULL) : (double)a->S * a->W;
    return pb_attn_flops(a, pairs) / rate;
}

/* Returns how to measure: the cache is evicted before each sample, because cached data would make the pass seem faster.
 * Samples of short passes are queued, so that the host's time to launch their kernels is not measured. */
static pb_measure_opts measure_opts(const pb_ctx *ctx, const pb_attn *a)
{
    pb_measure_opts o = {.warmup = 1, .min_samples = 5, .max_samples = PB_MAX_SAMPLES, .min_time = 0.05};
    o.flush = ctx->id != PB_CPU;
    o.queued = o.flush && call_seconds(a, true) < 0.01;
    return o;
}

/* Emits the FLOP/s of valid and of listed pairs and the roofline fraction. In f32 the ceiling of FLOP/s is
 * matmul_f32_rate where it was measured. */
static pb_status emit_rates(const pb_case *c, const timed *k, const pb_timing *t, const pb_suite_env *env)
{
    const bool f32 = k->a.dtype == PB_F32 && pb_env_ceiling(env, "matmul_f32_rate") > 0;
    const pb_attn_ceilings ceilings = {pb_env_ceiling(env, "copy_rate"),
                                       pb_env_ceiling(env, f32 ? "matmul_f32_rate" : "matmul_rate"),
                                       pb_env_ceiling(env, "l2_reduce_rate")};
    const double work = pb_attn_flops(&k->a, k->valid);
    char note[160];
    if (pb_interrupted()) return PB_OK;
    if (work > 0) PB_TRY(pb_emit(env->emitter, c, "kernel_flops", work / t->median, 0, PB_ROW_OK, "of valid pairs"));
    snprintf(note, sizeof note, "of listed pairs, %.1f %% of them valid", 100 * k->valid / k->listed);
    PB_TRY(pb_emit(env->emitter, c, "listed_flops", pb_attn_flops(&k->a, k->listed) / t->median, 0, PB_ROW_OK, note));
    if (!(ceilings.copy > 0) || !(ceilings.matmul > 0))
        return pb_emit(env->emitter, c, "roofline_fraction", (double)NAN, 0, PB_ROW_UNSUPPORTED,
                       "this process has no ceilings");
    const pb_attn_roofline floor = pb_attn_roofline_of(&k->a, k->valid, k->bytes, &ceilings);
    return pb_emit(env->emitter, c, "roofline_fraction", floor.seconds / t->median, 0, PB_ROW_OK, floor.bound);
}

static pb_status emit_timed(pb_ctx *ctx, const pb_case *c, const timed *k, const pb_timing *t, const pb_suite_env *env)
{
    PB_TRY(pb_emit_timing(env->emitter, c, "kernel_time", t, k->impl));
    PB_TRY(pb_emit_counters(env->emitter, c, ctx, t, pb_attn_flops(&k->a, k->valid)));
    PB_TRY(pb_emit_resources(env->emitter, c, ctx, k->run, k->call));
    return emit_rates(c, k, t, env);
}

static pb_status time_call(pb_ctx *ctx, const pb_case *c, const timed *k, const pb_suite_env *env)
{
    const pb_measure_opts o = pb_env_measure_opts(env, measure_opts(ctx, &k->a));
    pb_timing *t = malloc(sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_held_reset(ctx); /* what the check of the result held is not counted */
    pb_status s = pb_measure(ctx, k->run, k->call, &o, t);
    if (s == PB_OK) s = t->group ? pb_emit_group(env->emitter, c, t->group, k->bytes) : emit_timed(ctx, c, k, t, env);
    free(t);
    return s;
}

/* ---- latent attention, and grouped-query attention: a wrong result is not timed ------------------------------ */

static pb_status measure_mla(pb_ctx *ctx, const pb_case *c, pb_attn_call *k, const pb_suite_env *env)
{
    timed t = {k->a, pb_attn_run, k, NULL, k->valid, k->listed, pb_attn_bytes(k)};
    pb_attn_error e;
    bool right;
    PB_TRY(pb_attn_impl(ctx, k, &t.impl));
    PB_TRY(pb_attn_run(ctx, k));
    PB_TRY(pb_sync(ctx));
    PB_TRY(pb_attn_check(ctx, k, &e));
    PB_TRY(pb_attn_requirements(env->emitter, c, &k->a, &e));
    PB_TRY(emit_error(c, &e, env->emitter, &right));
    return right ? time_call(ctx, c, &t, env) : PB_OK;
}

/* Times the selection of the keys alone. */
static pb_status time_selection(pb_ctx *ctx, const pb_case *c, pb_gqa_call *k, const pb_suite_env *env)
{
    const pb_measure_opts o = pb_env_measure_opts(env, measure_opts(ctx, &k->a));
    pb_timing *t = malloc(sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status s = pb_measure(ctx, pb_gqa_select, k, &o, t);
    if (s == PB_OK) s = pb_emit_timing(env->emitter, c, "selection_time", t, "without attention");
    free(t);
    return s;
}

static pb_status measure_gqa(pb_ctx *ctx, const pb_case *c, pb_gqa_call *k, const pb_suite_env *env)
{
    timed t = {k->a, pb_gqa_run, k, NULL, k->valid, k->listed, pb_gqa_bytes(k)};
    pb_attn_error e;
    bool right;
    PB_TRY(pb_gqa_impl(ctx, k, &t.impl));
    PB_TRY(pb_gqa_run(ctx, k));
    PB_TRY(pb_sync(ctx));
    PB_TRY(pb_gqa_check(ctx, k, &e));
    PB_TRY(emit_error(c, &e, env->emitter, &right));
    if (!right) return PB_OK;
    PB_TRY(time_call(ctx, c, &t, env));
    return k->L && !k->a.backward && !env->group ? time_selection(ctx, c, k, env) : PB_OK;
}

static pb_status run_mla(pb_ctx *ctx, const pb_case *c, const pb_attn *a, const pb_suite_env *env)
{
    pb_attn_call k;
    PB_TRY(pb_attn_open(ctx, a, &k));
    const pb_status s = measure_mla(ctx, c, &k, env);
    pb_attn_close(&k);
    return s;
}

static pb_status run_gqa(pb_ctx *ctx, const pb_case *c, const pb_attn *a, const pb_suite_env *env)
{
    pb_gqa_call k;
    PB_TRY(pb_gqa_open(ctx, a, &k));
    const pb_status s = measure_gqa(ctx, c, &k, env);
    pb_gqa_close(&k);
    return s;
}

static pb_status run_ranks(pb_ctx *ctx, const pb_case *c, const pb_attn *a, const pb_suite_env *env)
{
    const pb_measure_opts o = pb_env_measure_opts(env, measure_opts(ctx, a));
    return pb_attn_ranks_run(ctx, &(pb_attn_ranks){c, a, env, o, emit_error});
}

/* ---- the suite: grids, estimate, entry points ------------------------------------------------------------ */

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_attn a;
    PB_TRY(pb_attn_of(c, &a));
    const pb_status s = a.context.ranks > 1  ? run_ranks(ctx, c, &a, env)
                        : pb_attn_is_gqa(&a) ? run_gqa(ctx, c, &a, env)
                                             : run_mla(ctx, c, &a, env);
    pb_ctx_release_scratch(ctx); /* frees memory for the next case */
    return s;
}

#define OMITTED "bias=random cp=1 slices=contiguous"
static pb_status conclude(pb_ctx *ctx, pb_emitter *emitter)
{
    PB_TRY(pb_attn_crossovers(emitter));
    return ctx->id == PB_CPU ? PB_OK : pb_requirements_conclude(emitter, "attention", OMITTED);
}

static pb_status check_case(const pb_case *c)
{
    pb_attn a;
    return pb_attn_of(c, &a);
}

/* Estimate: set-up (random tensors, key lists, the forward pass of a backward case, download for the check), then one
 * call to check, one warm-up call and five samples. Ranks do the same together that one rank does alone before, and
 * each makes all inputs; they share the processors. */
static double seconds(const pb_case *c, bool device)
{
    pb_attn a;
    if (pb_attn_of(c, &a) != PB_OK) return 0;
    const double once = call_seconds(&a, device), elements = (double)a.S * a.H * a.D * (a.backward ? 4 : 2);
    const double ranks = a.context.ranks, calls = ranks > 1 ? 20 : 8;
    return device ? 0.25 + elements / 2e9 + (calls - 1) * once : ranks * (0.05 + elements / 1e8) + calls * once;
}

static double expect(const pb_case *c) { return seconds(c, false); }
static double device_expect(const pb_case *c) { return seconds(c, true); }

static const char *const grid[] = {"fwd,bwd list=random topk=32,128 seq=256,512",
                                   "fwd,bwd list=causal,v4 topk=128 seq=256",
                                   "fwd,bwd variant=dense list=causal topk=0 seq=256,512",
                                   "bwd variant=deterministic seq=256",
                                   "fwd,bwd variant=dynmask list=union,exact qk=64 topk=64 seq=256,512",
                                   "fwd,bwd variant=dynmask list=union bias=clustered,blocks qk=64 topk=64 seq=512",
                                   "fwd,bwd variant=dense_gqa list=causal qk=64 topk=0 seq=256,512",
                                   NULL};
static const char *const full_grid[] = {"fwd,bwd list=random,causal,v4 topk=32,128,640 seq=256,512,1280 heads=8,64",
                                        "fwd,bwd variant=dense list=causal topk=0 seq=256,512,1280 heads=8,64",
                                        "bwd variant=deterministic topk=128,640 seq=1280 heads=8,64",
                                        "fwd,bwd variant=dynmask list=union,exact qk=64,128 topk=128,512 seq=512,2048",
                                        "fwd,bwd variant=dense_gqa list=causal qk=64,128 topk=0 seq=512,2048",
                                        NULL};

#define BF16    "dtype=bf16 heads=64 "
#define LENGTHS "seq=1280,2048,4096,8192,16384,32768"
#define GQA     "fwd,bwd dtype=bf16 heads=32 qk=64,128 "
#define DENSE   "fwd,bwd variant=dense list=causal topk=0 "
/* Grid for a GPU. With 64 heads of width 512: all lengths, and at length 4096 all kinds of lists and the deterministic
 * backward pass. Then other head counts and widths, and the shape of the requirements. Three processes take less than
 * ten minutes on an H100. */
static const char *const device_grid[] = {"fwd,bwd " BF16 "list=random topk=128,640,1024,2048 " LENGTHS,
                                          "fwd,bwd " BF16 "list=v4 topk=640 " LENGTHS,
                                          "fwd,bwd " BF16 "list=causal,v4 topk=128,1024,2048 seq=4096",
                                          DENSE BF16 LENGTHS,
                                          "bwd variant=deterministic " BF16
                                          "list=random topk=128,640,1024,2048 seq=4096",
                                          "bwd variant=deterministic " BF16 "list=v4 topk=640 seq=4096",
                                          "fwd,bwd dtype=bf16 heads=8,16,128 list=random topk=1024 seq=4096",
                                          DENSE "dtype=bf16 heads=8,16,128 seq=4096",
                                          "fwd,bwd dtype=bf16 heads=128 qk=576 list=random topk=2048 seq=4096",
                                          "fwd " BF16 "topk=640 seq=1280 masked=75,100",
                                          "bwd " BF16 "variant=sparse,deterministic topk=640 seq=1280 masked=0,75,100",
                                          GQA "variant=dynmask list=union topk=512,2048 seq=2048,8192",
                                          GQA "variant=dynmask list=exact topk=1024 seq=2048,8192",
                                          GQA "variant=dynmask list=union bias=clustered,blocks topk=1024 seq=8192",
                                          GQA "variant=dense_gqa list=causal topk=0 seq=2048,8192",
                                          NULL};
static const char *const device_full_grid[] = {
    "fwd,bwd dtype=bf16 heads=8,16,64,128 list=random,causal,v4 topk=128,640,1024,2048 " LENGTHS,
    "fwd,bwd dtype=bf16 heads=64,128 qk=576 list=random topk=1024,2048 " LENGTHS,
    DENSE "dtype=bf16 heads=8,16,64,128 " LENGTHS,
    DENSE "dtype=bf16 heads=64,128 qk=576 " LENGTHS,
    "bwd variant=deterministic dtype=bf16 heads=8,64,128 list=random,v4 topk=128,640,1024,2048 seq=1280,4096,8192",
    "fwd " BF16 "topk=640 seq=1280 masked=75,100",
    "bwd " BF16 "variant=sparse,deterministic topk=640 seq=1280 masked=0,75,100",
    GQA "variant=dynmask list=union,exact topk=512,1024,2048,4096 seq=2048,4096,8192,16384,32768,65536",
    GQA "variant=dynmask list=union,exact bias=clustered,blocks topk=512,1024,2048,4096 seq=8192,16384,65536",
    GQA "variant=dense_gqa list=causal topk=0 seq=2048,4096,8192,16384,32768,65536",
    NULL};

/* Rows that ranks share. Another number of ranks is given twice: --ranks 4 --cp 4. */
static const char *const ranks_grid[] = {
    "fwd,bwd cp=2 list=random,v4 seq=256,512", "bwd cp=2 variant=deterministic seq=256",
    "fwd,bwd cp=2 variant=dense list=causal topk=0 seq=256,512 slices=contiguous,zigzag", NULL};
static const char *const device_ranks_grid[] = {"fwd,bwd cp=2 " BF16 "list=random,v4 topk=640 seq=8192,32768",
                                                DENSE "cp=2 " BF16 "seq=8192,32768 slices=contiguous,zigzag", NULL};

#define AXES "bias= cp= variant=sparse dtype=f32 heads=8 list=random masked=0 qk=512 seq=256 slices= topk=128"
const pb_suite pb_suite_attention = {
    .name = "attention",
    .what = "sparse attention over key lists and dense attention, by length, list, heads and ranks that share a row",
    .counted = true,
    .ranks = true,
    .axes = AXES,
    .omitted = OMITTED,
    .grid = grid,
    .full_grid = full_grid,
    .device_grid = device_grid,
    .device_full_grid = device_full_grid,
    .ranks_grid = ranks_grid,
    .device_ranks_grid = device_ranks_grid,
    .check = check_case,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
    .conclude = conclude,
};
