/* suite_ceiling.c - the ceilings of this machine; every process of every suite measures them first. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/suites/ceiling_device.h"
#include "bench/suites/range_cost.h"
#include "bench/suites/suite.h"
#include "kernels/cpu/gemm.h"
#include "kernels/engine/arena.h"
#include "kernels/engine/op.h"
#include "kernels/gradient/gradient.h"
#include "os/interrupt.h"
#include "profiles/ranges.h"

enum { CALLS = 1 << 20 /* indirect calls per sample */, N = 2048 /* matrices are N x N */ };

/* In a run with --counters: the metrics of the group, and how far one of them is from the number that is known. */
static pb_status emit_known(const pb_case *c, const pb_timing *t, const char *metric, double known,
                            const pb_suite_env *env)
{
    PB_TRY(pb_emit_group(env->emitter, c, t->group, known));
    return pb_emit_counter_error(env->emitter, c, t->group, metric, known);
}

/* ---- copy_rate: copying memory --------------------------------------------------------------------- */

typedef struct copy {
    void *to, *from; /* [bytes] each */
    size_t bytes;
} copy;

static pb_status run_copy(pb_ctx *ctx, void *self)
{
    const copy *c = self;
    return pb_copy(ctx, c->to, c->from, c->bytes);
}

/* A copy by a kernel, whose bytes can be counted: copies by the driver launch none that CUPTI could run again. */
static pb_status copy_by_kernel(pb_ctx *ctx, void *self)
{
    const copy *c = self;
    return pb_gradient_add(ctx, &(pb_gradient_add_args){.x = c->from, .y = c->to, .n = c->bytes / sizeof(float)});
}

static pb_status measure_copy(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    copy job;
    pb_arena a;
    pb_timing t;
    char note[64];
    const size_t mib = ctx->id == PB_CPU ? 256 : 1024;
    pb_arena_begin(&a, ctx);
    for (int pass = 0; pass < 2; pass++) {
        job = (copy){pb_carve(&a, mib << 20), pb_carve(&a, mib << 20), mib << 20};
        if (!pass) PB_TRY(pb_arena_commit(&a));
    }
    pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    o.queued = ctx->id != PB_CPU;
    pb_status s = pb_measure(ctx, env->group && ctx->id != PB_CPU ? copy_by_kernel : run_copy, &job, &o, &t);
    pb_arena_free(&a);
    PB_TRY(s);
    if (t.group) return emit_known(c, &t, "dram_bytes", 2 * (double)job.bytes, env);
    snprintf(note, sizeof note, "%zu MiB read and %zu MiB written", mib, mib);
    return pb_emit_rate(env->emitter, c, "copy_rate", 2 * (double)job.bytes, &t, note);
}

/* ---- matmul_rate on a CPU -------------------------------------------------------------------------------------- */

typedef struct product {
    float *a, *b, *c; /* [N,N] */
    pb_gemm ours;
} product;

static pb_status run_blas(pb_ctx *ctx, void *self)
{
    product *p = self;
    (void)ctx;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, p->a, N, p->b, N, 0, p->c, N);
    return PB_OK;
}

static pb_status run_ours(pb_ctx *ctx, void *self)
{
    (void)ctx;
    pb_gemm_best(&((product *)self)->ours);
    return PB_OK;
}

static void fill(product *p)
{
#pragma omp parallel for
    for (size_t i = 0; i < (size_t)N * N; i++) {
        p->a[i] = (float)pb_uniform(1, i) - 0.5f;
        p->b[i] = (float)pb_uniform(2, i) - 0.5f;
    }
}

/* True if our GEMM agrees with the BLAS result in `want`. */
static bool ours_agrees(product *p, const float *want)
{
    p->ours.c = p->c;
    memset(p->c, 0xff, sizeof(float) * N * N);
    pb_gemm_best(&p->ours);
    pb_diff d = pb_diff_arrays(want, p->c, (size_t)N * N, PB_F32);
    return pb_diff_ok(&d, 1e-5);
}

static pb_status time_products(pb_ctx *ctx, const pb_case *c, product *p, float *want, const pb_suite_env *env)
{
    const double flops = 2.0 * N * N * N;
    const pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    pb_timing blas, ours;
    char note[128];
    PB_TRY(pb_measure(ctx, run_blas, p, &o, &blas));
    if (blas.group) return pb_emit_group(env->emitter, c, blas.group, 0);
    snprintf(note, sizeof note, "openblas %.4g FLOP/s", flops / blas.median);
    memcpy(want, p->c, sizeof(float) * N * N);
    if (pb_interrupted() || !ours_agrees(p, want))
        return pb_emit_rate(env->emitter, c, "matmul_rate", flops, &blas, note);
    PB_TRY(pb_measure(ctx, run_ours, p, &o, &ours));
    snprintf(note, sizeof note, "openblas %.4g, plumb %.4g FLOP/s", flops / blas.median, flops / ours.median);
    return pb_emit_rate(env->emitter, c, "matmul_rate", flops, ours.median < blas.median ? &ours : &blas, note);
}

