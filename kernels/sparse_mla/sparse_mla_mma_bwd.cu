/* sparse_mla_mma_bwd.cu - MLA backward with mma.sync on sm_80 and later, bf16.
 *
 * dq: a CTA computes up to 64 heads of one token. Their q and do stay in shared memory, the rows of kv pass through it
 * in tiles of 32 with two stages, and dq is summed in registers. dkv is computed in one of two ways. Scattered: the
 * same CTA adds what its heads contribute to the 32 rows to f32 sums by atomics, 16 columns at a time; a last kernel
 * rounds to bf16. Ordered: another kernel gives each CTA 32 rows of kv. The CTA keeps their sums in registers and loops
 * over the queries in order, skipping those that attend to none of its rows. Then scores are computed twice and every
 * CTA reads every list, but the result is deterministic. */
#include "kernels/sparse_mla/mla_sums.cuh"

namespace
{
template <int G, int DP, int VP> struct head_tiles {
    bf16 q[16 * G * mla_ld<DP>], dO[16 * G * mla_ld<VP>], weight[16 * G * MLA_P_LD], ds[16 * G * MLA_P_LD];
    float lse2[16 * G], delta[16 * G]; /* lse2: lse * log2(e) */
};
template <int G, int DP, int VP> struct dq_smem {
    head_tiles<G, DP, VP> own;
    bf16 kv[2][MLA_KEYS * mla_ld<DP>];
    int row[2][MLA_KEYS], times[2][MLA_KEYS];
};
template <int G, int DP, int VP> struct dkv_smem {
    head_tiles<G, DP, VP> at;
    bf16 kv[MLA_KEYS * mla_ld<DP>];
    int times[MLA_KEYS];
};

/* Starts to load q and do of the heads of a token, and loads their lse and delta. */
template <int G, int DP, int VP>
__device__ inline void load_heads(head_tiles<G, DP, VP> &sm, const pb_mla &p, const mla_cta_work &own,
                                  const float *delta)
{
    mla_load_rows<DP, 16 * G>(sm.q, (const bf16 *)p.q + own.head * p.D, own.n, p.D);
    mla_load_rows<VP, 16 * G>(sm.dO, (const bf16 *)p.dO + own.head * p.V, own.n, p.V);
    if (threadIdx.x < 16 * G) {
        const bool there = (int)threadIdx.x < own.n;
        sm.lse2[threadIdx.x] = there ? p.lse[own.head + threadIdx.x] * MLA_LOG2E : 0;
        sm.delta[threadIdx.x] = there ? delta[own.head + threadIdx.x] : 0;
    }
}

/* Computes p and ds of n heads and 32 rows of kv. times[k]: how often the query attends to row k; 0: masked. */
template <int G, int DP, int VP>
__device__ inline void weigh_tile(head_tiles<G, DP, VP> &sm, const bf16 *kv, const int *times, int n, float scale)
{
    constexpr int LD = mla_ld<DP>, LV = mla_ld<VP>;
    const int group = threadIdx.x / 32 % G, lane = pb_mma_lane();
    for (int tile = threadIdx.x / 32 / G; tile < MLA_KEYS / 8; tile += 8 / G) {
        float s[4], dp[4], w[4], ds[4];
        mla_dot<DP>(s, sm.q + group * 16 * LD, LD, kv + tile * 8 * LD, LD);
        mla_dot<VP>(dp, sm.dO + group * 16 * LV, LV, kv + tile * 8 * LD, LD);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = group * 16 + lane / 4 + e / 2 * 8, count = times[tile * 8 + lane % 4 * 2 + e % 2];
            const bool seen = count > 0 && row < n; /* selected, not multiplied: a masked weight may be infinite */
            w[e] = seen ? (float)count * pb_exp2_fast(s[e] * scale * MLA_LOG2E - sm.lse2[row]) : 0;
            ds[e] = seen ? w[e] * (dp[e] - sm.delta[row]) * scale : 0;
        }
        const int at = (group * 16 + lane / 4) * MLA_P_LD + tile * 8 + lane % 4 * 2;
        *reinterpret_cast<uint32_t *>(sm.weight + at) = pack_bf16(w[0], w[1]);
        *reinterpret_cast<uint32_t *>(sm.weight + at + 8 * MLA_P_LD) = pack_bf16(w[2], w[3]);
        *reinterpret_cast<uint32_t *>(sm.ds + at) = pack_bf16(ds[0], ds[1]);
        *reinterpret_cast<uint32_t *>(sm.ds + at + 8 * MLA_P_LD) = pack_bf16(ds[2], ds[3]);
    }
}

