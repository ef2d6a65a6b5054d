/* cuda_probe.cu - implements cuda_probe.h: a kernel that keeps a stream busy, a kernel that traps, and copies that are
 * enqueued on a stream. */
#include "tests/cuda_probe.h"

#include "kernels/cuda/cuda.cuh"

__device__ static uint64_t nanoseconds()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

static __global__ void spin(uint64_t ns)
{
    const uint64_t from = nanoseconds();
    while (nanoseconds() - from < ns) __nanosleep(1000);
}

pb_status probe_spin(pb_ctx *ctx, double seconds)
{
    spin<<<1, 1, 0, pb_cuda_stream(ctx)>>>((uint64_t)(1e9 * seconds));
    return pb_cuda_launched(ctx, "spin");
}

pb_status probe_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes)
{
    PB_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, pb_cuda_stream(ctx)));
    return PB_OK;
}

pb_status probe_fill(pb_ctx *ctx, void *p, int byte, size_t bytes)
{
    PB_CUDA_TRY(cudaMemsetAsync(p, byte, bytes, pb_cuda_stream(ctx)));
    return PB_OK;
}

pb_status probe_wait(pb_ctx *ctx)
{
    PB_CUDA_TRY(cudaStreamSynchronize(pb_cuda_stream(ctx)));
    return PB_OK;
}

static __global__ void trap() { __trap(); }

pb_status probe_trap(pb_ctx *ctx)
{
    trap<<<1, 1, 0, pb_cuda_stream(ctx)>>>();
    return pb_cuda_launched(ctx, "trap");
}
