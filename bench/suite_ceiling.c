/* suite_ceiling.c - what this machine can do at best; every launch of every suite measures it first. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "bench/results.h"
#include "kernels/core/arena.h"
#include "kernels/core/gemm.h"

enum { CALLS = 1 << 20, N = 2048, COPY_PARTS = 64 };
static const size_t copy_bytes = (size_t)256 << 20; /* well beyond any last-level cache */

/* ---- copy ------------------------------------------------------------------------------------------ */

typedef struct copy {
    float *to, *from; /* [copy_bytes / 4] each */
} copy;

static pb_status run_copy(pb_ctx *ctx, void *self)
{
    const copy *c = self;
    const size_t part = copy_bytes / COPY_PARTS;
    (void)ctx;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < COPY_PARTS; i++) memcpy((char *)c->to + i * part, (char *)c->from + i * part, part);
    return PB_OK;
}

static pb_status measure_copy(pb_ctx *ctx, const pb_case *c, pb_sink *sink)
{
    copy job;
    pb_arena a;
    pb_timing t;
    pb_arena_begin(&a, ctx);
    for (int pass = 0; pass < 2; pass++) {
        job = (copy){pb_carve(&a, copy_bytes), pb_carve(&a, copy_bytes)};
        if (!pass) PB_TRY(pb_arena_commit(&a));
    }
    const pb_measure_opts o = pb_sink_measure(sink, (pb_measure_opts){PB_MEASURE_USUAL});
    pb_status s = pb_measure(ctx, run_copy, &job, &o, &t);
    pb_arena_free(&a);
    PB_TRY(s);
    return pb_emit_rate(sink, c, "copy_rate", 2 * (double)copy_bytes, &t, "256 MiB read and 256 MiB written");
}

/* ---- matrix product --------------------------------------------------------------------------------- */

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

/* Whether our engine gives what the library gave in `want`. */
static bool ours_agrees(product *p, const float *want)
{
    p->ours.c = p->c;
    memset(p->c, 0xff, sizeof(float) * N * N);
    pb_gemm_best(&p->ours);
    pb_diff d = pb_diff_arrays(want, p->c, (size_t)N * N, PB_F32);
    return pb_diff_ok(&d, 1e-5);
}

static pb_status time_products(pb_ctx *ctx, const pb_case *c, product *p, float *want, pb_sink *sink)
{
    const double flops = 2.0 * N * N * N;
    const pb_measure_opts o = pb_sink_measure(sink, (pb_measure_opts){PB_MEASURE_USUAL});
    pb_timing blas, ours;
    char note[128];
    PB_TRY(pb_measure(ctx, run_blas, p, &o, &blas));
    snprintf(note, sizeof note, "openblas %.4g FLOP/s", flops / blas.median);
    memcpy(want, p->c, sizeof(float) * N * N);
    if (pb_interrupted() || !ours_agrees(p, want)) return pb_emit_rate(sink, c, "matmul_rate", flops, &blas, note);
    PB_TRY(pb_measure(ctx, run_ours, p, &o, &ours));
    snprintf(note, sizeof note, "openblas %.4g, plumb %.4g FLOP/s", flops / blas.median, flops / ours.median);
    return pb_emit_rate(sink, c, "matmul_rate", flops, ours.median < blas.median ? &ours : &blas, note);
}

static pb_status measure_matmul(pb_ctx *ctx, const pb_case *c, pb_sink *sink)
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
    pb_status s = time_products(ctx, c, &p, want, sink);
    pb_arena_free(&a);
    return s;
}

/* ---- one call ----------------------------------------------------------------------------------------- */

typedef pb_status (*callee)(pb_ctx *ctx, void *self);

static pb_status count_one(pb_ctx *ctx, void *self)
{
    (void)ctx;
    ++*(volatile long *)self;
    return PB_OK;
}

static pb_status run_calls(pb_ctx *ctx, void *self)
{
    static callee volatile table[] = {count_one, count_one}; /* volatile: looked up every time */
    for (int i = 0; i < CALLS; i++) PB_TRY(table[i & 1](ctx, self));
    return PB_OK;
}

static pb_status measure_call(pb_ctx *ctx, const pb_case *c, pb_sink *sink)
{
    long counter = 0;
    pb_timing t;
    const pb_measure_opts o = pb_sink_measure(sink, (pb_measure_opts){PB_MEASURE_USUAL});
    PB_TRY(pb_measure(ctx, run_calls, &counter, &o, &t));
    for (int i = 0; i < t.n; i++) t.seconds[i] /= CALLS;
    t.median /= CALLS;
    return pb_emit_timing(sink, c, "call_time", &t, "a call through a table that adds 1");
}

/* ---- the suite ------------------------------------------------------------------------------------------ */

static pb_status run(pb_ctx *ctx, const pb_case *c, pb_sink *sink)
{
    static const struct {
        const char *name;
        pb_status (*measure)(pb_ctx *ctx, const pb_case *c, pb_sink *sink);
    } cases[] = {{"copy", measure_copy}, {"matmul", measure_matmul}, {"call", measure_call}};
    if (ctx->id != PB_CPU) return pb_fail(PB_EUNSUPPORTED, "ceilings are measured on the CPU only");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, c->name) == 0) return cases[i].measure(ctx, c, sink);
    return pb_fail(PB_EINVAL, "suite ceiling has no case '%s'", c->name);
}

static double expect(const pb_case *c) { return strcmp(c->name, "call") == 0 ? 0.3 : 1.5; }

static const char *const grid[] = {"copy,matmul,call", NULL};

const pb_suite pb_suite_ceiling = {
    .name = "ceiling",
    .what = "what this machine can do at best: copy, matrix product, one indirect call",
    .axes = "",
    .grid = grid,
    .expect = expect,
    .run = run,
};
