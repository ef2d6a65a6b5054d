/* addnorm.cu - residual addition and RMSNorm on a GPU, with the kernels of rmsnorm/rmsnorm_rows.cuh. The forward pass
 * is one kernel. The backward pass is two kernels, or three where rows cannot be read as aligned vectors; one if w is
 * frozen. */
#include "kernels/addnorm/addnorm.h"
#include "kernels/rmsnorm/rmsnorm_rows.cuh"

template <class T> static pb_status fwd(pb_ctx *ctx, const pb_addnorm_fwd_args *a)
{
    const size_t ld = a->D;
    const norm_fwd<T> n = {.x = (const T *)a->x,
                           .r = (const T *)a->r,
                           .w = a->w,
                           .h = (T *)a->h,
                           .y = (T *)a->y,
                           .rstd = a->rstd,
                           .rows = (size_t)a->T,
                           .ldx = ld,
                           .ldy = ld,
                           .G = 1,
                           .D = a->D,
                           .eps = a->eps};
    return norm_fwd_launch<T, true>(ctx, n);
}

template <class T> static pb_status bwd(pb_ctx *ctx, const pb_addnorm_bwd_args *a)
{
    const size_t ld = a->D;
    const norm_bwd<T> n = {.dy = (const T *)a->dy,
                           .x = (const T *)a->h,
                           .dres = (const T *)a->dh,
                           .w = a->w,
                           .rstd = a->rstd,
                           .dx = (T *)a->dx,
                           .dw = a->dw,
                           .rows = (size_t)a->T,
                           .lddy = ld,
                           .ldx = ld,
                           .lddx = ld,
                           .G = 1,
                           .D = a->D,
                           .accumulate = a->accumulate};
    return norm_bwd_launch<T, true>(ctx, n);
}

static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_addnorm_fwd_args *a = (const pb_addnorm_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, fwd, ctx, a);
}

static pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_addnorm_bwd_args *a = (const pb_addnorm_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, bwd, ctx, a);
}

static size_t bwd_workspace(const void *args)
{
    const pb_addnorm_bwd_args *a = (const pb_addnorm_bwd_args *)args;
    return a->dw ? norm_bwd_workspace(a->T, a->D) : 0;
}

extern "C" const pb_impl pb_addnorm_fwd_cuda[] = {{.name = "rows", .run = run_fwd}, {0}};
extern "C" const pb_impl pb_addnorm_bwd_cuda[] = {
    {.name = "rows", .run = run_bwd, .workspace = bwd_workspace},
    {0},
};
