/* mla_index.cu - builds the lists of keys that each token attends to, on the GPU, one thread per slot. Limit: memory
 * bandwidth. */
#define PB_MLA_INDEX_FN __host__ __device__ static inline
#include "kernels/cuda/cuda.cuh"
#include "kernels/mla_index/mla_index.h"

static constexpr int THREADS = 256;

static __global__ __launch_bounds__(THREADS) void build_kernel(const pb_mla_index_build_args a)
{
    const size_t e = (size_t)blockIdx.x * THREADS + threadIdx.x, t = e / a.W;
    if (t >= (size_t)a.B * a.S) return;
    const int32_t *pick = a.pick ? a.pick + t * a.T : NULL;
    a.idx[e] = pb_mla_index_slot(&a, pick, a.start ? a.start[t] : 0, a.offset + (int)(t % a.S), (int)(e % a.W));
}

static pb_status build(pb_ctx *ctx, const void *args)
{
    const pb_mla_index_build_args a = *(const pb_mla_index_build_args *)args;
    const size_t n = (size_t)a.B * a.S * a.W;
    build_kernel<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "mla_index_build");
}

extern "C" {
extern const pb_impl pb_mla_index_build_cuda[] = {{.name = "simt", .run = build}, {0}};
}
