/* cast.cu - conversion of columns to f32 on a GPU. One thread per element, because the rows are short and have gaps
 * between them. Limited by memory bandwidth. */
#include "kernels/cast/cast.h"
#include "kernels/cuda/cuda_pack.cuh"

template <class T>
__global__ void __launch_bounds__(256) cast_columns(const T *x, float *y, size_t n, int D, size_t ldx, float scale)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scale * (float)x[i / D * ldx + i % D];
}

template <class T>
__global__ void __launch_bounds__(256) cast_back(const float *dy, T *dx, size_t n, int D, size_t lddx, float scale)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dx[i / D * lddx + i % D] = pb_from_f32<T>(scale * dy[i]);
}

template <class T> static pb_status cast(pb_ctx *ctx, const pb_cast_fwd_args *a)
{
    const size_t n = (size_t)a->T * a->D;
    if (n == 0) return PB_OK;
    cast_columns<T><<<(unsigned)pb_ceil_div(n, 256), 256, 0, pb_cuda_stream(ctx)>>>((const T *)a->x, a->y, n, a->D,
                                                                                    a->ldx, a->scale);
    return pb_cuda_launched(ctx, "cast");
}

template <class T> static pb_status back(pb_ctx *ctx, const pb_cast_bwd_args *a)
{
    const size_t n = (size_t)a->T * a->D;
    if (n == 0) return PB_OK;
    cast_back<T>
        <<<(unsigned)pb_ceil_div(n, 256), 256, 0, pb_cuda_stream(ctx)>>>(a->dy, (T *)a->dx, n, a->D, a->lddx, a->scale);
    return pb_cuda_launched(ctx, "cast_bwd");
}

static pb_status run_cast(pb_ctx *ctx, const void *args)
{
    const pb_cast_fwd_args *a = (const pb_cast_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, cast, ctx, a);
}

extern "C" const pb_impl pb_cast_fwd_cuda[] = {{.name = "columns", .run = run_cast}, {0}};

static pb_status run_back(pb_ctx *ctx, const void *args)
{
    const pb_cast_bwd_args *a = (const pb_cast_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, back, ctx, a);
}

extern "C" const pb_impl pb_cast_bwd_cuda[] = {{.name = "columns", .run = run_back}, {0}};
