/* nf4_linear_fast.c - both passes as one product each, whose packing step decodes the weight panel by
 * panel. Bound: arithmetic; for few tokens, decoding. */
#include "kernels/core/cpu.h"
#include "kernels/core/gemm.h"
#include "kernels/core/simd.h"
#include "kernels/nf4_linear/nf4_linear_gemm.h"

pb_status PB_FAST(pb_nf4_linear_fwd)(pb_ctx *ctx, const void *args)
{
    pb_gemm g = pb_nf4_linear_fwd_gemm(args);
    g.workspace = ctx->scratch;
    pb_gemm_run(&g);
    return PB_OK;
}

pb_status PB_FAST(pb_nf4_linear_dx)(pb_ctx *ctx, const void *args)
{
    pb_gemm g = pb_nf4_linear_dx_gemm(args);
    g.workspace = ctx->scratch;
    pb_gemm_run(&g);
    return PB_OK;
}
