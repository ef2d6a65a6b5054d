/* ceiling_device.c - ceilings of a GPU, measured through the ops that a model uses. */
#include "bench/suites/ceiling_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure/measure.h"
#include "kernels/clip/clip.h"
#include "kernels/engine/arena.h"
#include "kernels/engine/op.h"
#include "kernels/linear/linear.h"
#include "kernels/scatter/scatter.h"

enum { N = 8192 /* matrices are N x N */, KERNEL_LAUNCHES = 1000 /* kernel launches per sample */ };

/* ---- the rate of matrix products -------------------------------------------------------------------- */

static pb_status run_product(pb_ctx *ctx, void *self) { return pb_linear_fwd(ctx, self); }

/* Fills a matrix with random values in [-0.5, 0.5). Zeros would need less power, and the higher clocks would give a
 * rate that no model reaches. */
static pb_status fill(pb_ctx *ctx, void *dev, pb_dtype t, uint64_t seed)
{
    const size_t n = (size_t)N * N;
    unsigned char *host = malloc(n * pb_dtype_size(t));
    if (!host) return pb_fail(PB_ENOMEM, "no memory for a matrix");
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) pb_store(host, i, t, pb_uniform(seed, i) - 0.5);
    pb_status s = pb_upload(ctx, dev, host, n * pb_dtype_size(t));
    free(host);
    return s;
}

static pb_status time_product(pb_ctx *ctx, const pb_case *c, const char *metric, pb_linear_fwd_args *a,
                              const pb_suite_env *env)
{
    pb_timing t;
    pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    o.queued = true;
    PB_TRY(fill(ctx, (void *)a->x, a->dtype, 1));
    PB_TRY(fill(ctx, (void *)a->w, a->dtype, 2));
    ctx->impl = "cublaslt";
    pb_status s = pb_measure(ctx, run_product, a, &o, &t);
    ctx->impl = NULL;
    PB_TRY(s);
    if (t.group) {
        PB_TRY(pb_emit_group(env->emitter, c, t.group, 3 * (double)N * N * (double)pb_dtype_size(a->dtype)));
        return pb_emit_counter_error(env->emitter, c, t.group, "tensor_bf16_flops", 2.0 * N * N * N);
    }
    return pb_emit_rate(env->emitter, c, metric, 2.0 * N * N * N, &t,
                        a->dtype == PB_BF16 ? "8192^3, bf16" : "8192^3, f32");
}

static pb_status product(pb_ctx *ctx, const pb_case *c, const char *metric, pb_dtype t, const pb_suite_env *env)
{
    const size_t bytes = (size_t)N * N * pb_dtype_size(t);
    pb_linear_fwd_args args;
    pb_arena a;
    pb_arena_begin(&a, ctx);
    for (int pass = 0; pass < 2; pass++) {
        args = (pb_linear_fwd_args){.x = pb_carve(&a, bytes),
                                    .w = pb_carve(&a, bytes),
                                    .y = pb_carve(&a, bytes),
                                    .T = N,
                                    .N = N,
                                    .K = N,
                                    .dtype = t};
        if (!pass) PB_TRY(pb_arena_commit(&a));
    }
    pb_status s = time_product(ctx, c, metric, &args, env);
    pb_arena_free(&a);
    return s;
}

pb_status pb_ceiling_matmul(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    return product(ctx, c, "matmul_rate", PB_BF16, env);
}

pb_status pb_ceiling_matmul_f32(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    return product(ctx, c, "matmul_f32_rate", PB_F32, env);
}

/* ---- the time of a kernel launch and of a graph node -------------------------------------------------- */

static pb_status run_launches(pb_ctx *ctx, void *self)
{
    for (int i = 0; i < KERNEL_LAUNCHES; i++) PB_TRY(pb_clip_scale(ctx, self));
    return PB_OK;
}

static pb_status time_launches(pb_ctx *ctx, const pb_case *c, pb_clip_scale_args *a, bool graph,
                               const pb_suite_env *env)
{
    pb_timing t;
    char note[96];
    pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    o.graph = graph;
    PB_TRY(pb_measure(ctx, run_launches, a, &o, &t));
    for (int i = 0; i < t.n; i++) t.seconds[i] /= KERNEL_LAUNCHES;
    t.median /= KERNEL_LAUNCHES;
    snprintf(note, sizeof note, "%d launches in a row; %.3g s of each on the host", KERNEL_LAUNCHES,
             t.host_median / KERNEL_LAUNCHES);
    return pb_emit_timing(env->emitter, c, graph ? "node_time" : "kernel_launch_time", &t, note);
}

