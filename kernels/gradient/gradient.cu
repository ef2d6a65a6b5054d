/* gradient.cu - the sum of gradients on a GPU: four elements per thread where both vectors are aligned to 16 bytes.
 * Limited by memory bandwidth. */
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/gradient/gradient.h"

namespace
{
constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) add_quads(const float4 *x, float4 *y, size_t n, bool add)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    if (add) {
        const float4 w = y[i];
        v.x += w.x, v.y += w.y, v.z += w.z, v.w += w.w;
    }
    y[i] = v;
}

__global__ void __launch_bounds__(THREADS) add_each(const float *x, float *y, size_t n, bool add)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) y[i] = add ? y[i] + x[i] : x[i];
}

pb_status run_add(pb_ctx *ctx, const void *args)
{
    const pb_gradient_add_args *a = (const pb_gradient_add_args *)args;
    if (!a->n) return PB_OK;
    if (a->n % 4 == 0 && (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->y % 16 == 0)
        add_quads<<<(unsigned)pb_ceil_div(a->n / 4, THREADS), THREADS, 0, pb_cuda_stream(ctx)>>>(
            reinterpret_cast<const float4 *>(a->x), reinterpret_cast<float4 *>(a->y), a->n / 4, a->add);
    else add_each<<<(unsigned)pb_ceil_div(a->n, THREADS), THREADS, 0, pb_cuda_stream(ctx)>>>(a->x, a->y, a->n, a->add);
    return pb_cuda_launched(ctx, "gradient_add");
}
} // namespace

extern "C" const pb_impl pb_gradient_add_cuda[] = {{.name = "quads", .run = run_add}, {0}};
