/* topk.cu - top-k of every row on the GPU: one CTA per row. */
#include "kernels/topk/topk.cuh"
#include "kernels/topk/topk.h"

static __global__ __launch_bounds__(TOPK_THREADS) void fwd_kernel(const pb_topk_fwd_args a)
{
    __shared__ topk_smem sm;
    const size_t r = blockIdx.x;
    topk_row(sm, a.score + r * a.G, 0, a.G, a.k, a.pick + r * a.k);
}

static pb_status fwd(pb_ctx *ctx, const void *args)
{
    const pb_topk_fwd_args a = *(const pb_topk_fwd_args *)args;
    if (a.R == 0) return PB_OK;
    fwd_kernel<<<(unsigned)a.R, TOPK_THREADS, 0, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "topk_fwd");
}

extern "C" {
extern const pb_impl pb_topk_fwd_cuda[] = {{.name = "radix", .run = fwd}, {0}};
}