/* Adds to `sum` what the heads contribute to columns col .. col+15 of 32 rows of dkv. sum: 2 x 2 tiles of [16 rows][8
 * columns]. */
template <int G, int DP, int VP>
__device__ inline void add_heads(float (&sum)[2][2][4], const head_tiles<G, DP, VP> &sm, int col)
{
    constexpr int LD = mla_ld<DP>, LV = mla_ld<VP>;
#pragma unroll
    for (int h = 0; h < 16 * G; h += 16) {
        uint32_t a[4], y[4];
        pb_load_b2(y, sm.q + h * LD + col, LD);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            pb_load_a_trans(a, sm.ds + h * MLA_P_LD + 16 * m, MLA_P_LD);
            pb_mma(sum[m][0], a, y[0], y[1]);
            pb_mma(sum[m][1], a, y[2], y[3]);
        }
        if (col >= VP) continue;
        pb_load_b2(y, sm.dO + h * LV + col, LV);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            pb_load_a_trans(a, sm.weight + h * MLA_P_LD + 16 * m, MLA_P_LD);
            pb_mma(sum[m][0], a, y[0], y[1]);
            pb_mma(sum[m][1], a, y[2], y[3]);
        }
    }
}

__device__ inline void clear(float (&sum)[2][2][4])
{
#pragma unroll
    for (int e = 0; e < 16; e++) sum[e / 8][e / 4 % 2][e % 4] = 0;
}

/* row_of returns the row (of 32) of element e of sum[m][.]; col_of returns the column (of 16) of element e of
 * sum[.][n]. */
__device__ inline int row_of(int m, int e) { return m * 16 + pb_mma_lane() / 4 + e / 2 * 8; }
__device__ inline int col_of(int n, int e) { return n * 8 + pb_mma_lane() % 4 * 2 + e % 2; }

/* Adds what the heads contribute to the rows of a tile to dkv [S_kv,D] of the batch row, with atomics. A masked slot
 * adds nothing, not even zeros. */
template <int G, int DP, int VP>
__device__ inline void scatter(const head_tiles<G, DP, VP> &sm, const int *row, float *dkv, int D)
{
    for (int col = threadIdx.x / 32 * 16; col < DP; col += MLA_THREADS / 32 * 16) {
        float sum[2][2][4];
        clear(sum);
        add_heads(sum, sm, col);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int m = i / 8, n = i / 4 % 2, e = i % 4, r = row[row_of(m, e)], d = col + col_of(n, e);
            if (r >= 0 && d < D) atomicAdd(dkv + (size_t)r * D + d, sum[m][n][e]);
        }
    }
}