static pb_status measure_matmul(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    const size_t bytes = sizeof(float) * N * N;
    product p;
    float *want = NULL;
    pb_arena a;
    pb_arena_begin(&a, ctx);
    for (int pass = 0; pass < 2; pass++) {
        p = (product){.a = pb_carve(&a, bytes), .b = pb_carve(&a, bytes), .c = pb_carve(&a, bytes)};
        want = pb_carve(&a, bytes);
        p.ours = (pb_gemm){.M = N, .N = N, .K = N, .a = {p.a, N, PB_F32}, .b = {p.b, N, PB_F32}, .ldc = N, .alpha = 1};
        p.ours.workspace = pb_carve(&a, pb_gemm_workspace(&p.ours));
        if (!pass) PB_TRY(pb_arena_commit(&a));
    }
    fill(&p);
    pb_status s = time_products(ctx, c, &p, want, env);
    pb_arena_free(&a);
    return s;
}

/* ---- the time of one indirect call on a CPU ---------------------------------------------------------------------- */

typedef pb_status (*callee)(pb_ctx *ctx, void *self);

static pb_status count_one(pb_ctx *ctx, void *self)
{
    (void)ctx;
    ++*(volatile long *)self;
    return PB_OK;
}

static pb_status run_calls(pb_ctx *ctx, void *self)
{
    static callee volatile table[] = {count_one, count_one}; /* volatile: the pointer is loaded at every call */
    for (int i = 0; i < CALLS; i++) PB_TRY(table[i & 1](ctx, self));
    return PB_OK;
}

static pb_status measure_call(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    long counter = 0;
    pb_timing t;
    const pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    PB_TRY(pb_measure(ctx, run_calls, &counter, &o, &t));
    for (int i = 0; i < t.n; i++) t.seconds[i] /= CALLS;
    t.median /= CALLS;
    return pb_emit_timing(env->emitter, c, "call_time", &t, "a call through a table that adds 1");
}

/* ---- the time of one profiler range on the host ---------------------------------------------------------- */

/* The requirement holds only while no profiler is attached. */
static pb_status measure_range(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    static const char how[] = "one range begun and ended; no tool attached";
    pb_timing t;
    const pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    if (pb_ranges_on) {
        PB_TRY(pb_requirement_emit(env->emitter, "NVTX-RANGE", NULL, 0, 0, false, "a profiler is attached"));
        return pb_fail(PB_EUNSUPPORTED, "a profiler is attached: the cost of a range without one cannot be measured");
    }
    PB_TRY(pb_range_cost(ctx, &o, &t));
    PB_TRY(pb_emit_timing(env->emitter, c, "range_time", &t, how));
    return t.n ? pb_requirement_emit(env->emitter, "NVTX-RANGE", NULL, 0, t.median, true, how) : PB_OK;
}

/* ---- the suite: grids, estimate, entry points ----------------------------------------------------------- */

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    static const struct {
        const char *name;
        pb_status (*on_cpu)(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
        pb_status (*on_device)(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
        bool known; /* its bytes or FLOPs are known, to check counters with (--counters) */
    } cases[] = {
        {"copy", measure_copy, measure_copy, true},         {"matmul", measure_matmul, pb_ceiling_matmul, true},
        {"matmul_f32", NULL, pb_ceiling_matmul_f32, false}, {"call", measure_call, NULL, false},
        {"range", measure_range, measure_range, false},     {"kernel_launch", NULL, pb_ceiling_kernel_launch, false},
        {"l2_reduce", NULL, pb_ceiling_l2_reduce, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, c->name) != 0) continue;
        if (env->group && !cases[i].known)
            return pb_fail(PB_EUNSUPPORTED, "counters: no bytes or FLOPs of ceiling/%s are known", c->name);
        if (ctx->id == PB_CPU && cases[i].on_cpu) return cases[i].on_cpu(ctx, c, env);
        if (ctx->id != PB_CPU && cases[i].on_device) return cases[i].on_device(ctx, c, env);
        return pb_fail(PB_EUNSUPPORTED, "ceiling/%s is not measured on %s", c->name, ctx->be->name);
    }
    return pb_fail(PB_EINVAL, "suite ceiling has no case '%s'", c->name);
}

static double expect(const pb_case *c)
{
    return strcmp(c->name, "copy") == 0 || strncmp(c->name, "matmul", 6) == 0 ? 1.5 : 0.3;
}

/* Estimates for a GPU, with what takes the time. copy: allocating 2 GiB. matmul: random matrices of 8192^2 made on the
 * host and uploaded, and the first call of cuBLAS. kernel_launch: two timings. l2_reduce: a timing of every
 * implementation. */
static double device_expect(const pb_case *c)
{
    static const struct {
        const char *name;
        double seconds;
    } of[] = {{"copy", 0.5},          {"matmul", 1.5},  {"matmul_f32", 1.5},
              {"kernel_launch", 0.6}, {"l2_reduce", 1}, {"range", 0.3}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strcmp(of[i].name, c->name) == 0) return of[i].seconds;
    return 1;
}

static const char *const grid[] = {"copy,matmul,call,range", NULL};
static const char *const device_grid[] = {"copy,matmul,matmul_f32,l2_reduce,kernel_launch,range", NULL};

const pb_suite pb_suite_ceiling = {
    .name = "ceiling",
    .ranks = true,
    .counted = true,
    .what = "the ceilings of this machine: copy, matrix product, function call or kernel launch, profiler range",
    .axes = "",
    .grid = grid,
    .device_grid = device_grid,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
};
