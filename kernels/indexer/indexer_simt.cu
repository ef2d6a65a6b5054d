/* indexer_simt.cu - the indexer without tensor cores: f32, bf16 or codes, D up to 256, any alignment. Arithmetic is in
 * f32. Deterministic.
 *
 * 32 rows of k are in shared memory, one per lane. Each warp processes four heads of a query at a time; all its lanes
 * read the same element of q. Backward: a CTA owns a part of a batch row's queries, processes 32 heads and 32 slots at
 * a time, and adds dk to its own partial sum; slots of a tile that hold the same group are merged first. Bound by
 * shared-memory bandwidth. */
#include "kernels/indexer/indexer.cuh"

namespace
{
/* ROWS, HEADS: rows of k and heads of q per tile; TOKENS: queries per CTA of scores_kernel; MOST: the largest D. */
constexpr int ROWS = 32, HEADS = 32, TOKENS = 16, MOST = 256;

struct e4m3 {
    uint8_t code;
};
__device__ inline float value(float x) { return x; }
__device__ inline float value(bf16 x) { return __bfloat162float(x); }
__device__ inline float value(e4m3 x) { return pb_e4m3_decode(x.code); }

__host__ __device__ inline int depth_of(int D) { return (D + 3) / 4 * 4; } /* padded length of a row in shared memory */
__host__ __device__ inline int ld_of(int D) { return depth_of(D) + 4; }

/* Copies rows at .. at+n-1 of x, times their scales, to [high][ld] in shared memory; zeros
 * beyond n rows and D columns. */
template <class E>
__device__ inline void load_block(float *to, int ld, const void *x, const float *scale, size_t at, int n, int high,
                                  int D)
{
    for (int e = threadIdx.x; e < high * depth_of(D); e += INDEXER_THREADS) {
        const int r = e / depth_of(D), d = e % depth_of(D);
        const bool there = r < n && d < D;
        to[r * ld + d] = there ? value(((const E *)x)[(at + r) * D + d]) * (scale ? scale[at + r] : 1.0f) : 0;
    }
}
/* Copies the rows of k of the groups in group[] to shared memory; -1 gives zeros. */
template <class E>
__device__ inline void load_listed(float *to, int ld, const pb_indexer &x, size_t b, const int *group, int D)
{
    for (int e = threadIdx.x; e < ROWS * depth_of(D); e += INDEXER_THREADS) {
        const int r = e / depth_of(D), d = e % depth_of(D), g = group[r];
        to[r * ld + d] = g >= 0 && d < D ? value(((const E *)x.k)[(b * x.G + g) * D + d]) : 0;
    }
}

__device__ inline float dot(const float *x, const float *y, int depth)
{
    float sum = 0;
    for (int d = 0; d < depth; d += 4) {
        const float4 p = *(const float4 *)(x + d), q = *(const float4 *)(y + d);
        sum = fmaf(p.x, q.x, fmaf(p.y, q.y, fmaf(p.z, q.z, fmaf(p.w, q.w, sum))));
    }
    return sum;
}

struct tiles {
    float *k, *q, *part; /* k [ROWS][ld], q [HEADS][ld], part [WARPS][ROWS] */
};
__device__ inline tiles tiles_of(float *smem, int D)
{
    return {smem, smem + ROWS * ld_of(D), smem + (ROWS + HEADS) * ld_of(D)};
}
inline size_t tiles_bytes(int D) { return ((ROWS + HEADS) * (size_t)ld_of(D) + INDEXER_WARPS * ROWS) * sizeof(float); }

/* Returns sum_h w_h max(q_h . k, 0) for this lane's row, in every warp. All threads of the CTA must call it. */
template <class E> __device__ inline float score_rows(const tiles &m, const pb_indexer &x, size_t token)
{
    const int lane = threadIdx.x % 32, wid = threadIdx.x / 32, ld = ld_of(x.D);
    float sum = 0;
    for (int h0 = 0; h0 < x.H; h0 += HEADS) {
        __syncthreads();
        load_block<E>(m.q, ld, x.q, x.q_scale, token * x.H + h0, min(HEADS, x.H - h0), HEADS, x.D);
        __syncthreads();
        for (int h = wid * 4; h < wid * 4 + 4 && h0 + h < x.H; h++)
            sum = fmaf(relu(dot(m.k + lane * ld, m.q + h * ld, depth_of(x.D))), x.w[token * x.H + h0 + h], sum);
    }
    m.part[wid * ROWS + lane] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < INDEXER_WARPS; w++) sum += m.part[w * ROWS + lane];
    return sum;
}

