/* attention_mma.cu - attention with mma.sync on sm_80 and later: bf16, D up to 128.
 *
 * Forward: a CTA of four warps computes 64 queries of one head, 16 per warp. Keys and values pass through shared memory
 * in tiles with two stages. The weights of a tile go from accumulator to operand within registers (FlashAttention-2,
 * Dao 2023, arXiv:2307.08691). Backward: three kernels without atomics. The first computes delta; the second dk and dv,
 * with 64 keys per CTA and a loop over the queries of the whole group; the third dq, with 64 queries per CTA. Scores
 * are computed twice, which costs 7/5 of the products and makes the result deterministic.
 *
 * Shared memory: rows of DP elements (D rounded up, zeros from D on) in chunks of 16 bytes. Chunk c of row r is at c ^
 * f(r), so that eight rows of one chunk column are in different banks. */
#include "kernels/attention/attention_impls.cuh"
#include "kernels/attention/fragments.cuh"

namespace
{
constexpr int THREADS = 128, OWN = 64; /* four warps with 16 rows each */

template <int DP> __device__ inline bf16 *chunk(bf16 *tile, int row, int c)
{
    const int f = DP % 64 == 0 ? row & 7 : (row >> 1) & 3;
    return tile + row * DP + ((c ^ f) << 3);
}

/* Starts to copy rows r0 .. r0+ROWS-1 of `src`, tokens ld apart. Rows outside [lo, hi) and columns from D on are set to
 * 0 without reading. */
template <int DP, int ROWS>
__device__ inline void load_tile(bf16 *tile, const bf16 *src, size_t ld, int r0, int lo, int hi, int D)
{
    constexpr int CHUNKS = DP / 8;
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int r = i / CHUNKS, c = i % CHUNKS, row = r0 + r;
        const bool there = row >= lo && row < hi && c * 8 < D;
        copy_async(chunk<DP>(tile, r, c), there ? src + row * ld + c * 8 : src, there);
    }
}

/* Computes c = A B^T. A: rows [a0, a0+16) of `a`; B: the first NT*8 rows of `b`. */
template <int DP, int NT> __device__ inline void dot_rows(float (&c)[NT][4], bf16 *a, int a0, bf16 *b)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < NT; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
    for (int k = 0; k < DP / 16; k++) {
        uint32_t x[4], y[4];
        pb_ldmatrix(x, chunk<DP>(a, a0 + (lane & 15), 2 * k + (lane >> 4)));
#pragma unroll
        for (int n = 0; n < NT / 2; n++) {
            pb_ldmatrix(y, chunk<DP>(b, n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * k + ((lane >> 3) & 1)));
            pb_mma(c[2 * n], x, y[0], y[1]);
            pb_mma(c[2 * n + 1], x, y[2], y[3]);
        }
    }
}

/* Computes out += p (16 x NT*8) times the NT*8 rows of `z`. */
template <int DP, int NT>
__device__ inline void add_weighted_rows(float (&out)[DP / 8][4], const float (&p)[NT][4], bf16 *z)
{
    const int lane = threadIdx.x % 32;
    uint32_t a[NT / 2][4], y[4];
    as_operand<NT>(a, p);
#pragma unroll
    for (int k = 0; k < NT / 2; k++)
#pragma unroll
        for (int d = 0; d < DP / 16; d++) {
            pb_ldmatrix_trans(y, chunk<DP>(z, k * 16 + (lane & 15), 2 * d + (lane >> 4)));
            pb_mma(out[2 * d], a[k], y[0], y[1]);
            pb_mma(out[2 * d + 1], a[k], y[2], y[3]);
        }
}

