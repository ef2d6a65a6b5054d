/* rmsnorm.cu - RMSNorm on a GPU, with the kernels of rmsnorm_rows.cuh. The forward pass takes one kernel launch, the
 * backward pass two, or one if w is frozen. */
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rmsnorm/rmsnorm_rows.cuh"

template <class T> static pb_status fwd(pb_ctx *ctx, const pb_rmsnorm_fwd_args *a)
{
    const norm_fwd<T> n = {.x = (const T *)a->x,
                           .w = a->w,
                           .y = (T *)a->y,
                           .rstd = a->rstd,
                           .rows = (size_t)a->T * a->G,
                           .ldx = a->ldx,
                           .ldy = a->ldy,
                           .G = a->G,
                           .D = a->D,
                           .eps = a->eps};
    return norm_fwd_launch<T, false>(ctx, n);
}

template <class T> static pb_status bwd(pb_ctx *ctx, const pb_rmsnorm_bwd_args *a)
{
    const norm_bwd<T> n = {.dy = (const T *)a->dy,
                           .x = (const T *)a->x,
                           .w = a->w,
                           .rstd = a->rstd,
                           .dx = (T *)a->dx,
                           .dw = a->dw,
                           .rows = (size_t)a->T * a->G,
                           .lddy = a->lddy,
                           .ldx = a->ldx,
                           .lddx = a->lddx,
                           .G = a->G,
                           .D = a->D,
                           .accumulate = a->accumulate};
    return norm_bwd_launch<T, false>(ctx, n);
}

static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_fwd_args *a = (const pb_rmsnorm_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, fwd, ctx, a);
}

static pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_bwd_args *a = (const pb_rmsnorm_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, bwd, ctx, a);
}

static size_t bwd_workspace(const void *args)
{
    const pb_rmsnorm_bwd_args *a = (const pb_rmsnorm_bwd_args *)args;
    return a->dw ? norm_bwd_workspace((size_t)a->T * a->G, a->D) : 0;
}

extern "C" const pb_impl pb_rmsnorm_fwd_cuda[] = {{.name = "rows", .run = run_fwd}, {0}};
extern "C" const pb_impl pb_rmsnorm_bwd_cuda[] = {
    {.name = "rows", .run = run_bwd, .workspace = bwd_workspace},
    {0},
};