/* Kernel dq_kernel computes dq. It also adds to dkv by atomics, unless dkv is NULL. */
template <int G, int DP, int VP>
__global__ __launch_bounds__(MLA_THREADS, 1) void dq_kernel(const pb_mla p, const float *delta, float *dkv, int blocks)
{
    extern __shared__ __align__(128) unsigned char smem[];
    constexpr int NT = DP / (8 / G) / 8;
    dq_smem<G, DP, VP> &sm = *reinterpret_cast<dq_smem<G, DP, VP> *>(smem);
    const mla_cta_work own = mla_heads_of<G>(p, blockIdx.x / blocks, (int)(blockIdx.x % blocks));
    const pb_mla_keys keys = pb_mla_keys_of(&p, own.b, own.i);
    const int row = threadIdx.x / 32 % G * 16 + pb_mma_lane() / 4, col = (int)threadIdx.x / 32 / G * NT * 8;
    float dq[NT][4];
#pragma unroll
    for (int n = 0; n < NT; n++) dq[n][0] = dq[n][1] = dq[n][2] = dq[n][3] = 0;
    load_heads(sm.own, p, own, delta);
    if (keys.n > 0) mla_load_slots<DP>(sm.kv[0], sm.row[0], p, keys, own.b, 0);
    copy_commit();
    for (int w0 = 0, stage = 0; w0 < keys.n; w0 += MLA_KEYS, stage ^= 1) {
        if (w0 + MLA_KEYS < keys.n)
            mla_load_slots<DP>(sm.kv[stage ^ 1], sm.row[stage ^ 1], p, keys, own.b, w0 + MLA_KEYS);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        if (threadIdx.x < MLA_KEYS) sm.times[stage][threadIdx.x] = sm.row[stage][threadIdx.x] >= 0;
        __syncthreads();
        weigh_tile(sm.own, sm.kv[stage], sm.times[stage], own.n, p.scale);
        __syncthreads();
        mla_add_weighted<NT>(dq, sm.own.ds + (row - pb_mma_lane() / 4) * MLA_P_LD, sm.kv[stage] + col, mla_ld<DP>);
        if (dkv) scatter(sm.own, sm.row[stage], dkv + (size_t)own.b * p.S_kv * p.D, p.D);
        __syncthreads();
    }
    copy_wait<0>();
    mla_store<NT>(dq, 1, 1, (bf16 *)p.dq + own.head * p.D, row, own.n, col, p.D);
}

/* Sets times[k] to how often row r0 + k is in the key list of query i of batch row b. Returns, in every thread, true if
 * any of these rows is in the list. */
__device__ inline bool count_rows(int *times, const pb_mla &p, int b, int i, int r0)
{
    const pb_mla_keys keys = pb_mla_keys_of(&p, b, i);
    bool any = false;
    __syncthreads();
    if (threadIdx.x < MLA_KEYS) {
        const int at = r0 + threadIdx.x - keys.first;
        any = !keys.list && at >= 0 && at < keys.n;
        times[threadIdx.x] = any;
    }
    __syncthreads();
    for (int w = threadIdx.x; keys.list && w < keys.n; w += MLA_THREADS) {
        const int at = pb_mla_row(&p, &keys, w) - r0;
        if (at < 0 || at >= MLA_KEYS) continue; /* true of -1 too */
        atomicAdd(&times[at], 1);
        any = true;
    }
    return __syncthreads_or(any);
}

template <int G, int DP, int VP>
__global__ __launch_bounds__(MLA_THREADS, 1) void dkv_kernel(const pb_mla p, const float *delta, int blocks)
{
    extern __shared__ __align__(128) unsigned char smem[];
    /* Each warp computes N groups of 16 columns, STEP columns apart. */
    constexpr int STEP = MLA_THREADS / 32 * 16, N = (DP + STEP - 1) / STEP;
    dkv_smem<G, DP, VP> &sm = *reinterpret_cast<dkv_smem<G, DP, VP> *>(smem);
    const int tiles = (p.S_kv + MLA_KEYS - 1) / MLA_KEYS, b = blockIdx.x / tiles;
    const int r0 = (int)(blockIdx.x % tiles) * MLA_KEYS, rows = min(MLA_KEYS, p.S_kv - r0);
    const int col = threadIdx.x / 32 * 16;
    const size_t first = ((size_t)b * p.S_kv + r0) * p.D;
    float sum[N][2][2][4];
#pragma unroll
    for (int n = 0; n < N; n++) clear(sum[n]);
    mla_load_rows<DP, MLA_KEYS>(sm.kv, (const bf16 *)p.kv + first, rows, p.D);
    copy_commit();
    for (int i = 0; i < p.S; i++) {
        if (!count_rows(sm.times, p, b, i, r0)) continue;
        for (int block = 0; block < blocks; block++) {
            const mla_cta_work own = mla_heads_of<G>(p, (size_t)b * p.S + i, block);
            __syncthreads();
            load_heads(sm.at, p, own, delta);
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            weigh_tile(sm.at, sm.kv, sm.times, own.n, p.scale);
            __syncthreads();
#pragma unroll
            for (int n = 0; n < N; n++)
                if (col + n * STEP < DP) add_heads(sum[n], sm.at, col + n * STEP);
        }
    }
    copy_wait<0>();
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int m = i / 8, half = i / 4 % 2, e = i % 4, r = row_of(m, e), d = col + n * STEP + col_of(half, e);
            if (r >= rows || d >= p.D) continue;
            const size_t to = first + (size_t)r * p.D + d;
            if (p.wide) ((float *)p.dkv)[to] = sum[n][m][half][e];
            else ((bf16 *)p.dkv)[to] = __float2bfloat16_rn(sum[n][m][half][e]);
        }
}

