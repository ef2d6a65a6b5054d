/* linear_fast.c - a dense layer through the matrix product of cpu/gemm.h. The bias gradient is a column
 * sum, which is memory-bound. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/linear/linear_gemm.h"

static void run(pb_ctx *ctx, pb_gemm g)
{
    g.workspace = ctx->scratch;
    pb_gemm_run(&g);
}

pb_status PB_FAST(pb_linear_fwd)(pb_ctx *ctx, const void *args)
{
    run(ctx, pb_linear_fwd_gemm(args));
    return PB_OK;
}

pb_status PB_FAST(pb_linear_dx)(pb_ctx *ctx, const void *args)
{
    run(ctx, pb_linear_dx_gemm(args));
    return PB_OK;
}

/* Computes sum[n] += dy[n] */
static inline void add_row(float *sum, const void *dy, size_t at, int N, pb_dtype t)
{
    int n = 0;
    for (; n + PB_VLEN <= N; n += PB_VLEN)
        vf_store(sum, (size_t)n, PB_F32, vf_load(sum, (size_t)n, PB_F32) + vf_load(dy, at + n, t));
    if (n < N)
        vf_store_n(sum, (size_t)n, PB_F32,
                   vf_load_n(sum, (size_t)n, PB_F32, (size_t)(N - n)) + vf_load_n(dy, at + n, t, (size_t)(N - n)),
                   (size_t)(N - n));
}

pb_status PB_FAST(pb_linear_dw)(pb_ctx *ctx, const void *args)
{
    const pb_linear_dw_args *a = args;
    const size_t N = (size_t)a->N, rows = (size_t)a->T;
    const int parts = pb_dw_parts(rows);
    float *sums = ctx->scratch; /* reuses the scratch of the matrix product, which finishes before sums are written */
    run(ctx, pb_linear_dw_gemm(a));
    if (!a->dbias) return PB_OK;
#pragma omp parallel for schedule(static) if (rows * N > 8192)
    for (int p = 0; p < parts; p++) {
        float *mine = sums + (size_t)p * N;
        memset(mine, 0, N * sizeof *mine);
        for (size_t t = pb_dw_first(rows, parts, p); t < pb_dw_first(rows, parts, p + 1); t++)
            add_row(mine, a->dy, t * N, a->N, a->dtype);
    }
    pb_dw_finish(a->dbias, sums, parts, a->N, a->accumulate);
    return PB_OK;
}
