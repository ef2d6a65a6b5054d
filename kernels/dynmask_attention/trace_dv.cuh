/* trace_dv.cuh - finds out where dv of dynmask_attention_bwd first stops being finite, in builds with the CMake option
 * PB_TRACE_DV. In other builds its functions do nothing.
 *
 * dkv_kernel looks at the accumulators of dv after the product of each tile of queries. A last kernel prints the element
 * with the lowest number of tile, then of CTA, then of thread: which lane held it, which tile of queries made it so, and
 * in which block of slots it is. The same inputs give the same line. The f32 backward pass that its result can be compared
 * with is that of `simt` or of the CPU, with f32 tensors. */
#ifndef PB_DYNMASK_TRACE_DV_CUH
#define PB_DYNMASK_TRACE_DV_CUH
#include <stdio.h>

#include "kernels/dynmask_attention/wgmma_bwd.cuh"

namespace
{
#ifdef PB_TRACE_DV
/* The first element found so far: tile, CTA, consumer thread and accumulator as one number; all ones: none. */
enum { CTA_BITS = 24, THREAD_BITS = 8, ELEMENT_BITS = 6 };
__device__ unsigned long long first_not_finite;

__global__ void trace_begin_kernel(void) { first_not_finite = ~0ull; }

/* Records the first accumulator of dv that is not finite after tile n, in the order of tile, CTA, thread and element. */
template <int D> __device__ inline void trace_dv(const float (&dv)[D / 8][4], int n)
{
    static_assert(D / 2 <= 1 << ELEMENT_BITS, "an accumulator's number fits");
    int bad = -1;
#pragma unroll
    for (int i = D / 2 - 1; i >= 0; i--)
        if (!isfinite(dv[i / 4][i % 4])) bad = i;
    if (bad < 0) return;
    const unsigned long long cta = (unsigned long long)n << CTA_BITS | blockIdx.x;
    atomicMin(&first_not_finite, (cta << THREAD_BITS | (threadIdx.x - 128)) << ELEMENT_BITS | (unsigned)bad);
}

template <int D> __global__ void trace_end_kernel(const pb_dynmask_attention_bwd_args a, const workspace<D> room)
{
    const unsigned long long at = first_not_finite;
    if (at == ~0ull) return;
    const int element = (int)(at & ((1 << ELEMENT_BITS) - 1)),
              thread = (int)(at >> ELEMENT_BITS & ((1 << THREAD_BITS) - 1));
    const int number = (int)(at >> (ELEMENT_BITS + THREAD_BITS) & ((1 << CTA_BITS) - 1));
    const int n = (int)(at >> (ELEMENT_BITS + THREAD_BITS + CTA_BITS)), lane = thread % 32, warp = thread / 32 % 4;
    const dkv_work own = dkv_work_of_cta<D>(number, a, room);
    const int row = thread / 128 * 64 + warp * 16 + lane / 4 + 8 * (element % 4 / 2), slot = own.block * KEYS + row;
    const int i0 = (own.m + n % own.count) * QUERIES<D>;
    printf(
        "dynmask_attention_bwd: dv is first not finite in lane %d of warp %d of warpgroup %d, CTA %d: batch row %d, kv "
        "head %d, block of slots %d, slot %d (key %d), column %d, after tile %d: queries %d..%d of head %d\n",
        lane, warp, thread / 128, number, own.b, own.kv, own.block, slot,
        room.lists.block[((size_t)own.list * room.blocks + own.block) * 2 + row / SLOTS].key[row % SLOTS],
        element / 4 * 8 + lane % 4 * 2 + element % 2, n, i0, min(i0 + QUERIES<D>, a.S) - 1, own.h + n / own.count);
}

static inline pb_status trace_begin(pb_ctx *ctx)
{
    trace_begin_kernel<<<1, 1, 0, pb_cuda_stream(ctx)>>>();
    return pb_cuda_launched(ctx, "dynmask_attention_bwd wgmma, trace");
}
template <int D> pb_status trace_end(pb_ctx *ctx, const pb_dynmask_attention_bwd_args &a, const workspace<D> &room)
{
    trace_end_kernel<D><<<1, 1, 0, pb_cuda_stream(ctx)>>>(a, room);
    return pb_cuda_launched(ctx, "dynmask_attention_bwd wgmma, trace");
}
#else
template <int D> __device__ inline void trace_dv(const float (&)[D / 8][4], int) {}
static inline pb_status trace_begin(pb_ctx *) { return PB_OK; }
template <int D> pb_status trace_end(pb_ctx *, const pb_dynmask_attention_bwd_args &, const workspace<D> &)
{
    return PB_OK;
}
#endif
} // namespace
#endif