/* ---- host functions that launch the kernels -------------------------------------------------------------------- */

template <int G, int DP, int VP>
pb_status dq_launch(pb_ctx *ctx, const pb_mla &p, const float *delta, float *dkv, int blocks)
{
    return mla_launch(ctx, "mla_bwd mma, dq", dq_kernel<G, DP, VP>, (size_t)p.B * p.S * blocks,
                      sizeof(dq_smem<G, DP, VP>), p, delta, dkv, blocks);
}

/* Enqueues the backward pass. dkv: f32 sums to which dq_kernel adds by atomics; NULL selects the ordered way. */
template <int G, int DP, int VP> pb_status launch(pb_ctx *ctx, const pb_mla &p, const float *delta, float *dkv)
{
    const int blocks = (p.H + 16 * G - 1) / (16 * G);
    const size_t tiles = (size_t)p.B * ((p.S_kv + MLA_KEYS - 1) / MLA_KEYS);
    if (!dkv) {
        PB_TRY((dq_launch<G, DP, VP>(ctx, p, delta, NULL, blocks)));
        return mla_launch(ctx, "mla_bwd mma, dkv", dkv_kernel<G, DP, VP>, tiles, sizeof(dkv_smem<G, DP, VP>), p, delta,
                          blocks);
    }
    PB_TRY(mla_clear(ctx, p, dkv));
    PB_TRY((dq_launch<G, DP, VP>(ctx, p, delta, dkv, blocks)));
    return mla_round<BY_COLUMNS>(ctx, p, dkv);
}

/* Bytes of shared memory that the kernels with 32 heads per CTA need. */
template <int DP, int VP>
constexpr size_t bwd_room = sizeof(dq_smem<2, DP, VP>) > sizeof(dkv_smem<2, DP, VP>) ? sizeof(dq_smem<2, DP, VP>)
                                                                                     : sizeof(dkv_smem<2, DP, VP>);

/* Launches with 64 heads per CTA if H is that large and the GPU has enough shared memory, else with 32. */
template <int DP> pb_status by_heads(pb_ctx *ctx, const pb_mla &p, const float *delta, float *dkv)
{
    const bool fits = pb_cuda_device_of(ctx)->shared >= sizeof(dq_smem<4, DP, 512>);
    return p.H > 32 && fits ? launch<4, DP, 512>(ctx, p, delta, dkv) : launch<2, DP, 512>(ctx, p, delta, dkv);
}

pb_status run(pb_ctx *ctx, const pb_mla &p, float *delta, float *dkv)
{
    PB_TRY(pb_mla_dsink_cuda(ctx, &p, delta));
    return p.D <= 64    ? launch<2, 64, 64>(ctx, p, delta, dkv)
           : p.D <= 512 ? by_heads<512>(ctx, p, delta, dkv)
                        : by_heads<576>(ctx, p, delta, dkv);
}
} // namespace

/* Returns the size of the workspace: f32 sums of dkv, delta, the terms of dsink. */
size_t pb_mla_bwd_mma_workspace(const pb_mla *p) { return mla_sums_of(*p) * sizeof(float) + pb_mla_dsink_room(p); }

size_t pb_mla_bwd_mma_shared(const pb_mla *p)
{
    return p->D <= 64 ? bwd_room<64, 64> : p->D <= 512 ? bwd_room<512, 512> : bwd_room<576, 512>;
}

pb_status pb_mla_bwd_mma(pb_ctx *ctx, const pb_mla *p)
{
    float *dkv = (float *)ctx->scratch;
    return run(ctx, *p, dkv + mla_sums_of(*p), dkv);
}

pb_status pb_mla_bwd_mma_ordered(pb_ctx *ctx, const pb_mla *p) { return run(ctx, *p, (float *)ctx->scratch, NULL); }
