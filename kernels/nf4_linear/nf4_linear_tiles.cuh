/* nf4_linear_tiles.cuh - shared by the two tensor-core kernels of the NF4 linear layer (nf4_linear_wgmma.cu and
 * nf4_linear_registers.cu): how the work is divided among CTAs, the loads of x, the end of a CTA, and the launch.
 *
 * out^T = W x^T (forward) or W^T dy^T (dx). `features` are the columns of out, `terms` the dimension that is summed
 * over; each of them is one dimension of W. A CTA computes 128 features of up to TOKENS tokens over its share of the
 * terms, 64 terms per step. A cluster holds all shares of the terms of one tile of features, or of two (`pair`). */
#ifndef PB_NF4_LINEAR_TILES_CUH
#define PB_NF4_LINEAR_TILES_CUH
#include "kernels/cuda/nf4_decode.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/nf4_linear/nf4_linear.h"

namespace
{
typedef __nv_bfloat16 bf16;
enum { FEATURES = 128, TERMS = 64, RUN = 32, RUNS = 256, MOST_SPLITS = 8 };
enum { PITCH = FEATURES + 4 }; /* floats from one token to the next in `sums`; this distance causes no bank conflicts */

struct task {
    pb_nf4_view w;
    const float *bias; /* [features] or NULL */
    bf16 *out;         /* [tokens,features] */
    int features, terms, tokens;
    int splits, pair; /* splits: shares of the terms; pair: tiles of features per cluster, 1 or 2 */
    bool accumulate;
};

#ifdef PB_SM90_CODE
/* The work of a CTA. Its rank in the cluster is share * pair + tile. */
struct part {
    int feature0, token0, from, to; /* from, to: steps of 64 terms */
    int share, tile;
};
template <int TOKENS> __device__ inline part part_of(const task &t)
{
    const int size = t.splits * t.pair, rank = (int)blockIdx.x % size, steps = (t.terms + TERMS - 1) / TERMS;
    part p;
    p.share = rank / t.pair, p.tile = rank % t.pair;
    p.feature0 = ((int)blockIdx.x / size * t.pair + p.tile) * FEATURES;
    p.token0 = (int)blockIdx.y * TOKENS;
    p.from = steps * p.share / t.splits, p.to = steps * (p.share + 1) / t.splits;
    return p;
}

/* A step decodes RUNS runs; a run is RUN consecutive elements of W: half run % 2 of row run % 128 / 2 of the 64 x 64
 * tile run / 128. Returns the index of the first element of run `run`. For runs beyond the edge of W it returns
 * the last run, which is then multiplied by zeros of x or gives features that are not stored. W_MN_MAJOR: the rows of W
 * are the terms (dx). */
template <bool W_MN_MAJOR> __device__ inline size_t run_at(const task &t, int feature0, int step, int run)
{
    const int r = run % 128 / 2, f = feature0 + run / 128 * 64, k = step * TERMS, half = run % 2 * RUN;
    if (W_MN_MAJOR) return (size_t)min(k + r, t.terms - 1) * t.features + min(f + half, t.features - RUN);
    return (size_t)min(f + r, t.features - 1) * t.terms + min(k + half, t.terms - RUN);
}

/* Starts the TMA load of x for a step to `x`; its bytes count on mbarrier `full`, which must have been told to expect
 * those of all tokens. This CTA loads its half of the tokens for both CTAs if `pair` is 2. */
template <int TOKENS>
__device__ inline void load_tokens(bf16 *x, uint64_t *full, const CUtensorMap *map, const task &t, const part &p,
                                   int step)
{
    const int first = p.tile * (TOKENS / 2);
    if (t.pair == 1) tma_load(x, map, full, step * TERMS, 0, p.token0, 0);
    else tma_load_multicast(3u << 2 * p.share, x + first * TERMS, map, full, step * TERMS, 0, p.token0 + first, 0);
}

/* Adds the sums over all shares of the terms, through distributed shared memory and in the order of the terms, so that
 * the result is deterministic, and stores the result. Each CTA of a cluster handles some of the tokens; a warp handles
 * 128 features of one token, a lane four of them. All WARPS warps of the CTA call this function. */
template <int TOKENS, int WARPS> __device__ void finish(const float (*sums)[PITCH], const task &t, const part &own)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, f = own.feature0 + lane * 4;
    const int from = TOKENS * own.share / t.splits, to = TOKENS * (own.share + 1) / t.splits;
    cluster_sync();
    for (int r = from + warp; r < to; r += WARPS) {
        if (own.token0 + r >= t.tokens || f >= t.features) break;
        bf16 *out = t.out + (size_t)(own.token0 + r) * t.features + f;
        float sum[4] = {}, old[4];
#pragma unroll
        for (int q = 0; q < MOST_SPLITS; q++) {
            if (q >= t.splits) break;
            const float4 part = cluster_load(&sums[r][f - own.feature0], q * t.pair + own.tile);
            sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
        }
        if (t.accumulate) pb_load_vec<bf16, 4>(out, old);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (t.bias) sum[i] += t.bias[f + i];
            if (t.accumulate) sum[i] += old[i];
        }
        pb_store_vec<bf16, 4>(out, sum);
    }
    cluster_sync(); /* a CTA must not exit while others read its shared memory */
}
#endif

