/* copy.cu - copies rows on a GPU. A thread copies 16 bytes of a row, or one element where rows are not aligned. Limited
 * by memory bandwidth. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/copy/copy.h"

namespace
{
constexpr int THREADS = 256, CTAS = 132 * 16; /* 16 CTAs per SM of an H100 or H200; each thread takes several units */

/* W: the unit of copying; D, ldx and ldy count units. */
template <class W>
__global__ void __launch_bounds__(THREADS)
    copy_kernel(const W *x, W *y, size_t T, size_t D, size_t ldx, size_t ldy, size_t block, bool reversed)
{
    const size_t last = T / block - 1;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < T * D; i += (size_t)gridDim.x * THREADS) {
        const size_t t = i / D, d = i % D;
        const size_t to = reversed ? (last - t / block) * block + t % block : t;
        y[to * ldy + d] = x ? x[t * ldx + d] : W{};
    }
}

template <class W> pb_status launch(pb_ctx *ctx, const pb_copy_rows_args *a, size_t e)
{
    const size_t per = sizeof(W) / e, D = a->D / per, n = (size_t)a->T * D, ctas = (n + THREADS - 1) / THREADS;
    copy_kernel<W><<<(unsigned)(ctas < CTAS ? ctas : CTAS), THREADS, 0, pb_cuda_stream(ctx)>>>(
        (const W *)a->x, (W *)a->y, a->T, D, a->ldx / per, a->ldy / per, a->block ? a->block : a->T, a->reversed);
    return pb_cuda_launched(ctx, "copy_rows");
}

bool aligned(const void *p, size_t ld, size_t e) { return (uintptr_t)p % 16 == 0 && ld * e % 16 == 0; }

pb_status run(pb_ctx *ctx, const void *args)
{
    const pb_copy_rows_args *a = (const pb_copy_rows_args *)args;
    const size_t e = pb_dtype_size(a->dtype);
    if (a->T == 0) return PB_OK;
    if (a->D * e % 16 == 0 && aligned(a->y, a->ldy, e) && (!a->x || aligned(a->x, a->ldx, e)))
        return launch<uint4>(ctx, a, e);
    return e == 4 ? launch<uint32_t>(ctx, a, e) : launch<uint16_t>(ctx, a, e);
}
} // namespace

extern "C" const pb_impl pb_copy_rows_cuda[] = {{.name = "vectors", .run = run}, {0}};
