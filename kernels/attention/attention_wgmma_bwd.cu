/* attention_wgmma_bwd.cu - attention backward on the tensor cores of sm_90a, bf16, D 64 and 128 (the plan of
 * FlashAttention-3, Shah et al. 2024, arXiv:2407.08608).
 *
 * A block owns 128 keys, 64 a consumer warpgroup, and passes over the queries of the whole group in tiles, so that dk
 * and dv stay in its registers: no atomics for them. Scores stand with keys down: the weights of a tile go from
 * accumulator to operand for dv, ds likewise for dk, and once through shared memory for dq. One warp loads with the
 * tensor engine, another adds the tiles of dq to f32 sums in memory, 32 KB at a time. These sums lie as the
 * accumulators do: the float4 of thread t, column tile n and warpgroup w of a tile at (8w + n) * 128 + t. A kernel
 * before computes delta and lse per tile, a kernel behind rounds dq.
 *
 * Blocks add in any order (wgmma), or per tile of queries in the order of their keys (wgmma_ordered): the same bits
 * every time, for some waiting. */
#include "kernels/attention/attention_impls.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/core/tensor_map.cuh"
#include "kernels/core/wgmma.cuh"

namespace
{
enum { KEYS = 128, STAGES = 2, CONSUMERS = 256, CONSUMER_WARPS = 8, THREADS = 384 };
constexpr int DQ_TILE = 64 * 128; /* elements, whatever D */

template <int D> constexpr int QUERIES = DQ_TILE / D;

/* What is known of a tile of queries: lse in powers of two (+inf where nothing is seen, or past S: every weight is 0),
 * delta, and the first key seen. */
template <int D> struct query_stats {
    float lse2[QUERIES<D>], delta[QUERIES<D>];
    int from[QUERIES<D>];
};

/* ctx->scratch. Tile m of head h of batch row b is number (b*H + h) * tiles + m. */
template <int D> struct scratch {
    float *dq; /* [B*H*tiles][DQ_TILE] */
    query_stats<D> *stats;
    int *turns; /* how many blocks have added to a tile; behind the last tile, how many blocks have begun */
    int tiles, count;
};
template <int D> scratch<D> lay_out(void *base, int B, int H, int S)
{
    const int tiles = (S + QUERIES<D> - 1) / QUERIES<D>, count = tiles * B * H;
    float *dq = (float *)base;
    query_stats<D> *stats = (query_stats<D> *)(dq + (size_t)count * DQ_TILE);
    return {dq, stats, (int *)(stats + count), tiles, count};
}

struct maps {
    CUtensorMap q, dO, k, v;
};

template <int D> struct alignas(1024) shared {
    bf16 k[KEYS * D], v[KEYS * D], q[STAGES][DQ_TILE], dO[STAGES][DQ_TILE];
    bf16 ds[2][KEYS * QUERIES<D>]; /* keys down, 64 queries a half */
    float dq[DQ_TILE];
    query_stats<D> stats[STAGES];
    uint64_t kv_full, q_full[STAGES], q_empty[STAGES], do_full[STAGES], do_empty[STAGES], dq_full, dq_empty;
    int number; /* of this block */
};

/* ---- before: delta and lse, tile by tile ---------------------------------------------------------------------- */

template <int D>
__global__ __launch_bounds__(256) void stats_kernel(const pb_attention_bwd_args a, const scratch<D> room)
{
    constexpr int LANES = D / 8, Q = QUERIES<D>;
    const size_t id = (size_t)blockIdx.x * 256 + threadIdx.x, row = id / LANES;
    if (id <= room.count) room.turns[id] = 0;
    const int tile = (int)min(row / Q, (size_t)room.count - 1), at = (int)(row % Q);
    const int bh = tile / room.tiles, i = tile % room.tiles * Q + at, b = bh / a.H, h = bh % a.H;
    const size_t token = (size_t)b * a.S + i;
    float x[8] = {}, y[8] = {}, sum = 0;
    if (i < a.S) {
        pb_load_vec<bf16, 8>((const bf16 *)a.dO + token * a.lddo + h * D + threadIdx.x % LANES * 8, x);
        pb_load_vec<bf16, 8>((const bf16 *)a.o + token * a.ldo + h * D + threadIdx.x % LANES * 8, y);
    }
#pragma unroll
    for (int d = 0; d < 8; d++) sum = fmaf(x[d], y[d], sum);
#pragma unroll
    for (int d = LANES / 2; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % LANES || row / Q >= (size_t)room.count) return;
    query_stats<D> &to = room.stats[tile];
    const float lse = i < a.S ? a.lse[(size_t)bh * a.S + i] : -INFINITY;
    to.lse2[at] = lse == -INFINITY ? INFINITY : lse * LOG2E;
    to.delta[at] = sum;
    to.from[at] = a.start && i < a.S ? max(a.start[token], 0) : 0;
}

/* ---- behind: dq ------------------------------------------------------------------------------------------------ */

/* A block rounds half a tile of sums; a thread eight columns of two rows. */
template <int D> __global__ __launch_bounds__(256) void dq_kernel(const pb_attention_bwd_args a, const scratch<D> room)
{
    const int tile = blockIdx.x / 2, w = blockIdx.x % 2, n = threadIdx.x % 8, warp = threadIdx.x / 64;
    const int g = threadIdx.x / 8 % 8, bh = tile / room.tiles, i0 = tile % room.tiles * QUERIES<D>, b = bh / a.H;
    const int i = i0 + (D == 64 ? w * 64 : 0) + warp * 16 + g, col = (D == 64 ? 0 : w * 64) + n * 8;
    const key_range r = keys_of_tile<QUERIES<D>>(a.start ? a.start + (size_t)b * a.S : NULL, i0, a.S, a.causal);
    float low[8] = {}, high[8] = {};
    const float4 *from = (const float4 *)(room.dq + (size_t)tile * DQ_TILE) + (w * 8 + n) * 128 + warp * 32 + g * 4;
#pragma unroll
    for (int t = 0; t < 4 && r.lo < r.hi; t++) { /* nobody has added to a tile that sees nothing */
        const float4 x = from[t];
        low[2 * t] = a.scale * x.x, low[2 * t + 1] = a.scale * x.y;
        high[2 * t] = a.scale * x.z, high[2 * t + 1] = a.scale * x.w;
    }
    bf16 *to = (bf16 *)a.dq + ((size_t)b * a.S + i) * a.lddq + (size_t)(bh % a.H) * D + col;
    if (i < a.S) pb_store_vec<bf16, 8>(to, low);
    if (i + 8 < a.S) pb_store_vec<bf16, 8>(to + 8 * a.lddq, high);
}

#ifdef PB_SM90_CODE
/* ---- between: who does what ------------------------------------------------------------------------------------ */

/* This block's keys. */
struct owned {
    int b, head, j0;
};
/* Blocks with the most to do first: under a causal mask those of the first keys. */
__device__ inline owned owned_keys(int number, const pb_attention_bwd_args &a)
{
    const int bk = number % (a.B * a.K);
    return {bk / a.K, bk % a.K, number / (a.B * a.K) * KEYS};
}

/* A tile of queries on the way over the group's heads, and whom it sees. All roles walk alike. */
struct cursor {
    int h, m;
    key_range seen;
};
template <int D> __device__ inline int first_tile(const owned &own, const pb_attention_bwd_args &a)
{
    return a.causal ? own.j0 / QUERIES<D> : 0;
}
template <int D> __device__ inline cursor before_first(const owned &own, const pb_attention_bwd_args &a)
{
    return {0, first_tile<D>(own, a) - 1, {0, 0, 0, 0}};
}
/* To the next tile that sees a key of this block; false behind the last. The whole warp takes part. */
template <int D> __device__ inline bool advance(cursor &c, const owned &own, const pb_attention_bwd_args &a, int tiles)
{
    const int32_t *start = a.start ? a.start + (size_t)own.b * a.S : NULL;
    for (;;) {
        if (++c.m == tiles) {
            c.m = first_tile<D>(own, a);
            if (++c.h == a.H / a.K) return false;
        }
        c.seen = keys_of_tile<QUERIES<D>>(start, c.m * QUERIES<D>, a.S, a.causal);
        if (c.seen.lo < own.j0 + KEYS && c.seen.hi > own.j0) return true;
    }
}
template <int D>
__device__ inline int number_of(const cursor &c, const owned &own, const pb_attention_bwd_args &a, int tiles)
{
    return (own.b * a.H + own.head * (a.H / a.K) + c.h) * tiles + c.m;
}

struct place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void next(void)
    {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

template <int D, int ROWS>
__device__ inline void load(bf16 *to, const CUtensorMap *map, uint64_t *full, int head, int token, int b)
{
#pragma unroll
    for (int half = 0; half < D / 64; half++) tensor_load(to + half * ROWS * 64, map, full, half * 64, head, token, b);
}

template <int D>
__device__ void produce(shared<D> &sm, const maps &m, const pb_attention_bwd_args &a, const scratch<D> &room,
                        const owned &own)
{
    constexpr int Q = QUERIES<D>, BYTES = DQ_TILE * (int)sizeof(bf16);
    const bool leader = threadIdx.x % 32 == 0;
    place at;
    if (leader) {
        barrier_expect(&sm.kv_full, 2 * KEYS * D * (int)sizeof(bf16));
        load<D, KEYS>(sm.k, &m.k, &sm.kv_full, own.head, own.j0, own.b);
        load<D, KEYS>(sm.v, &m.v, &sm.kv_full, own.head, own.j0, own.b);
    }
    for (cursor c = before_first<D>(own, a); advance<D>(c, own, a, room.tiles); at.next()) {
        const int s = at.stage, head = own.head * (a.H / a.K) + c.h;
        barrier_wait(&sm.q_empty[s], at.parity ^ 1);
        if (leader) {
            barrier_expect(&sm.q_full[s], BYTES + (int)sizeof(query_stats<D>));
            load<D, Q>(sm.q[s], &m.q, &sm.q_full[s], head, c.m * Q, own.b);
            bulk_load(&sm.stats[s], room.stats + number_of<D>(c, own, a, room.tiles), &sm.q_full[s],
                      sizeof(query_stats<D>));
        }
        barrier_wait(&sm.do_empty[s], at.parity ^ 1);
        if (leader) {
            barrier_expect(&sm.do_full[s], BYTES);
            load<D, Q>(sm.dO[s], &m.dO, &sm.do_full[s], head, c.m * Q, own.b);
        }
    }
}

/* Adds the tiles of dq. In order, the first block to come stores instead. */
template <int D, bool ORDERED>
__device__ void add_dq(shared<D> &sm, const pb_attention_bwd_args &a, const scratch<D> &room, const owned &own)
{
    uint32_t parity = 0;
    for (cursor c = before_first<D>(own, a); advance<D>(c, own, a, room.tiles); parity ^= 1) {
        const int number = number_of<D>(c, own, a, room.tiles), turn = (own.j0 / KEYS) - c.seen.lo / KEYS;
        float *to = room.dq + (size_t)number * DQ_TILE;
        barrier_wait(&sm.dq_full, parity);
        if (threadIdx.x % 32 == 0) {
            if (ORDERED) turn_wait(room.turns + number, turn), fence_async();
            if (ORDERED && turn == 0) bulk_store(to, sm.dq, sizeof sm.dq);
            else bulk_add(to, sm.dq, sizeof sm.dq);
            if (ORDERED) bulk_wait();
            else bulk_read_wait();
            barrier_arrive(&sm.dq_empty);
            if (ORDERED) fence_async(), __threadfence(), turn_pass(room.turns + number);
        }
        __syncwarp();
    }
}

/* ---- between: the products ------------------------------------------------------------------------------------- */

/* Starts c = x y^T, x 64 rows of a tile of KEYS and y a tile of queries. */
template <int D> __device__ inline void start_dots(float (&c)[QUERIES<D> / 8][4], factor x, factor y)
{
#pragma unroll
    for (int d = 0; d < D / 16; d++)
        wgmma<0, 0>(c, step(x, d / 4 * KEYS * 128 + d % 4 * 32), step(y, d / 4 * QUERIES<D> * 128 + d % 4 * 32), d > 0);
    wgmma_commit();
}
/* Starts c += w y, w over the tile's queries. */
template <int D>
__device__ inline void start_mix(float (&c)[D / 8][4], const uint32_t (&w)[QUERIES<D> / 16][4], factor y)
{
#pragma unroll
    for (int k = 0; k < QUERIES<D> / 16; k++) wgmma(c, w[k], step(y, k * 16 * 128));
    wgmma_commit();
}
/* Starts dq = ds^T k on this warpgroup's half: 64 queries and all columns, or all queries and 64 columns. */
__device__ inline void start_dq(float (&c)[8][4], factor ds, factor k)
{
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) wgmma<1, 1>(c, step(ds, j * 16 * 128), step(k, j * 16 * 128), j > 0);
    wgmma_commit();
}

__device__ inline void release(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* Scores, keys j0 + 8r.. down and queries i0 .. across, become weights. */
template <int D> __device__ inline void weigh(float (&s)[QUERIES<D> / 8][4], const query_stats<D> &st, float sl)
{
#pragma unroll
    for (int n = 0; n < QUERIES<D> / 8; n++) {
        const float2 lse2 = *reinterpret_cast<const float2 *>(&st.lse2[n * 8 + threadIdx.x % 4 * 2]);
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = exp2_fast(s[n][e] * sl - (e & 1 ? lse2.y : lse2.x));
    }
}
template <int D>
__device__ inline void hide(float (&p)[QUERIES<D> / 8][4], const query_stats<D> &st, const pb_attention_bwd_args &a,
                            int j, int i0)
{
#pragma unroll
    for (int n = 0; n < QUERIES<D> / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = n * 8 + threadIdx.x % 4 * 2 + (e & 1), key = j + (e >> 1) * 8;
            if (key < st.from[i] || key >= (a.causal ? i0 + i + 1 : a.S)) p[n][e] = 0;
        }
}
/* The weights s as operand p, which is there already when PACKED, and p (dp - delta) as operand ds; 16 queries at a
 * time, so that registers fall free. */
template <int D, bool PACKED>
__device__ inline void differentiate(uint32_t (&p)[QUERIES<D> / 16][4], uint32_t (&ds)[QUERIES<D> / 16][4],
                                     const float (&s)[QUERIES<D> / 8][4], const float (&dp)[QUERIES<D> / 8][4],
                                     const query_stats<D> &st)
{
#pragma unroll
    for (int k = 0; k < QUERIES<D> / 16; k++) {
        float x[2][4], y[2][4];
        uint32_t w[1][4];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float2 delta = *reinterpret_cast<const float2 *>(&st.delta[(2 * k + n) * 8 + threadIdx.x % 4 * 2]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                x[n][e] = s[2 * k + n][e];
                y[n][e] = x[n][e] * (dp[2 * k + n][e] - (e & 1 ? delta.y : delta.x));
            }
        }
        if (!PACKED) {
            as_operand<2>(w, x);
#pragma unroll
            for (int e = 0; e < 4; e++) p[k][e] = w[0][e];
        }
        as_operand<2>(w, y);
#pragma unroll
        for (int e = 0; e < 4; e++) ds[k][e] = w[0][e];
    }
}
/* ds as operand to shared memory; `key` is the row of this thread's first pair. */
template <int D> __device__ inline void share_ds(bf16 *ds, const uint32_t (&w)[QUERIES<D> / 16][4], int key)
{
#pragma unroll
    for (int k = 0; k < QUERIES<D> / 16; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = key + (e & 1) * 8, chunk = k % 4 * 2 + e / 2;
            bf16 *to = ds + k / 4 * KEYS * 64 + row * 64 + ((chunk ^ (row & 7)) << 3) + threadIdx.x % 4 * 2;
            *reinterpret_cast<uint32_t *>(to) = w[k][e];
        }
}

template <int D>
__device__ void consume(shared<D> &sm, const pb_attention_bwd_args &a, const scratch<D> &room, const owned &own)
{
    constexpr bool EARLY = D == 128; /* dv's product starts before dp is there, which takes registers */
    const int wg = warpgroup() - 1, row = wg * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const int j0 = own.j0 + wg * 64;
    constexpr uint32_t STAGE = DQ_TILE * sizeof(bf16), HALF = KEYS * 64;
    const factor k = factor_by_rows(sm.k + wg * 64 * 64), v = factor_by_rows(sm.v + wg * 64 * 64);
    const factor q = factor_by_rows(sm.q), q_across = factor_across(sm.q, QUERIES<D> * 128);
    const factor dO = factor_by_rows(sm.dO), dO_across = factor_across(sm.dO, QUERIES<D> * 128);
    const factor ds_across = factor_across(sm.ds[0] + (D == 64 ? wg * HALF : 0), 2 * HALF);
    const factor k_across = factor_across(sm.k + (D == 64 ? 0 : wg * HALF), 2 * HALF);
    const float sl = a.scale * LOG2E;
    float dk[D / 8][4], dv[D / 8][4];
    uint32_t parity = 0;
    place at;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) dk[n][e] = dv[n][e] = 0;
    barrier_wait(&sm.kv_full, 0);
    for (cursor c = before_first<D>(own, a); advance<D>(c, own, a, room.tiles); at.next(), parity ^= 1) {
        const int stage = at.stage;
        const query_stats<D> &st = sm.stats[stage];
        const bool masked = j0 < c.seen.solid_lo || j0 + 64 > c.seen.solid_hi;
        float s[QUERIES<D> / 8][4], dp[QUERIES<D> / 8][4], dq[8][4];
        uint32_t p[QUERIES<D> / 16][4], ds[QUERIES<D> / 16][4];
        barrier_wait(&sm.q_full[stage], at.parity);
        wgmma_fence();
        start_dots<D>(s, k, step(q, stage * STAGE));
        barrier_wait(&sm.do_full[stage], at.parity);
        wgmma_fence();
        start_dots<D>(dp, v, step(dO, stage * STAGE));
        wgmma_wait<1>();
        settled(s);
        weigh<D>(s, st, sl);
        if (masked) hide<D>(s, st, a, own.j0 + row, c.m * QUERIES<D>);
        if (EARLY) {
            as_operand<QUERIES<D> / 8>(p, s);
            wgmma_fence();
            start_mix<D>(dv, p, step(dO_across, stage * STAGE));
            wgmma_wait<1>();
        } else wgmma_wait<0>();
        settled(dp);
        differentiate<D, EARLY>(p, ds, s, dp, st);
        if (!EARLY) {
            wgmma_fence();
            start_mix<D>(dv, p, step(dO_across, stage * STAGE));
        }
        share_ds<D>(sm.ds[parity], ds, row); /* the other buffer is read until the next barrier */
        fence_async_shared();
        named_sync(1, CONSUMERS);
        wgmma_fence();
        start_dq(dq, step(ds_across, parity * sizeof sm.ds[0]), k_across);
        start_mix<D>(dk, ds, step(q_across, stage * STAGE));
        wgmma_wait<1>();
        settled(dq), settled(dv), settled(p);
        release(&sm.do_empty[stage]);
        barrier_wait(&sm.dq_empty, parity ^ 1);
#pragma unroll
        for (int n = 0; n < 8; n++)
            reinterpret_cast<float4 *>(sm.dq)[(wg * 8 + n) * 128 + threadIdx.x % 128] =
                make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
        fence_async_shared();
        release(&sm.dq_full);
        wgmma_wait<0>();
        settled(dk), settled(ds);
        release(&sm.q_empty[stage]);
    }
    const int j = own.j0 + row;
    const size_t token = (size_t)own.b * a.S + j;
    bf16 *gk = (bf16 *)a.dk + token * a.lddk + own.head * D, *gv = (bf16 *)a.dv + token * a.lddv + own.head * D;
    store_rows<D / 8>(dk, a.scale, a.scale, j < a.S ? gk : NULL, j + 8 < a.S ? gk + 8 * a.lddk : NULL, D);
    store_rows<D / 8>(dv, 1, 1, j < a.S ? gv : NULL, j + 8 < a.S ? gv + 8 * a.lddv : NULL, D);
}

