/* cast.cu - conversion of columns to f32 and back on a GPU. Limited by memory bandwidth.
 *
 * `flat` takes rows without gaps, such as a vector of gradients: a thread converts the elements of one 16-byte access.
 * `columns` takes any rows, one thread per element. It divides 64-bit numbers twice per element, which probably costs
 * more than the memory accesses: a training step on two H200 whose 494 million gradients it converted to bf16 and back
 * took 3.2 ms longer than one without, where a copy of as many bytes takes 1.5 ms. `flat` has not been timed yet. */
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

template <class T> __global__ void __launch_bounds__(256) cast_flat(const T *x, float *y, size_t n, float scale)
{
    constexpr int N = pb_lanes<T>;
    const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i + N > n) {
        for (size_t k = i; k < n; k++) y[k] = scale * pb_to_f32(x[k]);
        return;
    }
    float v[N];
    pb_unpack(pb_load16(x + i), v);
#pragma unroll
    for (int k = 0; k < N; k += 4)
        *(float4 *)(y + i + k) = make_float4(scale * v[k], scale * v[k + 1], scale * v[k + 2], scale * v[k + 3]);
}

template <class T> __global__ void __launch_bounds__(256) cast_back_flat(const float *dy, T *dx, size_t n, float scale)
{
    constexpr int N = pb_lanes<T>;
    const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i + N > n) {
        for (size_t k = i; k < n; k++) dx[k] = pb_from_f32<T>(scale * dy[k]);
        return;
    }
    float v[N];
    pb_load_f32(dy + i, v);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] *= scale;
    pb_store16(dx + i, pb_pack(v));
}

template <class T> static unsigned flat_ctas(size_t n)
{
    return (unsigned)pb_ceil_div(pb_ceil_div(n, pb_lanes<T>), 256);
}

template <class T> static pb_status flat(pb_ctx *ctx, const pb_cast_fwd_args *a)
{
    const size_t n = (size_t)a->T * a->D;
    if (n == 0) return PB_OK;
    cast_flat<T><<<flat_ctas<T>(n), 256, 0, pb_cuda_stream(ctx)>>>((const T *)a->x, a->y, n, a->scale);
    return pb_cuda_launched(ctx, "cast flat");
}

template <class T> static pb_status back_flat(pb_ctx *ctx, const pb_cast_bwd_args *a)
{
    const size_t n = (size_t)a->T * a->D;
    if (n == 0) return PB_OK;
    cast_back_flat<T><<<flat_ctas<T>(n), 256, 0, pb_cuda_stream(ctx)>>>(a->dy, (T *)a->dx, n, a->scale);
    return pb_cuda_launched(ctx, "cast_bwd flat");
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

static pb_status run_flat(pb_ctx *ctx, const void *args)
{
    const pb_cast_fwd_args *a = (const pb_cast_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, flat, ctx, a);
}

static bool is_flat(const void *args)
{
    const pb_cast_fwd_args *a = (const pb_cast_fwd_args *)args;
    return a->ldx == (size_t)a->D && pb_aligned16(a->x) && pb_aligned16(a->y);
}

extern "C" const pb_impl pb_cast_fwd_cuda[] = {
    {.name = "flat", .run = run_flat, .accepts = is_flat}, {.name = "columns", .run = run_cast}, {0}};

static pb_status run_back(pb_ctx *ctx, const void *args)
{
    const pb_cast_bwd_args *a = (const pb_cast_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, back, ctx, a);
}

static pb_status run_back_flat(pb_ctx *ctx, const void *args)
{
    const pb_cast_bwd_args *a = (const pb_cast_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, back_flat, ctx, a);
}

static bool is_back_flat(const void *args)
{
    const pb_cast_bwd_args *a = (const pb_cast_bwd_args *)args;
    return a->lddx == (size_t)a->D && pb_aligned16(a->dy) && pb_aligned16(a->dx);
}

extern "C" const pb_impl pb_cast_bwd_cuda[] = {
    {.name = "flat", .run = run_back_flat, .accepts = is_back_flat}, {.name = "columns", .run = run_back}, {0}};
