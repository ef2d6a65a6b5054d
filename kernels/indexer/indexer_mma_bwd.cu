/* indexer_mma_bwd.cu - the backward pass of the indexer on the tensor cores of sm_80 and later (mma.sync), bf16.
 *
 * A CTA processes a query at a time. Its heads stay in shared memory; the listed rows of k come 64 at a time, through a
 * pipeline of two stages. For each tile: the products u, then du in bf16 [slots][heads], then dq += du^T k (in
 * registers over all tiles) and dk += du q. Two versions:
 * - scattered: a CTA per query; dk is added to one f32 sum with atomics.
 * - ordered: a CTA owns a part of a batch row's queries and adds dk to its own partial sum without atomics, queries
 *   in order. Slots of a tile that hold the same group are merged first, and the partial sums are added in order, so
 *   results are deterministic.
 *
 * Bound by the L2 reductions of dk (512 bytes per slot) and by the rate of mma.sync. */
#include "kernels/indexer/indexer_rows.cuh"

namespace
{
/* DP: D rounded up. LD: elements per row of a tile. SLOTS: slots per tile. */
constexpr int DP = 128, LD = rows_ld<DP>, SLOTS = 64;

/* MT: number of groups of 16 heads, rounded up to a power of two. */
template <int MT> struct bwd_smem {
    static constexpr int HP = 16 * MT, LDU = HP + 8;
    bf16 q[HP * LD], k[2][SLOTS * LD], du[SLOTS * LDU];
    float w[HP], dw[4][HP], ds[2][SLOTS];
    int group[2][SLOTS];
};

/* Starts loading the rows of k for slots j0 .. j0+63 of a query. A masked slot gets a row of zeros and ds 0. */
template <int MT>
__device__ inline void load_slots(bwd_smem<MT> &sm, int stage, const pb_indexer_bwd_args &a, size_t token, int j0)
{
    constexpr int CHUNKS = DP / 8;
    const pb_indexer &x = a.x;
    const bf16 *from = (const bf16 *)x.k + token / x.S * x.G * x.D;
#pragma unroll 2
    for (int e = threadIdx.x; e < SLOTS * CHUNKS; e += INDEXER_THREADS) {
        const int k = e / CHUNKS, c = e % CHUNKS * 8, j = j0 + k, pick = j < a.K ? a.pick[token * a.K + j] : -1;
        const bool named = pick >= 0 && pick < x.G, there = named && c < x.D;
        copy_async(sm.k[stage] + k * LD + c, there ? from + (size_t)pick * x.D + c : from, there);
        if (c == 0) sm.group[stage][k] = named ? pick : -1, sm.ds[stage][k] = named ? a.dscore[token * a.K + j] : 0;
    }
}

/* Computes the products u = q.k for the tile's slots and this warp's heads, stores their gradients du, and adds to dw.
 * dw has separate sums for the four warps that share a head. */
template <int MT> __device__ inline void weigh_tile(bwd_smem<MT> &sm, int stage)
{
    const int lane = pb_mma_lane(), col = lane % 4 * 2, slot = (int)threadIdx.x / 32 % 4 * 16;
    const int h0 = (int)threadIdx.x / 128 * MT * 8, row = slot + lane / 4;
    const float ds[2] = {sm.ds[stage][row], sm.ds[stage][row + 8]};
    float c[MT][4] = {};
#pragma unroll 1
    for (int k = 0; k < DP; k += 32) {
        uint32_t a[4], b[4], y[4];
        pb_load_a(a, sm.k[stage] + slot * LD + k, LD);
        pb_load_a(b, sm.k[stage] + slot * LD + k + 16, LD);
#pragma unroll
        for (int n = 0; n < MT; n++) {
            pb_ldmatrix(y, sm.q + (h0 + n * 8 + lane % 8) * LD + k + lane / 8 * 8);
            pb_mma(c[n], a, y[0], y[1]);
            pb_mma(c[n], b, y[2], y[3]);
        }
    }
#pragma unroll
    for (int n = 0; n < MT; n++) {
        const int h = h0 + n * 8 + col;
        float du[4], dw[2] = {};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            dw[e % 2] = fmaf(ds[e / 2], relu(c[n][e]), dw[e % 2]);
            du[e] = c[n][e] > 0 ? ds[e / 2] * sm.w[h + e % 2] : 0;
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int d = 4; d < 32; d *= 2) dw[e] += __shfl_xor_sync(0xffffffffu, dw[e], d);
            if (lane < 4) sm.dw[slot / 16][h + e] += dw[e];
        }
        *(uint32_t *)(sm.du + row * bwd_smem<MT>::LDU + h) = pack_bf16(du[0], du[1]);
        *(uint32_t *)(sm.du + (row + 8) * bwd_smem<MT>::LDU + h) = pack_bf16(du[2], du[3]);
    }
}

