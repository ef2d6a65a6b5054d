/* dense_mla_fast.c - dense_mla with vectors: the passes of sparse_mla_fast.c on a range of rows. */
#include "kernels/core/cpu.h"
#include "kernels/core/simd.h"
#include "kernels/dense_mla/convert.h"
#include "kernels/sparse_mla/mla_fast.h"

pb_status PB_FAST(pb_dense_mla_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_dense_mla_fwd_problem(args);
    return PB_FAST(pb_mla_fwd)(ctx, &p);
}

pb_status PB_FAST(pb_dense_mla_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_dense_mla_bwd_problem(args);
    return PB_FAST(pb_mla_bwd)(ctx, &p);
}