template <int D> __device__ inline void init(shared<D> &sm)
{
    barrier_init(&sm.kv_full, 1), barrier_init(&sm.dq_full, CONSUMER_WARPS), barrier_init(&sm.dq_empty, 1);
    for (int s = 0; s < STAGES; s++) {
        barrier_init(&sm.q_full[s], 1), barrier_init(&sm.q_empty[s], CONSUMER_WARPS);
        barrier_init(&sm.do_full[s], 1), barrier_init(&sm.do_empty[s], CONSUMER_WARPS);
    }
    barrier_inits_done();
}
#endif

template <int D, bool ORDERED>
__global__ __launch_bounds__(THREADS, 1) void bwd_kernel(const __grid_constant__ maps m, const pb_attention_bwd_args a,
                                                         const scratch<D> room)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    shared<D> &sm = *reinterpret_cast<shared<D> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    if (threadIdx.x == 0) {
        init(sm);
        /* In order, a block waits for blocks of lower number only, and those have begun. */
        sm.number = ORDERED ? atomicAdd(room.turns + room.count, 1) : (int)blockIdx.x;
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<24>(); /* with 240 for the others, what 168 a thread make */
        const owned own = owned_keys(sm.number, a);
        if (threadIdx.x < 32) produce<D>(sm, m, a, room, own);
        else if (threadIdx.x < 64) add_dq<D, ORDERED>(sm, a, room, own);
    } else {
        registers_more<240>();
        const owned own = owned_keys(sm.number, a);
        consume<D>(sm, a, room, own);
    }
