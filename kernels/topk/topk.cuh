/* topk.cuh - top-k of one row by one CTA: radix select with histograms in shared memory.
 *
 * Three passes over the row (11, 11 and 10 bits of the key, as in topk_fast.c) find the k-th largest key and how many
 * keys equal to it are selected. Two more passes, with a contiguous range of columns per warp, first count and then
 * write the selected columns, so that the list is in column order. All counts are integers, so the result is
 * deterministic. If at most k columns have a score above -inf, the second and third histogram are skipped. Bound by the
 * latency of the passes; rows of a few thousand scores stay in L1. */
#ifndef PB_TOPK_CUH
#define PB_TOPK_CUH
#define PB_TOPK_FN __host__ __device__ static inline
#include "kernels/cuda/cuda.cuh"
#include "kernels/topk/key.h"

static constexpr int TOPK_THREADS = 256, TOPK_WARPS = TOPK_THREADS / 32, TOPK_BINS = 2048;

/* count: the histogram. warp, above, equal: counts of each warp. bin, need: the results of topk_find(). */
struct topk_smem {
    unsigned count[TOPK_BINS];
    unsigned warp[TOPK_WARPS], above[TOPK_WARPS], equal[TOPK_WARPS];
    unsigned bin, need;
};

/* Given the histogram sm.count of `bins` bins, finds the bin that contains the need-th largest key (sm.bin) and the
 * rank of this key within the bin (sm.need). Each thread adds up 8 bins. Returns the number of keys, in every thread.
 * If it is less than need, sm.bin and sm.need are not set. */
__device__ static inline unsigned topk_find(topk_smem &sm, unsigned bins, unsigned need)
{
    const int lane = threadIdx.x % 32, wid = threadIdx.x / 32;
    const int top = (int)bins - 1 - (int)threadIdx.x * (TOPK_BINS / TOPK_THREADS);
    unsigned mine = 0, upto, before = 0, all = 0;
#pragma unroll
    for (int i = 0; i < TOPK_BINS / TOPK_THREADS; i++) mine += top - i >= 0 ? sm.count[top - i] : 0;
    upto = mine;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const unsigned other = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto += other;
    }
    if (lane == 31) sm.warp[wid] = upto;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < TOPK_WARPS; w++) {
        if (w < wid) before += sm.warp[w];
        all += sm.warp[w];
    }
    upto += before;
    if (upto >= need && upto - mine < need) {
        unsigned left = need - (upto - mine);
        int b = top;
        while (left > sm.count[b]) left -= sm.count[b--];
        sm.bin = (unsigned)b, sm.need = left;
    }
    __syncthreads();
    return all;
}

/* Finds the smallest selected key of columns lo .. hi-1 (*least), and how many columns with exactly this
 * key are selected (*need). */
__device__ static inline void topk_least(topk_smem &sm, const float *score, int lo, int hi, int k, unsigned *least,
                                         unsigned *need)
{
    unsigned prefix = 0, agree = 0, left = (unsigned)k;
    for (int pass = 0; pass < 3; pass++) {
        const unsigned bins = pass < 2 ? 2048u : 1024u;
        const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
        for (int i = threadIdx.x; i < TOPK_BINS; i += TOPK_THREADS) sm.count[i] = 0;
        __syncthreads();
        for (int g = lo + (int)threadIdx.x; g < hi; g += TOPK_THREADS) {
            const unsigned key = pb_topk_key(score[g]);
            if (key > PB_TOPK_UNSEEN && (key & agree) == prefix) atomicAdd(&sm.count[key >> shift & (bins - 1)], 1u);
        }
        __syncthreads();
        if (topk_find(sm, bins, left) <= left && pass == 0) { /* at most k columns can be selected: select them all */
            *least = PB_TOPK_UNSEEN, *need = 0;
            return;
        }
        prefix |= sm.bin << shift, agree |= (bins - 1) << shift, left = sm.need;
    }
    *least = prefix, *need = left;
}

/* Writes the top k of columns lo .. hi-1 of a row to pick [k]. All threads of the CTA must call it. */
__device__ static inline void topk_row(topk_smem &sm, const float *score, int lo, int hi, int k, int32_t *pick)
{
    const int lane = threadIdx.x % 32, wid = threadIdx.x / 32;
    const unsigned before_me = (1u << lane) - 1;
    unsigned least = PB_TOPK_UNSEEN, need = 0, above = 0, equal = 0, all = 0;
    if (hi < lo) hi = lo;
    if (k > 0) topk_least(sm, score, lo, hi, k, &least, &need);
    const int run = ((hi - lo + TOPK_THREADS - 1) / TOPK_THREADS) * 32; /* columns per warp, a multiple of 32 */
    const int first = lo + wid * run, end = min(first + run, hi);
    for (int g = first + lane; g - lane < end; g += 32) {
        const unsigned key = g < end ? pb_topk_key(score[g]) : 0;
        above += __popc(__ballot_sync(0xffffffffu, key > least));
        equal += __popc(__ballot_sync(0xffffffffu, key == least));
    }
    if (lane == 0) sm.above[wid] = above, sm.equal[wid] = equal;
    __syncthreads();
    above = equal = 0;
    for (int w = 0; w < TOPK_WARPS; w++) {
        all += sm.above[w];
        if (w < wid) above += sm.above[w], equal += sm.equal[w];
    }
    all += need;
    for (int g = first + lane; g - lane < end; g += 32) {
        const unsigned key = g < end ? pb_topk_key(score[g]) : 0;
        const unsigned better = __ballot_sync(0xffffffffu, key > least);
        const unsigned ties = __ballot_sync(0xffffffffu, key == least);
        const unsigned ties_here = equal + __popc(ties & before_me);
        const unsigned at = above + __popc(better & before_me) + min(ties_here, need);
        if (k > 0 && (key > least || (key == least && ties_here < need))) pick[at] = g;
        above += __popc(better), equal += __popc(ties);
    }
    for (int j = (int)all + threadIdx.x; j < k; j += TOPK_THREADS) pick[j] = -1;
}
#endif