/* Computes dq += du^T k for 16 heads and this warp's columns. */
template <int MT> __device__ inline void add_dq_tile(const bwd_smem<MT> &sm, int stage, float (&dq)[2 * MT][4])
{
    const int h = (int)threadIdx.x / 32 % MT * 16, col = (int)threadIdx.x / 32 / MT * MT * 16;
#pragma unroll
    for (int k = 0; k < SLOTS; k += 16) {
        uint32_t a[4], y[4];
        pb_load_a_trans(a, sm.du + k * bwd_smem<MT>::LDU + h, bwd_smem<MT>::LDU);
#pragma unroll
        for (int n = 0; n < 2 * MT; n += 2) {
            pb_load_b2(y, sm.k[stage] + k * LD + col + n * 8, LD);
            pb_mma(dq[n], a, y[0], y[1]);
            pb_mma(dq[n + 1], a, y[2], y[3]);
        }
    }
}

/* Adds x to to->x and y to to->y. ORDERED: no other CTA writes to *to, so no atomics are needed. */
template <bool ORDERED> __device__ inline void add_pair(float2 *to, float x, float y)
{
    if (ORDERED) {
        *to = make_float2(to->x + x, to->y + y);
        return;
    }
#if __CUDA_ARCH__ >= 900
    atomicAdd(to, make_float2(x, y));
#else
    atomicAdd(&to->x, x);
    atomicAdd(&to->y, y);
#endif
}

/* Computes dk += du q: adds to the rows of dk [G,D] of the groups in the tile's slots. It computes 32 columns at a
 * time, because dq occupies most registers. */
template <int MT, bool ORDERED> __device__ inline void add_dk_tile(const bwd_smem<MT> &sm, int stage, float *dk, int D)
{
    const int lane = pb_mma_lane(), slot = (int)threadIdx.x / 32 % 4 * 16, col = (int)threadIdx.x / 128 * 64;
#pragma unroll 1
    for (int d0 = col; d0 < col + 64; d0 += 32) {
        float c[4][4] = {};
#pragma unroll 1
        for (int k = 0; k < 16 * MT; k += 16) {
            uint32_t a[4], y[4];
            pb_load_a(a, sm.du + slot * bwd_smem<MT>::LDU + k, bwd_smem<MT>::LDU);
#pragma unroll
            for (int n = 0; n < 4; n += 2) {
                pb_load_b2(y, sm.q + k * LD + d0 + n * 8, LD);
                pb_mma(c[n], a, y[0], y[1]);
                pb_mma(c[n + 1], a, y[2], y[3]);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int g = sm.group[stage][slot + lane / 4 + half * 8];
            if (g < 0) continue; /* a masked slot has no row of dk */
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int d = d0 + n * 8 + lane % 4 * 2;
                if (d >= D) continue;
                add_pair<ORDERED>((float2 *)(dk + (size_t)g * D + d), c[n][half * 2], c[n][half * 2 + 1]);
            }
        }
    }
}

/* Stores dw of a query: adds the sums of the four warps that shared a head, in a fixed order. */
template <int MT> __device__ inline void store_dw(const bwd_smem<MT> &sm, const pb_indexer_bwd_args &a, size_t token)
{
    for (int h = threadIdx.x; h < a.x.H; h += INDEXER_THREADS)
        a.dw[token * a.x.H + h] = (sm.dw[0][h] + sm.dw[1][h]) + (sm.dw[2][h] + sm.dw[3][h]);
}

template <int MT>
__device__ inline void store_dq(const float (&dq)[2 * MT][4], const pb_indexer_bwd_args &a, size_t token)
{
    const int h = (int)threadIdx.x / 32 % MT * 16 + pb_mma_lane() / 4, col = (int)threadIdx.x / 32 / MT * MT * 16;
    bf16 *to = (bf16 *)a.dq + token * a.x.H * a.x.D;
#pragma unroll
    for (int n = 0; n < 2 * MT; n++) {
        const int d = col + n * 8 + pb_mma_lane() % 4 * 2;
        if (d >= a.x.D) continue;
        if (h < a.x.H) *(uint32_t *)(to + h * a.x.D + d) = pack_bf16(dq[n][0], dq[n][1]);
        if (h + 8 < a.x.H) *(uint32_t *)(to + (h + 8) * a.x.D + d) = pack_bf16(dq[n][2], dq[n][3]);
    }
}

