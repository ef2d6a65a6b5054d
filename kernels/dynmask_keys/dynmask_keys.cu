/* dynmask_keys.cu - the key lists of dynamic-mask attention on the GPU. Two implementations:
 *
 * `radix`: union mode with one conversation in each row. A CTA for each list selects its keys with the radix select of
 * topk, in five passes over the row; all queries from a key on attend to it.
 *
 * `warps`: everything. A warp for each key counts the keys that rank before it, then a CTA for each list compacts them.
 * A warp stops when `keep` keys rank before its own. So a key that better ones follow or precede in a share f of the
 * places needs about keep / f steps, and a row of random biases about S keep (1 + log(S / keep)) in all, not S x S. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/dynmask_keys/dynmask_keys.h"
#include "kernels/topk/topk.cuh"

namespace
{
constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr unsigned ALL = 0xffffffffu;

__device__ inline bool begins(const int32_t *start, int j) { return j == 0 || (start && start[j] == j); }

/* Returns how many keys of the conversation before key j rank before it, or a number >= keep once that is reached. */
__device__ int count_before(const float *bias, const int32_t *start, int j, int keep)
{
    const int lane = threadIdx.x % 32;
    int before = 0;
    if (begins(start, j)) return 0;
    for (int top = j - 1; before < keep; top -= 32) { /* lane 0 looks at key `top`, lane 31 at top - 31 */
        const int i = top - lane;
        const unsigned first = __ballot_sync(ALL, i >= 0 && begins(start, i));
        const unsigned inside =
            first ? ALL >> (32 - __ffs((int)first)) : ALL; /* up to the first key of the conversation */
        before += __popc(__ballot_sync(ALL, i >= 0 && bias[i] >= bias[j]) & inside);
        if (first) break;
    }
    return before;
}

/* Returns the first position that does not attend to key j; `before` keys that precede it rank before it. */
__device__ int find_end(const float *bias, const int32_t *start, int j, int before, int S, int keep, bool exact)
{
    const int lane = threadIdx.x % 32;
    for (int low = j + 1;; low += 32) {
        const int i = low + lane;
        const unsigned next = __ballot_sync(ALL, i >= S || begins(start, i));
        const unsigned inside = next ? (1u << (__ffs((int)next) - 1)) - 1 : ALL; /* before the next conversation */
        unsigned better = __ballot_sync(ALL, i < S && bias[i] > bias[j]) & inside;
        if (before + __popc(better) >= keep) {
            for (int skip = keep - before - 1; skip > 0; skip--) better &= better - 1;
            return exact ? low + __ffs((int)better) - 1 : j;
        }
        before += __popc(better);
        if (next) return low + __ffs((int)next) - 1;
    }
}

/* until_of [B,K,S]: the first position that does not attend to the key, or the key if no query does. */
__global__ __launch_bounds__(THREADS) void find_kernel(const pb_dynmask_keys_build_args a, int32_t *until_of)
{
    const size_t e = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (e >= (size_t)a.B * a.K * a.S) return;
    const size_t r = e / a.S;
    const float *bias = a.bias + r * a.S;
    const int32_t *start = a.start ? a.start + r / a.K * a.S : NULL;
    const int j = (int)(e % a.S);
    int until = j;
    if (bias[j] != -INFINITY) {
        const int before = count_before(bias, start, j, a.keep);
        if (before < a.keep) until = find_end(bias, start, j, before, a.S, a.keep, a.exact);
    }
    if (threadIdx.x % 32 == 0) until_of[e] = until;
}

/* One CTA writes one list: the keys in ascending order, then unused slots. */
__global__ __launch_bounds__(THREADS) void compact_kernel(const pb_dynmask_keys_build_args a, const int32_t *until_of)
{
    __shared__ int warp[WARPS];
    const size_t r = blockIdx.x;
    const int lane = threadIdx.x % 32, wid = threadIdx.x / 32;
    int32_t *list = a.list + r * a.L, *until = a.until + r * a.L;
    int n = 0;
    until_of += r * a.S;
    for (int j0 = 0; j0 < a.S; j0 += THREADS) {
        const int j = j0 + threadIdx.x, to = j < a.S ? until_of[j] : 0;
        const unsigned kept = __ballot_sync(ALL, to > j);
        if (lane == 0) warp[wid] = __popc(kept);
        __syncthreads();
        int at = n + __popc(kept & ((1u << lane) - 1));
        for (int w = 0; w < WARPS; w++) {
            if (w < wid) at += warp[w];
            n += warp[w];
        }
        if (to > j && at < a.L) list[at] = j, until[at] = to; /* with NaN, more keys than L may be kept */
        __syncthreads();
    }
    for (int l = n + threadIdx.x; l < a.L; l += THREADS) list[l] = -1, until[l] = 0;
}

__global__ __launch_bounds__(TOPK_THREADS) void radix_kernel(const pb_dynmask_keys_build_args a)
{
    __shared__ topk_smem sm;
    const size_t r = blockIdx.x;
    const int most = min(a.keep, a.S);
    int32_t *list = a.list + r * a.L, *until = a.until + r * a.L;
    topk_row(sm, a.bias + r * a.S, 0, a.S, most, list);
    __syncthreads();
    for (int l = threadIdx.x; l < a.L; l += TOPK_THREADS) {
        if (l >= most) list[l] = -1;
        until[l] = list[l] < 0 ? 0 : a.S;
    }
}

pb_status build_radix(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_keys_build_args a = *(const pb_dynmask_keys_build_args *)args;
    radix_kernel<<<(unsigned)(a.B * a.K), TOPK_THREADS, 0, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "dynmask_keys_radix");
}
bool radix_takes(const void *args)
{
    const pb_dynmask_keys_build_args *a = (const pb_dynmask_keys_build_args *)args;
    return !a->exact && !a->start;
}

pb_status build(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_keys_build_args a = *(const pb_dynmask_keys_build_args *)args;
    const size_t keys = (size_t)a.B * a.K * a.S;
    int32_t *until_of = (int32_t *)ctx->scratch;
    find_kernel<<<(unsigned)((keys + WARPS - 1) / WARPS), THREADS, 0, pb_cuda_stream(ctx)>>>(a, until_of);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_keys_find"));
    compact_kernel<<<(unsigned)(a.B * a.K), THREADS, 0, pb_cuda_stream(ctx)>>>(a, until_of);
    return pb_cuda_launched(ctx, "dynmask_keys_compact");
}

size_t build_workspace(const void *args)
{
    const pb_dynmask_keys_build_args *a = (const pb_dynmask_keys_build_args *)args;
    return (size_t)a->B * a->K * a->S * sizeof(int32_t);
}
} // namespace

extern "C" {
extern const pb_impl pb_dynmask_keys_build_cuda[] = {
    {.name = "radix", .run = build_radix, .accepts = radix_takes},
    {.name = "warps", .run = build, .workspace = build_workspace},
    {0},
};
}