#endif
}

template <int D, bool ORDERED> pb_status bwd_launch(pb_ctx *ctx, const pb_attention_bwd_args &a)
{
    constexpr size_t bytes = sizeof(shared<D>) + 1024; /* the base may begin anywhere */
    const scratch<D> room = lay_out<D>(ctx->scratch, a.B, a.H, a.S);
    const unsigned blocks = (unsigned)((a.S + KEYS - 1) / KEYS * a.B * a.K);
    maps m;
    PB_TRY(tensor_map(&m.q, a.q, a.ldq, a.B, a.S, a.H, D, QUERIES<D>));
    PB_TRY(tensor_map(&m.dO, a.dO, a.lddo, a.B, a.S, a.H, D, QUERIES<D>));
    PB_TRY(tensor_map(&m.k, a.k, a.ldk, a.B, a.S, a.K, D, KEYS));
    PB_TRY(tensor_map(&m.v, a.v, a.ldv, a.B, a.S, a.K, D, KEYS));
    stats_kernel<D><<<room.count *(DQ_TILE / 8 / 256), 256, 0, pb_cuda_stream(ctx)>>>(a, room);
    PB_TRY(pb_cuda_launched(ctx, "attention_bwd wgmma, delta"));
    if (!ORDERED) {
        PB_CUDA_TRY(cudaMemsetAsync(room.dq, 0, (size_t)room.count * DQ_TILE * sizeof(float), pb_cuda_stream(ctx)));
        ctx->counts.launches++;
    }
    PB_TRY(pb_attention_smem(bwd_kernel<D, ORDERED>, bytes));
    bwd_kernel<D, ORDERED><<<blocks, THREADS, bytes, pb_cuda_stream(ctx)>>>(m, a, room);
    PB_TRY(pb_cuda_launched(ctx, "attention_bwd wgmma"));
    dq_kernel<D><<<room.count * 2, 256, 0, pb_cuda_stream(ctx)>>>(a, room);
    return pb_cuda_launched(ctx, "attention_bwd wgmma, dq");
}

template <int D> size_t workspace(const pb_attention_bwd_args &a)
{
    const size_t count = (size_t)((a.S + QUERIES<D> - 1) / QUERIES<D>)*a.B * a.H;
    return count * (DQ_TILE * sizeof(float) + sizeof(query_stats<D>) + sizeof(int)) + sizeof(int);
}
} // namespace

pb_status pb_attention_bwd_wgmma(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args &a = *(const pb_attention_bwd_args *)args;
    return a.D == 64 ? bwd_launch<64, false>(ctx, a) : bwd_launch<128, false>(ctx, a);
}

pb_status pb_attention_bwd_wgmma_ordered(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args &a = *(const pb_attention_bwd_args *)args;
    return a.D == 64 ? bwd_launch<64, true>(ctx, a) : bwd_launch<128, true>(ctx, a);
}

size_t pb_attention_bwd_wgmma_workspace(const void *args)
{
    const pb_attention_bwd_args &a = *(const pb_attention_bwd_args *)args;
    return a.D == 64 ? workspace<64>(a) : workspace<128>(a);
}