template <int NT> __device__ inline void clear(float (&c)[NT][4])
{
#pragma unroll
    for (int n = 0; n < NT; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

/* Returns the row that accumulator row r (0 or 1) of this lane holds, where i0 is the first row of the CTA's tile. */
__device__ inline int lane_row(int i0, int r) { return i0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r; }

/* The work of a CTA: batch row, head, and the first row i0 of its tile. The tile varies slowest over the CTAs, so that
 * heads that share keys run at the same time. `late`: the last tiles start first. This is for tiles of queries, of
 * which the last take longest under a causal mask. */
struct cta_work {
    int b, head, i0;
};
__device__ inline cta_work work_of_cta(int heads, int B, int tiles, bool late)
{
    const int n = blockIdx.x / (heads * B), bh = blockIdx.x % (heads * B);
    return {bh / heads, bh % heads, (late ? tiles - 1 - n : n) * OWN};
}

/* ---- forward pass -------------------------------------------------------------------------------------------- */

constexpr int fwd_keys = 64;
template <int DP> constexpr size_t fwd_smem = (size_t)(OWN + 4 * fwd_keys) * DP * sizeof(bf16);

template <int DP> __global__ __launch_bounds__(THREADS) void fwd_kernel(const pb_attention_fwd_args a)
{
    extern __shared__ __align__(128) unsigned char smem[];
    constexpr int N = fwd_keys, NT = N / 8;
    bf16 *const qs = reinterpret_cast<bf16 *>(smem), *const kvs = qs + OWN * DP; /* K, V, K, V */
    const cta_work own = work_of_cta(a.H, a.B, (a.S + OWN - 1) / OWN, true);
    const int kv = own.head / (a.H / a.K);
    const row_shape shape = shape_of(a);
    const size_t row = (size_t)own.b * a.S, key = (size_t)own.b * shape.N;
    const bf16 *q = (const bf16 *)a.q + row * a.ldq + (size_t)own.head * a.D;
    const bf16 *k = (const bf16 *)a.k + key * a.ldk + (size_t)kv * a.D;
    const bf16 *v = (const bf16 *)a.v + key * a.ldv + (size_t)kv * a.D;
    const int32_t *start = a.start ? a.start + row : NULL;
    const key_range range = keys_of_tile<OWN>(start, own.i0, shape);
    const keys seen[2] = {keys_of(start, lane_row(own.i0, 0), shape), keys_of(start, lane_row(own.i0, 1), shape)};
    const float sl = a.scale * LOG2E;
    float o[DP / 8][4], s[NT][4], keep[2];
    softmax_rows st = {{-INFINITY, -INFINITY}, {0, 0}};
    clear<DP / 8>(o);
    load_tile<DP, OWN>(qs, q, a.ldq, own.i0, 0, a.S, a.D);
    load_tile<DP, N>(kvs, k, a.ldk, range.lo, range.lo, range.hi, a.D);
    load_tile<DP, N>(kvs + N * DP, v, a.ldv, range.lo, range.lo, range.hi, a.D);
    copy_commit();
    int stage = 0;
    for (int j0 = range.lo; j0 < range.hi; j0 += N, stage ^= 1) {
        bf16 *const ks = kvs + stage * 2 * N * DP, *const vs = ks + N * DP;
        if (j0 + N < range.hi) {
            bf16 *const next = kvs + (stage ^ 1) * 2 * N * DP;
            load_tile<DP, N>(next, k, a.ldk, j0 + N, range.lo, range.hi, a.D);
            load_tile<DP, N>(next + N * DP, v, a.ldv, j0 + N, range.lo, range.hi, a.D);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        dot_rows<DP, NT>(s, qs, threadIdx.x / 32 * 16, ks);
        if (j0 < range.solid_lo || j0 + N > range.solid_hi) {
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int j = j0 + n * 8 + threadIdx.x % 4 * 2 + (e & 1);
                    if (j < seen[e >> 1].from || j >= seen[e >> 1].to) s[n][e] = -INFINITY;
                }
        }
        softmax_tile<NT>(s, st, sl, keep);
#pragma unroll
        for (int n = 0; n < DP / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[n][e] *= keep[e >> 1];
        add_weighted_rows<DP, NT>(o, s, vs);
        __syncthreads();
    }
    copy_wait<0>();
    float lse[2], f[2];
    bf16 *to[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = lane_row(own.i0, r);
        f[r] = softmax_end(st, r, a.scale, lse[r]);
        to[r] = i < a.S ? (bf16 *)a.o + (row + i) * a.ldo + (size_t)own.head * a.D : NULL;
        if (i < a.S && threadIdx.x % 4 == 0) a.lse[((size_t)own.b * a.H + own.head) * a.S + i] = lse[r];
    }
    store_rows<DP / 8>(o, f[0], f[1], to[0], to[1], a.D);
}

/* ---- backward pass ------------------------------------------------------------------------------------------- */

/* Rows per tile that the inner loop of the backward pass loads: fewer at large D, where the CTA's own tile fills the
 * registers. */
template <int DP> constexpr int passing = DP > 64 ? 32 : 64;

/* One stage of dkv_kernel: a tile of queries. */
template <int DP> struct query_stage {
    static constexpr int M = passing<DP>;
    bf16 q[M * DP], dO[M * DP];
    float lse2[M], delta[M]; /* lse2: lse * log2(e), the base-2 logarithm of the sum of exponentials */
    int from[M], to[M];
};
template <int DP> struct dkv_smem {
    bf16 k[OWN * DP], v[OWN * DP];
    query_stage<DP> stage[2];
};

/* Returns the number of the next tile of queries, from tile n on, that attends to a key in [j0, j0+OWN); `total` if
 * none does. Tiles are numbered over all query heads that share the key head, `tiles` per head. The first `first` tiles
 * of each head are masked completely. */
template <int M>
__device__ inline int next_tile(const pb_attention_bwd_args &a, const int32_t *start, int n, int j0, int first,
                                int tiles, int total)
{
    for (; n < total; n++) {
        const int m = n % tiles;
        if (m < first) continue;
        if (!start) break;
        const key_range r = keys_of_tile<M>(start, m * M, shape_of(a));
        if (r.lo < j0 + OWN && r.hi > j0) break;
    }
    return n;
}

template <int DP>
__device__ inline void load_queries(query_stage<DP> &to, const pb_attention_bwd_args &a, const float *delta,
                                    const int32_t *start, int b, int h, int i0)
{
    constexpr int M = passing<DP>;
    const size_t row = (size_t)b * a.S, head = (size_t)h * a.D, stat = ((size_t)b * a.H + h) * a.S;
    load_tile<DP, M>(to.q, (const bf16 *)a.q + row * a.ldq + head, a.ldq, i0, 0, a.S, a.D);
    load_tile<DP, M>(to.dO, (const bf16 *)a.dO + row * a.lddo + head, a.lddo, i0, 0, a.S, a.D);
    if (threadIdx.x < M) {
        const int i = i0 + threadIdx.x;
        const keys k = keys_of(start, i, shape_of(a));
        to.lse2[threadIdx.x] = i < a.S ? a.lse[stat + i] * LOG2E : 0;
        to.delta[threadIdx.x] = i < a.S ? delta[stat + i] : 0;
        to.from[threadIdx.x] = k.from, to.to[threadIdx.x] = k.to;
    }
}

/* Replaces the unscaled scores in s by softmax weights. Rows are keys, columns are queries. */
template <int DP>
__device__ inline void weights_of_keys(float (&s)[passing<DP> / 8][4], const query_stage<DP> &st, float sl, int j0)
{
#pragma unroll
    for (int n = 0; n < passing<DP> / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = n * 8 + threadIdx.x % 4 * 2 + (e & 1), j = lane_row(j0, e >> 1);
            const float p = pb_exp2_fast(s[n][e] * sl - st.lse2[i]);
            s[n][e] = j >= st.from[i] && j < st.to[i] ? p : 0;
        }
}

/* Stores f * out, the accumulators of the tile from row j0 on, to the rows of `to`, ld elements apart. Rows from n on
 * do not exist. */
template <int DP, class G>
__device__ inline void store_keys(const float (&out)[DP / 8][4], float f, G *to, size_t ld, int j0, int n, int D)
{
    const int j = lane_row(j0, 0), j8 = j + 8;
    store_rows<DP / 8>(out, f, f, j < n ? to + j * ld : NULL, j8 < n ? to + j8 * ld : NULL, D);
}

/* G: dtype of dk and dv. */
template <int DP, class G>
__global__ __launch_bounds__(THREADS) void dkv_kernel(const pb_attention_bwd_args a, const float *delta)
{
    extern __shared__ __align__(128) unsigned char smem[];
    constexpr int M = passing<DP>, NT = M / 8;
    dkv_smem<DP> &sm = *reinterpret_cast<dkv_smem<DP> *>(smem);
    const int N = shape_of(a).N;
    const cta_work own = work_of_cta(a.K, a.B, (N + OWN - 1) / OWN, false);
    const int tiles = (a.S + M - 1) / M, group = a.H / a.K, total = tiles * group, j0 = own.i0;
    const int first = a.causal ? max(j0 - (N - a.S), 0) / M : 0;
    const size_t row = (size_t)own.b * a.S, key = (size_t)own.b * N, head = (size_t)own.head * a.D;
    const int32_t *start = a.start ? a.start + row : NULL;
    const float sl = a.scale * LOG2E;
    float dk[DP / 8][4], dv[DP / 8][4], s[NT][4], dp[NT][4];
    clear<DP / 8>(dk), clear<DP / 8>(dv);
    int n = next_tile<M>(a, start, 0, j0, first, tiles, total), stage = 0;
    load_tile<DP, OWN>(sm.k, (const bf16 *)a.k + key * a.ldk + head, a.ldk, j0, 0, N, a.D);
    load_tile<DP, OWN>(sm.v, (const bf16 *)a.v + key * a.ldv + head, a.ldv, j0, 0, N, a.D);
    if (n < total) load_queries<DP>(sm.stage[0], a, delta, start, own.b, own.head * group + n / tiles, n % tiles * M);
    copy_commit();
    for (; n < total; stage ^= 1) {
        query_stage<DP> &st = sm.stage[stage];
        n = next_tile<M>(a, start, n + 1, j0, first, tiles, total);
        if (n < total)
            load_queries<DP>(sm.stage[stage ^ 1], a, delta, start, own.b, own.head * group + n / tiles, n % tiles * M);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        dot_rows<DP, NT>(s, sm.k, threadIdx.x / 32 * 16, st.q);
        weights_of_keys<DP>(s, st, sl, j0);
        add_weighted_rows<DP, NT>(dv, s, st.dO);
        dot_rows<DP, NT>(dp, sm.v, threadIdx.x / 32 * 16, st.dO);
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[t][e] *= dp[t][e] - st.delta[t * 8 + threadIdx.x % 4 * 2 + (e & 1)];
        add_weighted_rows<DP, NT>(dk, s, st.q);
        __syncthreads();
    }
    copy_wait<0>();
    store_keys<DP, G>(dk, a.scale, (G *)a.dk + key * a.lddk + head, a.lddk, j0, N, a.D);
    store_keys<DP, G>(dv, 1, (G *)a.dv + key * a.lddv + head, a.lddv, j0, N, a.D);
}

template <int DP> struct dq_smem {
    bf16 q[OWN * DP], dO[OWN * DP], kv[2][2][passing<DP> * DP];
};

template <int DP>
__global__ __launch_bounds__(THREADS) void dq_kernel(const pb_attention_bwd_args a, const float *delta)
{
    extern __shared__ __align__(128) unsigned char smem[];
    constexpr int N = passing<DP>, NT = N / 8;
    dq_smem<DP> &sm = *reinterpret_cast<dq_smem<DP> *>(smem);
    const cta_work own = work_of_cta(a.H, a.B, (a.S + OWN - 1) / OWN, true);
    const row_shape shape = shape_of(a);
    const size_t row = (size_t)own.b * a.S, key = (size_t)own.b * shape.N, head = (size_t)own.head * a.D;
    const size_t kv = (size_t)(own.head / (a.H / a.K)) * a.D, stat = ((size_t)own.b * a.H + own.head) * a.S;
    const bf16 *k = (const bf16 *)a.k + key * a.ldk + kv, *v = (const bf16 *)a.v + key * a.ldv + kv;
    const int32_t *start = a.start ? a.start + row : NULL;
    const key_range range = keys_of_tile<OWN>(start, own.i0, shape);
    const float sl = a.scale * LOG2E;
    keys seen[2];
    float lse2[2], del[2], dq[DP / 8][4], s[NT][4], dp[NT][4];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = lane_row(own.i0, r);
        seen[r] = keys_of(start, i, shape);
        lse2[r] = i < a.S ? a.lse[stat + i] * LOG2E : 0;
        del[r] = i < a.S ? delta[stat + i] : 0;
    }
    clear<DP / 8>(dq);
    load_tile<DP, OWN>(sm.q, (const bf16 *)a.q + row * a.ldq + head, a.ldq, own.i0, 0, a.S, a.D);
    load_tile<DP, OWN>(sm.dO, (const bf16 *)a.dO + row * a.lddo + head, a.lddo, own.i0, 0, a.S, a.D);
    load_tile<DP, N>(sm.kv[0][0], k, a.ldk, range.lo, range.lo, range.hi, a.D);
    load_tile<DP, N>(sm.kv[0][1], v, a.ldv, range.lo, range.lo, range.hi, a.D);
    copy_commit();
    int stage = 0;
    for (int j0 = range.lo; j0 < range.hi; j0 += N, stage ^= 1) {
        bf16 *const ks = sm.kv[stage][0], *const vs = sm.kv[stage][1];
        if (j0 + N < range.hi) {
            load_tile<DP, N>(sm.kv[stage ^ 1][0], k, a.ldk, j0 + N, range.lo, range.hi, a.D);
            load_tile<DP, N>(sm.kv[stage ^ 1][1], v, a.ldv, j0 + N, range.lo, range.hi, a.D);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        dot_rows<DP, NT>(s, sm.q, threadIdx.x / 32 * 16, ks);
        dot_rows<DP, NT>(dp, sm.dO, threadIdx.x / 32 * 16, vs);
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int j = j0 + n * 8 + threadIdx.x % 4 * 2 + (e & 1), r = e >> 1;
                const float ds = pb_exp2_fast(s[n][e] * sl - lse2[r]) * (dp[n][e] - del[r]);
                s[n][e] = j >= seen[r].from && j < seen[r].to ? ds : 0;
            }
        add_weighted_rows<DP, NT>(dq, s, ks);
        __syncthreads();
    }
    copy_wait<0>();
    const int i = lane_row(own.i0, 0), i8 = i + 8;
    bf16 *const to = (bf16 *)a.dq + row * a.lddq + head;
    store_rows<DP / 8>(dq, a.scale, a.scale, i < a.S ? to + i * a.lddq : NULL, i8 < a.S ? to + i8 * a.lddq : NULL, a.D);
}

/* ---- host functions that launch the kernels ------------------------------------------------------------------ */

static_assert(fwd_smem<128> <= PB_GPU_LEAST_SHARED && sizeof(dkv_smem<128>) <= PB_GPU_LEAST_SHARED &&
                  sizeof(dq_smem<128>) <= PB_GPU_LEAST_SHARED,
              "the kernels must fit every GPU");

template <int DP> pb_status fwd_launch(pb_ctx *ctx, const pb_attention_fwd_args &a)
{
    PB_TRY(pb_cuda_allow_shared(fwd_kernel<DP>, fwd_smem<DP>));
    const unsigned blocks = (unsigned)((a.S + OWN - 1) / OWN * a.H * a.B);
    fwd_kernel<DP><<<blocks, THREADS, fwd_smem<DP>, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "attention_fwd mma");
}

template <int DP, class G> pb_status dkv_launch(pb_ctx *ctx, const pb_attention_bwd_args &a, const float *delta)
{
    PB_TRY(pb_cuda_allow_shared(dkv_kernel<DP, G>, sizeof(dkv_smem<DP>)));
    const unsigned blocks = (unsigned)((pb_attention_bwd_keys(&a) + OWN - 1) / OWN * a.B * a.K);
    dkv_kernel<DP, G><<<blocks, THREADS, sizeof(dkv_smem<DP>), pb_cuda_stream(ctx)>>>(a, delta);
    return pb_cuda_launched(ctx, "attention_bwd mma, dk and dv");
}

template <int DP> pb_status bwd_launch(pb_ctx *ctx, const pb_attention_bwd_args &a, const float *delta)
{
    PB_TRY(a.wide ? (dkv_launch<DP, float>(ctx, a, delta)) : (dkv_launch<DP, bf16>(ctx, a, delta)));
    PB_TRY(pb_cuda_allow_shared(dq_kernel<DP>, sizeof(dq_smem<DP>)));
    const unsigned tiles = (unsigned)((a.S + OWN - 1) / OWN * a.B);
    dq_kernel<DP><<<tiles * a.H, THREADS, sizeof(dq_smem<DP>), pb_cuda_stream(ctx)>>>(a, delta);
    return pb_cuda_launched(ctx, "attention_bwd mma, dq");
}
} // namespace

pb_status pb_attention_fwd_mma(pb_ctx *ctx, const void *args)
{
    const pb_attention_fwd_args a = with_keys(*(const pb_attention_fwd_args *)args);
    return a.D <= 32   ? fwd_launch<32>(ctx, a)
           : a.D <= 64 ? fwd_launch<64>(ctx, a)
           : a.D <= 96 ? fwd_launch<96>(ctx, a)
                       : fwd_launch<128>(ctx, a);
}

pb_status pb_attention_bwd_mma(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args a = with_keys(*(const pb_attention_bwd_args *)args);
    float *delta = (float *)ctx->scratch; /* [B,H,S] */
    PB_TRY(pb_attention_delta_cuda(ctx, &a, delta));
    return a.D <= 32   ? bwd_launch<32>(ctx, a, delta)
           : a.D <= 64 ? bwd_launch<64>(ctx, a, delta)
           : a.D <= 96 ? bwd_launch<96>(ctx, a, delta)
                       : bwd_launch<128>(ctx, a, delta);
}