pb_status pb_ceiling_kernel_launch(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_clip_scale_args args = {.n = 1};
    pb_arena a;
    pb_arena_begin(&a, ctx);
    for (int pass = 0; pass < 2; pass++) {
        args.x = pb_carve(&a, sizeof *args.x);
        args.state = pb_carve(&a, sizeof *args.state);
        if (!pass) PB_TRY(pb_arena_commit(&a));
    }
    pb_status s = time_launches(ctx, c, &args, false, env);
    if (s == PB_OK) s = time_launches(ctx, c, &args, true, env);
    pb_arena_free(&a);
    return s;
}

/* ---- the rate of reductions in L2 ----------------------------------------------------------------------- */

/* Sizes of l2_reduce_rate: ADDITIONS rows of COLUMNS floats (2 KiB each), as attention backward adds them, go to an
 * array of ROWS rows (16 MiB), which fits in L2. */
enum { ADDITIONS = 1 << 20, ROWS = 8192, COLUMNS = 512 };

static pb_status run_additions(pb_ctx *ctx, void *self) { return pb_scatter_add(ctx, self); }

static pb_status draw_rows(pb_ctx *ctx, const pb_scatter_add_args *a)
{
    int32_t *idx = malloc(ADDITIONS * sizeof *idx);
    float x[COLUMNS];
    if (!idx) return pb_fail(PB_ENOMEM, "no memory for %d rows", ADDITIONS);
    for (size_t i = 0; i < ADDITIONS; i++) idx[i] = (int32_t)(pb_uniform(1, i) * ROWS);
    for (size_t i = 0; i < COLUMNS; i++) x[i] = (float)pb_uniform(2, i) - 0.5f;
    pb_status s = pb_upload(ctx, (void *)a->idx, idx, ADDITIONS * sizeof *idx);
    if (s == PB_OK) s = pb_upload(ctx, (void *)a->x, x, sizeof x);
    free(idx);
    return s;
}

/* Times every available implementation. The fastest gives the ceiling; the note lists the rates of all. */
static pb_status time_additions(pb_ctx *ctx, const pb_case *c, pb_scatter_add_args *a, const pb_suite_env *env)
{
    const double bytes = 4.0 * ADDITIONS * COLUMNS;
    /* Two timings: the one being measured and the best so far; `best` points at one of them. */
    pb_timing *t = calloc(2, sizeof *t), *best = NULL;
    char note[200] = "";
    pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    pb_status s = t ? draw_rows(ctx, a) : pb_fail(PB_ENOMEM, "no memory for samples");
    o.queued = true;
    for (const pb_impl *i = pb_op_scatter_add.impls[ctx->id]; s == PB_OK && i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        pb_timing *next = best == t ? t + 1 : t;
        s = pb_measure(ctx, run_additions, a, &o, next);
        if (s != PB_OK) break;
        const size_t used = strlen(note);
        snprintf(note + used, sizeof note - used, "%s%s %.4g B/s", used ? ", " : "", i->name, bytes / next->median);
        if (!best || next->median < best->median) best = next;
    }
    ctx->impl = NULL;
    if (s == PB_OK && best) s = pb_emit_rate(env->emitter, c, "l2_reduce_rate", bytes, best, note);
    free(t);
    return s;
}

pb_status pb_ceiling_l2_reduce(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_scatter_add_args args;
    pb_arena a;
    pb_arena_begin(&a, ctx);
    for (int pass = 0; pass < 2; pass++) {
        args = (pb_scatter_add_args){.x = pb_carve(&a, COLUMNS * sizeof(float)),
                                     .idx = pb_carve(&a, ADDITIONS * sizeof(int32_t)),
                                     .y = pb_carve(&a, (size_t)ROWS * COLUMNS * sizeof(float)),
                                     .S = ADDITIONS,
                                     .R = ROWS,
                                     .D = COLUMNS};
        if (!pass) PB_TRY(pb_arena_commit(&a));
    }
    pb_status s = time_additions(ctx, c, &args, env);
    pb_arena_free(&a);
    return s;
}
