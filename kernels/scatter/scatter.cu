/* scatter.cu - y[idx[s],:] += x on a GPU; both implementations reduce in L2. Limited by L2's rate of f32 additions: 4 D
 * bytes per added row.
 *     red   a warp takes every n-th group of 32 additions. Its lanes hold up to 512 columns of x in registers. Each
 *           sends 16 bytes to neighbouring addresses, so that whole cache lines are written.
 *     bulk  (sm_90) a lane adds a whole row from shared memory with one TMA reduction. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/scatter/scatter.h"

namespace
{
constexpr int WARPS = 8, QUADS = 4, STRIP = QUADS * 128; /* columns per warp */

__device__ inline void reduce4(float *y, float4 x)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(y), "f"(x.x), "f"(x.y), "f"(x.z),
                 "f"(x.w)
                 : "memory");
#else
    atomicAdd(y, x.x), atomicAdd(y + 1, x.y), atomicAdd(y + 2, x.z), atomicAdd(y + 3, x.w);
#endif
}

/* Adds x to the listed rows, in up to STRIP columns from `first` on. D is a multiple of 4; x and y are aligned to 16
 * bytes. Each lane reads one of 32 indices. */
__global__ void __launch_bounds__(32 * WARPS) red_kernel(pb_scatter_add_args a)
{
    const int lane = (int)threadIdx.x % 32, first = (int)blockIdx.y * STRIP;
    const size_t warp = (size_t)blockIdx.x * WARPS + threadIdx.x / 32, warps = (size_t)gridDim.x * WARPS;
    float4 x[QUADS];
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        const int d = first + k * 128 + lane * 4;
        x[k] = d < a.D ? *reinterpret_cast<const float4 *>(a.x + d) : make_float4(0, 0, 0, 0);
    }
    for (size_t s0 = warp * 32; s0 < (size_t)a.S; s0 += warps * 32) {
        const int mine = s0 + lane < (size_t)a.S ? a.idx[s0 + lane] : -1;
        for (int l = 0; l < 32; l++) {
            const int row = __shfl_sync(0xffffffffu, mine, l);
            if (row < 0 || row >= a.R) continue;
            float *y = a.y + (size_t)row * a.D + first;
#pragma unroll
            for (int k = 0; k < QUADS; k++)
                if (first + k * 128 + lane * 4 < a.D) reduce4(y + k * 128 + lane * 4, x[k]);
        }
    }
}

/* Adds one element at a time, for any D and alignment. */
__global__ void __launch_bounds__(32 * WARPS) scalar_kernel(pb_scatter_add_args a)
{
    const size_t warp = (size_t)blockIdx.x * WARPS + threadIdx.x / 32, warps = (size_t)gridDim.x * WARPS;
    for (size_t s = warp; s < (size_t)a.S; s += warps) {
        const int row = a.idx[s];
        if (row < 0 || row >= a.R) continue;
        for (int d = threadIdx.x % 32; d < a.D; d += 32) atomicAdd(a.y + (size_t)row * a.D + d, a.x[d]);
    }
}

__global__ void __launch_bounds__(32 * WARPS) bulk_kernel(pb_scatter_add_args a)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) float row_of_x[];
    const size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x, threads = (size_t)gridDim.x * blockDim.x;
    for (int d = threadIdx.x; d < a.D; d += 32 * WARPS) row_of_x[d] = a.x[d];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* orders the stores before TMA reads them */
    __syncthreads();
    const uint32_t from = (uint32_t)__cvta_generic_to_shared(row_of_x);
    for (size_t s = thread; s < (size_t)a.S; s += threads) {
        const int row = a.idx[s];
        if (row < 0 || row >= a.R) continue;
        asm volatile(
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(a.y + (size_t)row * a.D),
            "r"(from), "r"(a.D * 4)
            : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

bool quads_fit(const pb_scatter_add_args *a)
{
    return pb_vectors_fit<float>(a->x, a->D, a->D) && (uintptr_t)a->y % 16 == 0;
}

unsigned blocks_for(const pb_ctx *ctx, size_t work, int each)
{
    /* At most four CTAs per SM, so that all CTAs of the grid are resident. */
    const size_t want = (work + each - 1) / each, most = (size_t)pb_cuda_device_of(ctx)->sms * 4;
    return (unsigned)(want < most ? want : most);
}

pb_status run_red(pb_ctx *ctx, const void *args)
{
    const pb_scatter_add_args *a = (const pb_scatter_add_args *)args;
    if (!a->S || !a->R) return PB_OK;
    if (quads_fit(a)) {
        const dim3 blocks(blocks_for(ctx, (size_t)a->S, 32 * WARPS), (unsigned)((a->D + STRIP - 1) / STRIP));
        red_kernel<<<blocks, 32 * WARPS, 0, pb_cuda_stream(ctx)>>>(*a);
    } else {
        scalar_kernel<<<blocks_for(ctx, (size_t)a->S, WARPS), 32 * WARPS, 0, pb_cuda_stream(ctx)>>>(*a);
    }
    return pb_cuda_launched(ctx, "scatter_add red");
}

/* Returns true if the rows are aligned, and a row fits the shared memory that a kernel can use without
 * cudaFuncSetAttribute. */
bool bulk_takes(const void *args)
{
    const pb_scatter_add_args *a = (const pb_scatter_add_args *)args;
    return quads_fit(a) && (size_t)a->D * sizeof(float) <= 32768;
}

pb_status run_bulk(pb_ctx *ctx, const void *args)
{
    const pb_scatter_add_args *a = (const pb_scatter_add_args *)args;
    if (!a->S || !a->R) return PB_OK;
    bulk_kernel<<<blocks_for(ctx, (size_t)a->S, 32 * WARPS), 32 * WARPS, (size_t)a->D * sizeof(float),
                  pb_cuda_stream(ctx)>>>(*a);
    return pb_cuda_launched(ctx, "scatter_add bulk");
}
} // namespace

extern "C" const pb_impl pb_scatter_add_cuda[] = {
    {.name = "bulk", .run = run_bulk, .accepts = bulk_takes, .available = pb_cuda_has_sm90, .varies = true},
    {.name = "red", .run = run_red, .varies = true},
    {0},
};