task fwd_task(const pb_nf4_linear_fwd_args *a)
{
    return {pb_nf4_view_of(a->q, &a->scales), a->bias, static_cast<bf16 *>(a->y), a->N, a->K, a->T, 1, 1, false};
}
task dx_task(const pb_nf4_linear_dx_args *a)
{
    return {pb_nf4_view_of(a->q, &a->scales), NULL, static_cast<bf16 *>(a->dx), a->K, a->N, a->T, 1, 1, a->accumulate};
}

/* What divide() must know about a kernel. */
struct costs {
    int per_sm; /* CTAs per SM, 1 or 2 */
    int start;  /* the time before a CTA's first product and after its last, in steps */
    bool odd;   /* splits of 3 and 6 are allowed, too */
};
/* The number of tiles of features, and of tokens. */
struct tiles {
    int features, tokens;
};

/* Chooses splits and pair for the shortest estimated time. Two CTAs that share an SM are estimated to need half as long
 * again for a step as one alone. Clusters have at most 8 CTAs. */
void divide(task *t, tiles n, int sms, costs c)
{
    const int steps = (t->terms + TERMS - 1) / TERMS;
    long best = 0;
    for (int s = 1; s <= MOST_SPLITS && s <= steps; s++) {
        if (s & (s - 1) && (!c.odd || s % 3)) continue;
        const int pair = 2 * s <= 8 && n.features > 1 ? 2 : 1, clusters = (n.features + pair - 1) / pair * n.tokens;
        const int at_once = max(sms * c.per_sm / (s * pair), 1), rest = clusters % at_once;
        const long alone = 2 * (c.start + (steps + s - 1) / s);
        const long crowded = alone + (c.per_sm - 1) * ((steps + s - 1) / s);
        const long last = rest * s * pair > sms ? crowded : rest ? alone : 0;
        const long cost = clusters / at_once * crowded + last;
        if (s == 1 || cost < best) best = cost, t->splits = s, t->pair = pair;
    }
}

/* Launches `kernel` with the grid (clusters * splits * pair, tiles of tokens). */
template <class... ARGS>
pb_status launch_clusters(pb_ctx *ctx, const char *name, void (*kernel)(ARGS...), const task &t, tiles n, int threads,
                          size_t shared, const ARGS &...args)
{
    cudaLaunchConfig_t how = {};
    cudaLaunchAttribute cluster = {};
    PB_TRY(pb_cuda_allow_shared(kernel, shared));
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)(t.splits * t.pair);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    how.gridDim = dim3((unsigned)((n.features + t.pair - 1) / t.pair * t.pair * t.splits), (unsigned)n.tokens);
    how.blockDim = dim3((unsigned)threads);
    how.dynamicSmemBytes = shared;
    how.stream = pb_cuda_stream(ctx);
    how.attrs = &cluster;
    how.numAttrs = 1;
    PB_CUDA_TRY(cudaLaunchKernelEx(&how, kernel, args...));
    return pb_cuda_launched(ctx, name);
}
} // namespace
#endif