template <int MT, bool ORDERED>
__global__ __launch_bounds__(INDEXER_THREADS, ORDERED || MT > 4 ? 1 : 2) void bwd_kernel(const pb_indexer_bwd_args a,
                                                                                         float *sums, int parts)
{
    extern __shared__ __align__(128) unsigned char smem[];
    bwd_smem<MT> &sm = *reinterpret_cast<bwd_smem<MT> *>(smem);
    const pb_indexer &x = a.x;
    const int b = ORDERED ? (int)blockIdx.x / parts : (int)(blockIdx.x / x.S);
    const int every = ORDERED ? parts : x.S; /* the CTA processes every `every`-th query */
    float *dk = sums + (size_t)(ORDERED ? blockIdx.x : b) * x.G * x.D;
    for (int t = (int)blockIdx.x % every; t < x.S; t += every) {
        const size_t token = (size_t)b * x.S + t;
        float dq[2 * MT][4] = {};
        __syncthreads();
        for (int h = threadIdx.x; h < 4 * 16 * MT; h += INDEXER_THREADS) {
            sm.dw[h / (16 * MT)][h % (16 * MT)] = 0;
            if (h >= x.H && h < 16 * MT) sm.w[h] = 0; /* load_heads() fills w up to padded_heads(H) only */
        }
        for (int e = padded_heads(x.H) * LD + (int)threadIdx.x; e < 16 * MT * LD; e += INDEXER_THREADS)
            sm.q[e] = __float2bfloat16_rn(0);
        load_heads<DP, false>(sm.q, sm.w, x, token);
        if (a.K > 0) load_slots(sm, 0, a, token, 0);
        copy_commit();
        for (int j0 = 0, stage = 0; j0 < a.K; j0 += SLOTS, stage ^= 1) {
            if (j0 + SLOTS < a.K) load_slots(sm, stage ^ 1, a, token, j0 + SLOTS);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            if (ORDERED) merge_slots(sm.group[stage], sm.ds[stage], SLOTS);
            weigh_tile(sm, stage);
            __syncthreads();
            add_dq_tile(sm, stage, dq);
            add_dk_tile<MT, ORDERED>(sm, stage, dk, x.D);
            __syncthreads();
        }
        copy_wait<0>();
        __syncthreads(); /* the loop has no barrier if K is 0 */
        store_dw(sm, a, token);
        store_dq<MT>(dq, a, token);
    }
}

static_assert(sizeof(bwd_smem<8>) <= PB_GPU_LEAST_SHARED, "the kernel must fit every GPU");
template <int MT, bool ORDERED> pb_status launch(pb_ctx *ctx, const pb_indexer_bwd_args &a, float *sums, int parts)
{
    return indexer_launch(ctx, "indexer bwd mma", bwd_kernel<MT, ORDERED>, (size_t)a.x.B * (ORDERED ? parts : a.x.S),
                          sizeof(bwd_smem<MT>), a, sums, parts);
}
template <bool ORDERED> pb_status by_heads(pb_ctx *ctx, const pb_indexer_bwd_args &a, float *sums, int parts)
{
    return a.x.H <= 16   ? launch<1, ORDERED>(ctx, a, sums, parts)
           : a.x.H <= 32 ? launch<2, ORDERED>(ctx, a, sums, parts)
           : a.x.H <= 64 ? launch<4, ORDERED>(ctx, a, sums, parts)
                         : launch<8, ORDERED>(ctx, a, sums, parts);
}

/* ---- clearing the partial sums of dk before the pass, and adding them afterwards ------------------------------- */

__global__ __launch_bounds__(INDEXER_THREADS) void clear_kernel(float *x, size_t n)
{
    const size_t i = (size_t)blockIdx.x * INDEXER_THREADS + threadIdx.x;
    if (i < n) x[i] = 0;
}

template <class T>
__global__ __launch_bounds__(INDEXER_THREADS) void round_kernel(T *to, const float *sums, size_t n, size_t part,
                                                                int parts)
{
    const size_t i = (size_t)blockIdx.x * INDEXER_THREADS + threadIdx.x;
    if (i >= n) return;
    const float *from = sums + i / part * parts * part + i % part;
    float sum = 0;
    for (int p = 0; p < parts; p++) sum += from[p * part];
    to[i] = pb_from_f32<T>(sum);
}
template <class T> pb_status round_sums(pb_ctx *ctx, const pb_indexer_bwd_args &a, const float *sums, int parts)
{
    const size_t part = (size_t)a.x.G * a.x.D, n = a.x.B * part;
    return indexer_launch(ctx, "indexer bwd, round", round_kernel<T>, (n + INDEXER_THREADS - 1) / INDEXER_THREADS, 0,
                          (T *)a.dk, sums, n, part, parts);
}
} // namespace

pb_status pb_indexer_clear_sums(pb_ctx *ctx, float *sums, size_t n)
{
    return indexer_launch(ctx, "indexer bwd, clear", clear_kernel, (n + INDEXER_THREADS - 1) / INDEXER_THREADS, 0, sums,
                          n);
}

pb_status pb_indexer_round_sums(pb_ctx *ctx, const pb_indexer_bwd_args *a, const float *sums, int parts)
{
    return PB_CUDA_BY_DTYPE(pb_indexer_dk_dtype(a), round_sums, ctx, *a, sums, parts);
}

bool pb_indexer_bwd_mma_takes(const pb_indexer_bwd_args *a)
{
    return pb_indexer_mma_takes(&a->x) && (uintptr_t)a->dq % 4 == 0;
}

pb_status pb_indexer_bwd_mma(pb_ctx *ctx, const pb_indexer_bwd_args *a, float *sums, int parts, bool ordered)
{
    return ordered ? by_heads<true>(ctx, *a, sums, parts) : by_heads<false>(ctx, *a, sums, parts);
}
