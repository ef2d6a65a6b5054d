/* comm.cu - the local kernels of collectives, and the lists of implementations on GPUs: "nccl" for several ranks,
 * "alone" for one. */
#include "kernels/comm/backend.h"
#include "kernels/comm/comm.cuh"

enum { THREADS = 256 };

static unsigned grid_of(const pb_ctx *ctx, size_t threads)
{
    const size_t most = 8 * (size_t)pb_cuda_device_of(ctx)->sms, n = (threads + THREADS - 1) / THREADS;
    return (unsigned)(n < most ? n : most);
}

/* ---- adding blocks in order ----------------------------------------------------------------------------------- */

/* One thread computes LANES elements. Each sum begins with the first block's value, so that -0 stays -0. */
template <class T, int LANES, bool MAX>
__global__ static void __launch_bounds__(THREADS) add_blocks(const T *x, T *y, int blocks, size_t count)
{
    const size_t step = (size_t)gridDim.x * THREADS * LANES;
    for (size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * LANES; i < count; i += step) {
        float sum[LANES];
        pb_load_vec<T, LANES>(x + i, sum);
        for (int b = 1; b < blocks; b++) {
            float v[LANES];
            pb_load_vec<T, LANES>(x + (size_t)b * count + i, v);
#pragma unroll
            for (int k = 0; k < LANES; k++) sum[k] = !MAX ? __fadd_rn(sum[k], v[k]) : v[k] > sum[k] ? v[k] : sum[k];
        }
        pb_store_vec<T, LANES>(y + i, sum);
    }
}

template <class T, int LANES>
static void launch_add(unsigned grid, cudaStream_t stream, const T *x, T *y, int blocks, size_t count, pb_comm_op op)
{
    if (op == PB_COMM_MAX) add_blocks<T, LANES, true><<<grid, THREADS, 0, stream>>>(x, y, blocks, count);
    else add_blocks<T, LANES, false><<<grid, THREADS, 0, stream>>>(x, y, blocks, count);
}

template <class T>
static pb_status add(pb_ctx *ctx, cudaStream_t stream, const void *x, void *y, int blocks, size_t count, pb_comm_op op)
{
    const bool vectors = (uintptr_t)x % 16 == 0 && (uintptr_t)y % 16 == 0 && count % pb_lanes<T> == 0;
    const unsigned grid = grid_of(ctx, vectors ? count / pb_lanes<T> : count);
    if (vectors) launch_add<T, pb_lanes<T>>(grid, stream, (const T *)x, (T *)y, blocks, count, op);
    else launch_add<T, 1>(grid, stream, (const T *)x, (T *)y, blocks, count, op);
    return pb_cuda_launched(ctx, "comm_add");
}

pb_status pb_comm_cuda_add(pb_ctx *ctx, cudaStream_t stream, const void *x, void *y, int blocks, size_t count,
                           pb_dtype t, pb_comm_op op)
{
    if (!count) return PB_OK;
    return PB_CUDA_BY_DTYPE(t, add, ctx, stream, x, y, blocks, count, op);
}

/* ---- flags ---------------------------------------------------------------------------------------------------- */

/* x may equal y: both types have four bytes, and each thread reads its element before it writes it. */
template <class X, class Y> __global__ static void __launch_bounds__(THREADS) flags(const X *x, Y *y, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (size_t)gridDim.x * THREADS)
        y[i] = x[i] != X(0) ? Y(1) : Y(0); /* NaN != 0 */
}

template <class X, class Y>
static pb_status launch_flags(pb_ctx *ctx, cudaStream_t stream, const void *x, void *y, size_t count)
{
    flags<X, Y><<<grid_of(ctx, count), THREADS, 0, stream>>>((const X *)x, (Y *)y, count);
    return pb_cuda_launched(ctx, "comm_flags");
}

pb_status pb_comm_cuda_flags(pb_ctx *ctx, cudaStream_t stream, const void *x, pb_dtype xt, void *y, pb_dtype yt,
                             size_t count)
{
    if (!count) return PB_OK;
    if (xt == PB_F32 && yt == PB_F32) return launch_flags<float, float>(ctx, stream, x, y, count);
    if (xt == PB_F32) return launch_flags<float, int32_t>(ctx, stream, x, y, count);
    if (yt == PB_F32) return launch_flags<int32_t, float>(ctx, stream, x, y, count);
    return launch_flags<int32_t, int32_t>(ctx, stream, x, y, count);
}

static pb_status agree_alone(pb_ctx *ctx, const void *args)
{
    const pb_comm_agree_args *a = (const pb_comm_agree_args *)args;
    return pb_comm_cuda_flags(ctx, pb_cuda_stream(ctx), a->x, a->dtype, a->y, a->dtype, a->count);
}

/* ---- implementations ------------------------------------------------------------------------------------------ */

#define IMPLS(pass, alone)                                                                                             \
    extern "C" const pb_impl pb_comm_##pass##_cuda[] = {                                                               \
        {.name = "nccl", .run = pb_comm_run_##pass, .accepts = pb_comm_is_live, .reserve = pb_comm_reserve_##pass},    \
        {.name = "alone", .run = alone, .accepts = pb_comm_is_alone},                                                  \
        {0}};
IMPLS(all_reduce, pb_comm_copy_all_reduce)
IMPLS(reduce_scatter, pb_comm_copy_reduce_scatter)
IMPLS(all_gather, pb_comm_copy_all_gather)
IMPLS(all_to_all, pb_comm_copy_all_to_all)
IMPLS(broadcast, pb_comm_copy_broadcast)
IMPLS(agree, agree_alone)
IMPLS(wait, pb_comm_copy_wait)
