/* grouped_linear_fast.c - grouped dense layers with the matrix product of cpu/gemm.h: one group after the other, each
 * on all threads. Bound by arithmetic. */
#include "kernels/cpu/simd.h"
#include "kernels/grouped_linear/grouped_gemm.h"

static void run(pb_ctx *ctx, pb_gemm g, const pb_gemm_batch *batch)
{
    const size_t a = batch->a * pb_dtype_size(g.a.dtype), b = batch->b * pb_dtype_size(g.b.dtype);
    const size_t c = batch->c * pb_dtype_size(g.c_dtype);
    const pb_gemm first = g;
    g.workspace = ctx->scratch;
    for (size_t i = 0; i < (size_t)batch->n; i++) {
        g.a.p = (const char *)first.a.p + i * a;
        g.b.p = (const char *)first.b.p + i * b;
        g.c = (char *)first.c + i * c;
        pb_gemm_run(&g);
    }
}

pb_status PB_FAST(pb_grouped_linear_fwd)(pb_ctx *ctx, const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_fwd_gemm(args, &batch);
    run(ctx, g, &batch);
    return PB_OK;
}

pb_status PB_FAST(pb_grouped_linear_dx)(pb_ctx *ctx, const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_dx_gemm(args, &batch);
    run(ctx, g, &batch);
    return PB_OK;
}

pb_status PB_FAST(pb_grouped_linear_dw)(pb_ctx *ctx, const void *args)
{
    pb_gemm_batch batch;
    const pb_gemm g = pb_grouped_dw_gemm(args, &batch);
    run(ctx, g, &batch);
    return PB_OK;
}