template <class E>
__global__ __launch_bounds__(INDEXER_THREADS, 1) void scores_kernel(const pb_indexer x, const indexer_span s, int rows,
                                                                    int blocks)
{
    extern __shared__ __align__(16) float smem[];
    const tiles m = tiles_of(smem, x.D);
    const int b = blockIdx.x / (rows * blocks), i0 = (int)blockIdx.x / rows % blocks * TOKENS;
    const int g0 = (int)(blockIdx.x % rows) * ROWS, g = g0 + (int)threadIdx.x % 32;
    load_block<E>(m.k, ld_of(x.D), x.k, x.k_scale, (size_t)b * x.G + g0, min(ROWS, x.G - g0), ROWS, x.D);
    for (int i = i0; i < min(i0 + TOKENS, s.n); i++) {
        const int t = s.first + i;
        const size_t token = (size_t)b * x.S + t;
        const pb_visible v = pb_visible_to(x.offset + t, s.start ? s.start[token] : 0, s.ratio, x.G);
        const bool any = v.hi > g0 && v.lo < g0 + ROWS && v.lo < v.hi; /* equal in all threads of the CTA */
        const float score = any ? score_rows<E>(m, x, token) : 0;
        float *to = s.score + ((size_t)b * s.n + i) * x.G + g;
        if (threadIdx.x >= 32 || g >= x.G) continue;
        if (any && g >= v.lo && g < v.hi) *to = score;
        else if (s.fill) *to = -INFINITY;
    }
}

template <class E> __global__ __launch_bounds__(INDEXER_THREADS) void at_kernel(const pb_indexer_at_args a, int blocks)
{
    extern __shared__ __align__(16) float smem[];
    __shared__ int group[ROWS];
    const pb_indexer &x = a.x;
    const tiles m = tiles_of(smem, x.D);
    const size_t token = blockIdx.x / blocks;
    const int j = (int)(blockIdx.x % blocks) * ROWS + (int)threadIdx.x % 32;
    const int pick = j < a.K ? a.pick[token * a.K + j] : -1;
    if (threadIdx.x < ROWS) group[threadIdx.x] = pick >= 0 && pick < x.G ? pick : -1;
    __syncthreads();
    load_listed<E>(m.k, ld_of(x.D), x, token / x.S, group, x.D);
    const float score = score_rows<E>(m, x, token);
    if (threadIdx.x < 32 && j < a.K) a.score[token * a.K + j] = group[threadIdx.x] >= 0 ? score : 0;
}

/* ---- backward pass --------------------------------------------------------------------------------------------- */

struct bwd_tiles {
    float *k, *q, *dq, *du; /* k [ROWS][ld]; q and dq [HEADS][ld]; du [HEADS][ROWS+1] */
};
__device__ inline bwd_tiles bwd_tiles_of(float *smem, int D)
{
    float *q = smem + ROWS * ld_of(D);
    return {smem, q, q + HEADS * ld_of(D), q + 2 * HEADS * ld_of(D)};
}
inline size_t bwd_bytes(int D) { return ((ROWS + 2 * HEADS) * (size_t)ld_of(D) + HEADS * (ROWS + 1)) * sizeof(float); }

/* Computes dq += du k for up to 32 heads, and dk += du^T q for the tile's 32 slots. */
__device__ inline void add_dq_and_dk(const bwd_tiles &m, const int *group, float *dk, int D)
{
    const int ld = ld_of(D);
    for (int e = threadIdx.x; e < HEADS * D; e += INDEXER_THREADS) {
        const int h = e / D, d = e % D;
        float sum = m.dq[h * ld + d];
        for (int k = 0; k < ROWS; k++) sum = fmaf(m.du[h * (ROWS + 1) + k], m.k[k * ld + d], sum);
        m.dq[h * ld + d] = sum;
    }
    for (int e = threadIdx.x; e < ROWS * D; e += INDEXER_THREADS) {
        const int k = e / D, d = e % D;
        float sum = 0;
        if (group[k] < 0) continue;
        for (int h = 0; h < HEADS; h++) sum = fmaf(m.du[h * (ROWS + 1) + k], m.q[h * ld + d], sum);
        dk[(size_t)group[k] * D + d] += sum;
    }
}

