/* indexer_mma.cu - indexer scores, of all groups or of listed groups, on the tensor cores
 * of sm_80 and later (mma.sync).
 *
 * scores_kernel: a CTA owns 256 groups, 32 per warp in registers, and loops over up to 32 queries. The heads of a query
 * come through a shared-memory pipeline of two stages. A score is written as soon as it is computed. Warps whose groups
 * a query cannot see wait at the barrier. Limit: the rate of mma.sync, at which shared memory is busy 60 % of the time.
 *
 * at_kernel: a CTA owns a query; each warp gathers 32 of its listed rows at a time. */
#include "kernels/indexer/indexer_rows.cuh"

namespace
{
/* A CTA of scores_kernel processes TILE groups and TOKENS queries. */
constexpr int TILE = 32 * INDEXER_WARPS, TOKENS = 32;

template <int DP> struct stage {
    bf16 *q;
    float *w;
};
template <int DP> __device__ inline stage<DP> stage_of(unsigned char *smem, int i, int Hp)
{
    unsigned char *at = smem + (size_t)i * Hp * (rows_ld<DP> * sizeof(bf16) + sizeof(float));
    return {(bf16 *)at, (float *)(at + (size_t)Hp * rows_ld<DP> * sizeof(bf16))};
}

__device__ inline pb_visible visible(const pb_indexer &x, const indexer_span &s, int b, int i)
{
    const int t = s.first + i;
    return pb_visible_to(x.offset + t, s.start ? s.start[(size_t)b * x.S + t] : 0, s.ratio, x.G);
}

template <int DP, bool CODES>
__global__ __launch_bounds__(INDEXER_THREADS, 2) void scores_kernel(const pb_indexer x, const indexer_span s, int tiles,
                                                                    int blocks)
{
    extern __shared__ __align__(128) unsigned char smem[];
    const int Hp = padded_heads(x.H), b = blockIdx.x / (tiles * blocks), block = (int)blockIdx.x / tiles % blocks;
    const int g0 = (int)(blockIdx.x % tiles) * TILE, warp0 = g0 + (int)threadIdx.x / 32 * 32;
    const int g = warp0 + lane_row(), i0 = block * TOKENS, n = min(TOKENS, s.n - i0);
    warp_rows<DP> rows;
    int64_t row[2][2];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int at = warp0 + e * 8 + pb_mma_lane() / 4;
        row[e / 2][e % 2] = at < x.G ? (int64_t)b * x.G + at : -1;
    }
    load_warp_rows<DP, CODES>(rows, x, row);
    /* true if query i sees any of the CTA's groups; all threads of the CTA get the same result */
    const auto wanted = [&](int i) {
        const pb_visible v = visible(x, s, b, i0 + i);
        return v.lo < v.hi && v.hi > g0 && v.lo < g0 + TILE;
    };
    const auto load = [&](int i) {
        if (i < n && wanted(i)) {
            const stage<DP> to = stage_of<DP>(smem, i % 2, Hp);
            load_heads<DP, CODES>(to.q, to.w, x, (size_t)b * x.S + s.first + i0 + i);
        }
        copy_commit();
    };
    float *const to = s.score + ((size_t)b * s.n + i0) * x.G + g;
    load(0);
    for (int i = 0; i < n; i++) {
        load(i + 1);
        copy_wait<1>();
        __syncthreads();
        const pb_visible v = visible(x, s, b, i0 + i);
        const stage<DP> at = stage_of<DP>(smem, i % 2, Hp);
        const bool mine = v.hi > warp0 && v.lo < warp0 + 32 && v.lo < v.hi; /* equal in all lanes of the warp */
        const float score = mine ? score_rows<DP>(rows, at.q, at.w, Hp) : 0;
        if (mine && g >= v.lo && g < v.hi) to[(size_t)i * x.G] = CODES ? score * x.k_scale[(size_t)b * x.G + g] : score;
        else if (s.fill && g < x.G) to[(size_t)i * x.G] = -INFINITY;
        __syncthreads();
    }
    copy_wait<0>();
}

template <int DP> __global__ __launch_bounds__(INDEXER_THREADS, 2) void at_kernel(const pb_indexer_at_args a)
{
    extern __shared__ __align__(128) unsigned char smem[];
    const pb_indexer &x = a.x;
    const size_t token = blockIdx.x;
    const int Hp = padded_heads(x.H);
    const stage<DP> at = stage_of<DP>(smem, 0, Hp);
    load_heads<DP, false>(at.q, at.w, x, token);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    for (int j0 = (int)threadIdx.x / 32 * 32; j0 < a.K; j0 += TILE) {
        int64_t row[2][2];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int j = j0 + e * 8 + pb_mma_lane() / 4, pick = j < a.K ? a.pick[token * a.K + j] : -1;
            row[e / 2][e % 2] = pick >= 0 && pick < x.G ? (int64_t)(token / x.S) * x.G + pick : -1;
        }
        warp_rows<DP> rows;
        load_warp_rows<DP, false>(rows, x, row);
        const float score = score_rows<DP>(rows, at.q, at.w, Hp);
        const int j = j0 + lane_row(), in_quad = pb_mma_lane() % 4;
        const int64_t mine = in_quad == 0 ? row[0][0] : in_quad == 1 ? row[0][1] : in_quad == 2 ? row[1][0] : row[1][1];
        if (j < a.K) a.score[token * a.K + j] = mine >= 0 ? score : 0;
    }
}

template <int DP, bool CODES> pb_status scores(pb_ctx *ctx, const pb_indexer &x, const indexer_span &s)
{
    const int tiles = (x.G + TILE - 1) / TILE, blocks = (s.n + TOKENS - 1) / TOKENS;
    return indexer_launch(ctx, "indexer scores mma", scores_kernel<DP, CODES>, (size_t)x.B * tiles * blocks,
                          2 * heads_bytes<DP>(x.H), x, s, tiles, blocks);
}
} // namespace

/* H is at most 128, see pb_indexer_mma_takes. scores_kernel holds the heads of two tokens. */
static_assert(2 * heads_bytes<128>(128) <= PB_GPU_LEAST_SHARED, "the kernels must fit every GPU");

bool pb_indexer_mma_takes(const pb_indexer *x)
{
    const uintptr_t both = (uintptr_t)x->q | (uintptr_t)x->k, unit = x->q_scale ? 8 : 16;
    return x->dtype == PB_BF16 && x->D % 8 == 0 && x->D <= 128 && x->H <= 128 && both % unit == 0;
}

pb_status pb_indexer_scores_mma(pb_ctx *ctx, const pb_indexer *x, const indexer_span *s)
{
    if (x->q_scale) return x->D <= 64 ? scores<64, true>(ctx, *x, *s) : scores<128, true>(ctx, *x, *s);
    return x->D <= 64 ? scores<64, false>(ctx, *x, *s) : scores<128, false>(ctx, *x, *s);
}

pb_status pb_indexer_at_mma(pb_ctx *ctx, const pb_indexer_at_args *a)
{
    const size_t tokens = (size_t)a->x.B * a->x.S;
    return a->x.D <= 64 ? indexer_launch(ctx, "indexer at mma", at_kernel<64>, tokens, heads_bytes<64>(a->x.H), *a)
                        : indexer_launch(ctx, "indexer at mma", at_kernel<128>, tokens, heads_bytes<128>(a->x.H), *a);
}