/* Computes the backward pass of heads h0 .. h0+n-1 of one query, over all its slots. */
template <class E>
__device__ inline void bwd_heads(const bwd_tiles &m, int *group, float *ds, const pb_indexer_bwd_args &a, size_t token,
                                 int h0, int n, float *dk)
{
    const pb_indexer &x = a.x;
    const int lane = threadIdx.x % 32, wid = threadIdx.x / 32, ld = ld_of(x.D);
    const size_t head = token * x.H + h0;
    float dw[HEADS / INDEXER_WARPS] = {};
    __syncthreads();
    load_block<E>(m.q, ld, x.q, NULL, head, n, HEADS, x.D);
    for (int e = threadIdx.x; e < HEADS * ld; e += INDEXER_THREADS) m.dq[e] = 0;
    for (int j0 = 0; j0 < a.K; j0 += ROWS) {
        __syncthreads();
        if (threadIdx.x < ROWS) {
            const int j = j0 + (int)threadIdx.x, pick = j < a.K ? a.pick[token * a.K + j] : -1;
            const bool named = pick >= 0 && pick < x.G;
            group[threadIdx.x] = named ? pick : -1, ds[threadIdx.x] = named ? a.dscore[token * a.K + j] : 0;
        }
        __syncthreads();
        merge_slots(group, ds, ROWS);
        load_listed<E>(m.k, ld, x, token / x.S, group, x.D);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < HEADS / INDEXER_WARPS; i++) {
            const int h = wid + i * INDEXER_WARPS;
            const float u = dot(m.k + lane * ld, m.q + h * ld, depth_of(x.D));
            dw[i] += pb_warp_sum(ds[lane] * relu(u));
            m.du[h * (ROWS + 1) + lane] = u > 0 && h < n ? ds[lane] * x.w[head + h] : 0;
        }
        __syncthreads();
        add_dq_and_dk(m, group, dk, x.D);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < HEADS / INDEXER_WARPS; i++)
        if (lane == 0 && wid + i * INDEXER_WARPS < n) a.dw[head + wid + i * INDEXER_WARPS] = dw[i];
    for (int e = threadIdx.x; e < n * x.D; e += INDEXER_THREADS)
        ((E *)a.dq)[head * x.D + e] = pb_from_f32<E>(m.dq[e / x.D * ld + e % x.D]);
}

template <class E>
__global__ __launch_bounds__(INDEXER_THREADS, 1) void bwd_kernel(const pb_indexer_bwd_args a, float *sums, int parts)
{
    extern __shared__ __align__(16) float smem[];
    __shared__ int group[ROWS];
    __shared__ float ds[ROWS];
    const pb_indexer &x = a.x;
    const bwd_tiles m = bwd_tiles_of(smem, x.D);
    const int b = (int)blockIdx.x / parts;
    for (int t = (int)blockIdx.x % parts; t < x.S; t += parts)
        for (int h = 0; h < x.H; h += HEADS)
            bwd_heads<E>(m, group, ds, a, (size_t)b * x.S + t, h, min(HEADS, x.H - h),
                         sums + (size_t)blockIdx.x * x.G * x.D);
}

/* ---- host functions that launch the kernels -------------------------------------------------------------------- */

template <class E> pb_status scores(pb_ctx *ctx, const pb_indexer &x, const indexer_span &s)
{
    const int rows = (x.G + ROWS - 1) / ROWS, blocks = (s.n + TOKENS - 1) / TOKENS;
    return indexer_launch(ctx, "indexer scores simt", scores_kernel<E>, (size_t)x.B * rows * blocks, tiles_bytes(x.D),
                          x, s, rows, blocks);
}
template <class E> pb_status at(pb_ctx *ctx, const pb_indexer_at_args &a)
{
    const int blocks = (a.K + ROWS - 1) / ROWS;
    return indexer_launch(ctx, "indexer at simt", at_kernel<E>, (size_t)a.x.B * a.x.S * blocks, tiles_bytes(a.x.D), a,
                          blocks);
}
template <class E> pb_status bwd(pb_ctx *ctx, const pb_indexer_bwd_args &a, float *sums, int parts)
{
    return indexer_launch(ctx, "indexer bwd simt", bwd_kernel<E>, (size_t)a.x.B * parts, bwd_bytes(a.x.D), a, sums,
                          parts);
}
} // namespace

bool pb_indexer_simt_takes(const pb_indexer *x) { return x->D <= MOST; }
bool pb_indexer_bwd_simt_takes(const pb_indexer_bwd_args *a)
{
    return pb_indexer_simt_takes(&a->x) && bwd_bytes(a->x.D) <= pb_cuda_shared();
}

pb_status pb_indexer_scores_simt(pb_ctx *ctx, const pb_indexer *x, const indexer_span *s)
{
    return x->q_scale ? scores<e4m3>(ctx, *x, *s) : PB_CUDA_BY_DTYPE(x->dtype, scores, ctx, *x, *s);
}
pb_status pb_indexer_at_simt(pb_ctx *ctx, const pb_indexer_at_args *a)
{
    return PB_CUDA_BY_DTYPE(a->x.dtype, at, ctx, *a);
}
pb_status pb_indexer_bwd_simt(pb_ctx *ctx, const pb_indexer_bwd_args *a, float *sums, int parts)
{
    return PB_CUDA_BY_DTYPE(a->x.dtype, bwd, ctx, *a, sums, parts);
}
