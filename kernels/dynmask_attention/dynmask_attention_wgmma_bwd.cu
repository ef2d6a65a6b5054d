/* dynmask_attention_wgmma_bwd.cu - dynamic-mask attention backward with wgmma on sm_90a: bf16, D 64 or 128,
 * deterministic.
 *
 * Kernels, in order: prepare_kernel copies the listed keys and values to consecutive rows (gather() of slots.cuh), writes
 * zeros to dk, dv and dbias, and computes lse and delta of each tile of queries; dkv_kernel computes dk, dv and dbias;
 * dq_kernel computes dq; with several parts, add_parts_kernel adds partial sums of dk, dv and dbias.
 * Scores are computed twice, which costs 7/5 of the products, and nothing is added by atomics or in an order that
 * varies.
 *
 * dkv_kernel: a CTA owns 128 slots of a list (KEYS), or one part of their work: it iterates over every `parts`-th tile
 * of queries (128 at D 64, 64 at D 128) of all query heads of the group. dq_kernel: a CTA owns 128 queries of one head
 * (DQ_ROWS) and iterates over tiles of slots (128 at D 64, 64 at D 128). Roles of both:
 *
 *   threads    warps   role          registers per thread   work
 *   0..31      0       producer      24                     lane 0 starts the TMA loads
 *   32..127    1..3    idle          24                     exit; setmaxnreg acts on whole warpgroups
 *   128..383   4..11   2 consumers   240                    warpgroup wg owns rows 64 wg .. 64 wg + 63 of the CTA's tile
 *
 *   dkv_kernel                                            dq_kernel
 *   S^T = k q^T + bias / scale     dP^T = v do^T          S = q k^T + bias / scale     dP = do v^T
 *   P^T = 2^(S^T sl - lse2)                               P = 2^(S sl - lse2)
 *   dS^T = P^T (dP^T - delta)                             dS = P (dP - delta)
 *   dv += P^T do                   dk += dS^T q           dq += dS k          (weights are register operands)
 *   dbias += the sums of the rows of dS^T
 *
 * bias / scale is in the accumulators before the product, except in dq_kernel at D 64, where adding it to S is faster.
 *
 * A query without keys must add 0 even if its do is NaN. Its weights are 0, but 0 times NaN is not. Likewise, a query
 * with NaN in q or do must not reach keys that it does not attend to. So where a tile has such queries, the consumers
 * of dkv_kernel overwrite their rows of q and do in shared memory with zeros; lse2 = NaN makes the gradients NaN where
 * the query does attend.
 *
 * Barriers ("lanes" are all 256 consumer threads):
 *
 *   mbarrier            arrivals                     waited for by   a completed phase means
 *   own_full            producer + TMA bytes         consumers       the CTA's own tiles are in shared memory (once)
 *   first_full[s]       producer + TMA bytes         consumers       first operand and its numbers are in shared memory:
 *                                                                    q and stats, or k and slots
 *   second_full[s]      producer + TMA bytes         consumers       do, or v, is in shared memory
 *   first_empty[s]      lanes, after dk, or dq       producer        the first operand may be overwritten
 *   second_empty[s]     lanes, after dv, or dP       producer        the second operand may be overwritten
 *   named barrier ROWS_CLEARED: the consumers wait for each other; rows to be cleared are zeros */
#include "kernels/attention/wgmma_bwd_tiles.cuh"
#include "kernels/dynmask_attention/trace_dv.cuh"
#include "kernels/dynmask_attention/wgmma_bwd.cuh"
#define CANARY_KERNEL "dynmask_attention_bwd wgmma, dk and dv"
#include "kernels/cuda/canary.cuh"

namespace
{
enum named_barrier { ROWS_CLEARED = 1 };
enum { PREPARE_THREADS = GATHER_THREADS };
static_assert(PREPARE_THREADS == 256, "find_tile and add_parts_kernel have 256 threads");

template <int D> struct alignas(1024) dkv_shared {
    bf16 k[KEYS * D];
    CANARY(k)
    bf16 v[KEYS * D];
    CANARY(v)
    bf16 q[STAGES][DQ_TILE];
    CANARY(q)
    bf16 dO[STAGES][DQ_TILE];
    CANARY(dO)
    slot_block slots[2];
    CANARY(slots)
    query_tile<D> queries[STAGES];
    CANARY(queries)
    barriers bar;
    CANARY(bar)
    CANARIES(7, &canary_k, &canary_v, &canary_q, &canary_dO, &canary_slots, &canary_queries, &canary_bar)
};
static_assert(offsetof(dkv_shared<64>, v) % 1024 == 0 && offsetof(dkv_shared<64>, q) % 1024 == 0 &&
                  offsetof(dkv_shared<64>, dO) % 1024 == 0 && offsetof(dkv_shared<128>, q) % 1024 == 0,
              "tiles begin where the swizzle pattern does");
static_assert(offsetof(dkv_shared<64>, slots) % 16 == 0 && offsetof(dkv_shared<64>, queries) % 16 == 0 &&
                  offsetof(dkv_shared<128>, queries) % 16 == 0 && sizeof(query_tile<128>) % 16 == 0,
              "bulk_load copies 16 bytes to 16-byte aligned addresses");

/* ---- before the products: zeros, lse and delta ------------------------------------------------------------------- */

/* Writes 0 to dk, dv and dbias of keys. Thread `id`: eight columns of one key and kv head. */
template <int D> __device__ inline void clear(const pb_dynmask_attention_bwd_args &a, size_t id)
{
    const size_t n = id / (D / 8);
    if (n >= (size_t)a.B * a.S_kv * a.K) return;
    const size_t token = n / a.K, kv = n % a.K, at = kv * D + id % (D / 8) * 8;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4 *>((bf16 *)a.dk + token * a.lddk + at) = zero;
    *reinterpret_cast<uint4 *>((bf16 *)a.dv + token * a.lddv + at) = zero;
    if (id % (D / 8) == 0) a.dbias[(token / a.S_kv * a.K + kv) * a.S_kv + token % a.S_kv] = 0;
}

/* Computes tile `n` of queries. A query without keys gets lse2 = +inf, so that its weights are 0. One whose delta is not
 * finite gets lse2 = NaN; one with NaN in q has it already. Both get delta 0: dS is 0 times (dP - delta) where a query
 * does not attend to a slot, and 0 times NaN is NaN. All threads of the CTA must call it. */
template <int D>
__device__ inline void find_tile(const pb_attention_bwd_args &a, query_tile<D> *queries, int tiles, int n)
{
    query_tile<D> &to = queries[n];
    const int bh = n / tiles, i0 = n % tiles * QUERIES<D>, t = threadIdx.x;
#pragma unroll
    for (int u = 0; u < DQ_TILE / 8; u += 256) find_stats<D>(to.stats, a, bh, i0, u + t);
    __syncthreads();
    bool clear = false;
    if (t < QUERIES<D> && i0 + t < a.S) {
        if (to.stats.lse2[t] != INFINITY && !isfinite(to.stats.delta[t])) to.stats.lse2[t] = NAN;
        clear = !(to.stats.lse2[t] < INFINITY);
        if (clear) to.stats.delta[t] = 0;
    }
    const int any = __syncthreads_or(clear);
    if (t == 0) to.clear = any != 0;
}

/* How many CTAs of prepare_kernel do which part. In one kernel the parts, which do not depend on each other, use the
 * memory bandwidth together. */
struct prepare_ctas {
    unsigned tiles, gathers, clears;
};
template <int D>
__global__ __launch_bounds__(PREPARE_THREADS) void prepare_kernel(const pb_dynmask_attention_bwd_args a,
                                                                  const workspace<D> room, const prepare_ctas ctas)
{
    const unsigned n = blockIdx.x;
    if (n < ctas.tiles) {
        pb_attention_bwd_args dense = {};
        dense.dO = a.dO, dense.o = a.o, dense.lse = a.lse, dense.S = a.S, dense.H = a.H;
        dense.lddo = a.lddo, dense.ldo = a.ldo;
        find_tile<D>(dense, room.queries, room.tiles, (int)n);
    } else if (n < ctas.tiles + ctas.gathers) gather<D>(list_args_of(a), room.lists, (int)(n - ctas.tiles));
    else clear<D>(a, (size_t)(n - ctas.tiles - ctas.gathers) * PREPARE_THREADS + threadIdx.x);
}

/* ---- dk, dv and dbias -------------------------------------------------------------------------------------------- */

#ifdef PB_SM90_CODE
template <int D>
__device__ void dkv_produce(dkv_shared<D> &sm, const bwd_maps &m, const pb_dynmask_attention_bwd_args &a,
                            const workspace<D> &room, const dkv_work &own)
{
    constexpr int Q = QUERIES<D>;
    const bool leader = threadIdx.x % 32 == 0;
    ring_position at;
    if (leader) {
        barrier_expect(&sm.bar.own_full, sizeof sm.k + sizeof sm.v + sizeof sm.slots);
        load_tile<D, KEYS>(sm.k, &m.k, &sm.bar.own_full, 0, own.block * KEYS, own.list);
        load_tile<D, KEYS>(sm.v, &m.v, &sm.bar.own_full, 0, own.block * KEYS, own.list);
        bulk_load(sm.slots, room.lists.block + ((size_t)own.list * room.blocks + own.block) * 2, &sm.bar.own_full,
                  sizeof sm.slots);
    }
    for (int n = own.part; n < own.total; n += room.parts, at.next()) {
        const int s = at.stage, h = own.h + n / own.count, tile = own.m + n % own.count;
        barrier_wait(&sm.bar.first_empty[s], at.parity ^ 1);
        if (leader) {
            barrier_expect(&sm.bar.first_full[s], sizeof sm.q[0] + sizeof sm.queries[0]);
            load_tile<D, Q>(sm.q[s], &m.q, &sm.bar.first_full[s], h, tile * Q, own.b);
            bulk_load(&sm.queries[s], room.queries + (own.b * a.H + h) * room.tiles + tile, &sm.bar.first_full[s],
                      sizeof sm.queries[0]);
        }
        barrier_wait(&sm.bar.second_empty[s], at.parity ^ 1);
        if (leader) {
            barrier_expect(&sm.bar.second_full[s], sizeof sm.dO[0]);
            load_tile<D, Q>(sm.dO[s], &m.dO, &sm.bar.second_full[s], h, tile * Q, own.b);
        }
        __syncwarp();
    }
}

/* Overwrites with zeros the rows, in both tiles, of queries without keys or with NaN, and waits until all consumers
 * have. */
template <int D> __device__ inline void clear_rows(bf16 *q, bf16 *dO, const query_tile<D> &queries)
{
    constexpr int Q = QUERIES<D>;
    for (int n = threadIdx.x - 128; n < Q * D / 8; n += CONSUMERS) {
        const int row = n % Q, at = n / Q / 8 * Q * 64 + row * 64 + n / Q % 8 * 8;
        if (queries.stats.lse2[row] < INFINITY) continue;
        *reinterpret_cast<uint4 *>(q + at) = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4 *>(dO + at) = make_uint4(0, 0, 0, 0);
    }
    fence_async_shared();
    named_sync(ROWS_CLEARED, CONSUMERS);
}

/* Sets accumulators to the biases of their rows; `bias`: of this thread's two rows. */
template <int N> __device__ inline void fill_rows(float (&s)[N / 8][4], const float (&bias)[2])
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = bias[e >> 1];
}
/* Turns scores S^T into weights P^T. Rows are slots, columns are queries. */
template <int D> __device__ inline void weigh(float (&s)[QUERIES<D> / 8][4], const query_stats<D> &st, float sl)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
#pragma unroll
    for (int n = 0; n < QUERIES<D> / 8; n++) {
        const float2 lse2 = *reinterpret_cast<const float2 *>(&st.lse2[n * 8 + col]);
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = pb_exp2_fast(fmaf(s[n][e], sl, e & 1 ? -lse2.y : -lse2.x));
    }
}
/* Sets the weights to 0 where a query does not attend to a slot. i0: first query; `row`: this thread's first slot. */
template <int D>
__device__ inline void mask_weights(float (&p)[QUERIES<D> / 8][4], const slot_block &slots, int row, int i0)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
    const int from[2] = {slots.from[row], slots.from[row + 8]}, to[2] = {slots.to[row], slots.to[row + 8]};
    if (all_attend(slots.range, i0, QUERIES<D>)) return;
#pragma unroll
    for (int n = 0; n < QUERIES<D> / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = i0 + n * 8 + col + (e & 1);
            if (i < from[e >> 1] || i >= to[e >> 1]) p[n][e] = 0;
        }
}

/* Stores dk, dv and dbias of this warpgroup's slots: to the rows of their keys, or as partial sums. `row`: row of this
 * thread's first pair of elements. */
template <int D>
__device__ inline void store_dkv(const float (&dk)[D / 8][4], const float (&dv)[D / 8][4], float (&dbias)[2],
                                 const slot_block &slots, const pb_dynmask_attention_bwd_args &a,
                                 const workspace<D> &room, const dkv_work &own, int wg, int row)
{
    bf16 *gk[2] = {NULL, NULL}, *gv[2] = {NULL, NULL};
    const bool first = threadIdx.x % 4 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        dbias[r] += __shfl_xor_sync(0xffffffffu, dbias[r], 1);
        dbias[r] += __shfl_xor_sync(0xffffffffu, dbias[r], 2);
    }
    if (room.parts > 1) {
        float *to = room.dkv + (size_t)blockIdx.x * 2 * KEYS * D + wg * 64 * D;
        store_sums<D / 8>(to, dk), store_sums<D / 8>(to + KEYS * D, dv);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (first) room.dbias[(size_t)blockIdx.x * KEYS + wg * 64 + row + 8 * r] = dbias[r];
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int j = slots.key[row + 8 * r];
        if (j < 0) continue;
        const size_t token = (size_t)own.b * a.S_kv + j;
        gk[r] = (bf16 *)a.dk + token * a.lddk + own.kv * D, gv[r] = (bf16 *)a.dv + token * a.lddv + own.kv * D;
        if (first) a.dbias[(size_t)own.list * a.S_kv + j] = dbias[r];
    }
    store_rows<D / 8>(dk, a.scale, a.scale, gk[0], gk[1], D);
    store_rows<D / 8>(dv, 1, 1, gv[0], gv[1], D);
}

template <int D>
__device__ void dkv_consume(dkv_shared<D> &sm, const pb_dynmask_attention_bwd_args &a, const workspace<D> &room,
                            const dkv_work &own)
{
    constexpr bool EARLY = D == 128; /* starts dv += P^T do before waiting for dP^T; at D 64 this would spill */
    constexpr int Q = QUERIES<D>;
    constexpr uint32_t STAGE = DQ_TILE * sizeof(bf16);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int wg = warpgroup() - 1, row = warp * 16 + lane / 4;
    const operand_desc k = k_major_desc(sm.k + wg * 64 * 64), v = k_major_desc(sm.v + wg * 64 * 64);
    const operand_desc q = k_major_desc(sm.q), q_mn = mn_major_desc(sm.q, Q * 128);
    const operand_desc dO = k_major_desc(sm.dO), dO_mn = mn_major_desc(sm.dO, Q * 128);
    const float sl = a.scale * LOG2E;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {}, dbias[2] = {0, 0};
    ring_position at;
    barrier_wait(&sm.bar.own_full, 0);
    const float bias[2] = {sm.slots[wg].bias[row], sm.slots[wg].bias[row + 8]};
    for (int n = own.part; n < own.total; n += room.parts, at.next()) {
        const int stage = at.stage, i0 = (own.m + n % own.count) * Q;
        const query_tile<D> &queries = sm.queries[stage];
        float s[Q / 8][4], dp[Q / 8][4];
        uint32_t p[Q / 16][4], ds[Q / 16][4];
        barrier_wait(&sm.bar.first_full[stage], at.parity);
        if (queries.clear) {
            barrier_wait(&sm.bar.second_full[stage], at.parity);
            clear_rows<D>(sm.q[stage], sm.dO[stage], queries);
        }
        fill_rows<Q>(s, bias);
        wgmma_fence();
        start_dots<D, KEYS, Q, true>(s, k, advance_desc(q, stage * STAGE));
        barrier_wait(&sm.bar.second_full[stage], at.parity);
        wgmma_fence();
        start_dots<D, KEYS, Q>(dp, v, advance_desc(dO, stage * STAGE));
        wgmma_wait<1>();
        wgmma_fence_operand(s);
        weigh<D>(s, queries.stats, sl);
        mask_weights<D>(s, sm.slots[wg], row, i0);
        if (EARLY) {
            as_operand<Q / 8>(p, s);
            wgmma_fence();
            start_weighted_sum<D>(dv, p, advance_desc(dO_mn, stage * STAGE));
            wgmma_wait<1>();
        } else wgmma_wait<0>();
        wgmma_fence_operand(dp);
        differentiate<D, EARLY>(p, ds, s, dp, queries.stats, [&](int r, float x) { dbias[r] += x; });
        wgmma_fence();
        if (!EARLY) start_weighted_sum<D>(dv, p, advance_desc(dO_mn, stage * STAGE));
        start_weighted_sum<D>(dk, ds, advance_desc(q_mn, stage * STAGE));
        wgmma_wait<1>();
        wgmma_fence_operand(dv), wgmma_fence_operand(p);
        trace_dv<D>(dv, n);
        release(&sm.bar.second_empty[stage]);
        wgmma_wait<0>();
        wgmma_fence_operand(dk), wgmma_fence_operand(ds);
        release(&sm.bar.first_empty[stage]);
    }
    store_dkv<D>(dk, dv, dbias, sm.slots[wg], a, room, own, wg, row);
}
#endif

template <int D>
__global__ __launch_bounds__(THREADS, 1) void dkv_kernel(const __grid_constant__ bwd_maps m,
                                                         const pb_dynmask_attention_bwd_args a, const workspace<D> room)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    dkv_shared<D> &sm = *reinterpret_cast<dkv_shared<D> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    const dkv_work own = dkv_work_of_cta<D>(blockIdx.x, a, room);
    if (own.total == 0) return; /* no query attends to these slots: the zeros of prepare_kernel stay */
    if (threadIdx.x == 0) init(sm.bar);
    canaries_begin(sm);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<24>(); /* 128 * 24 + 256 * 240 = 384 * 168, the registers of the CTA at launch */
        if (threadIdx.x < 32) dkv_produce<D>(sm, m, a, room, own);
    } else {
        registers_more<240>();
        dkv_consume<D>(sm, a, room, own);
        canaries_end(sm, threadIdx.x - 128, CONSUMERS);
    }
#endif
}

/* Adds the parts of one panel of dk or dv, 64 slots and 64 columns, in order, and stores the sums to the rows of their
 * keys. The CTA of a block's first panel also adds the parts of dbias. */
template <int D>
__global__ __launch_bounds__(256) void add_parts_kernel(const pb_dynmask_attention_bwd_args a, const workspace<D> room)
{
    constexpr int ACROSS = D / 64, PANELS = 4 * ACROSS; /* 4: dk and dv, each of two warpgroups */
    const int panel = blockIdx.x % PANELS, n = blockIdx.x / PANELS, list = n % room.lists.heads;
    const int block = n / room.lists.heads, wg = panel / ACROSS % 2, warp = threadIdx.x / 64, u = threadIdx.x % 64;
    const slot_block *slots = room.lists.block + ((size_t)list * room.blocks + block) * 2;
    const slot_range r = range_of<KEYS>(slots);
    const size_t number = (size_t)block * room.parts * room.lists.heads + list, token = (size_t)(list / a.K) * a.S_kv;
    const bool of_v = panel >= PANELS / 2;
    const float scale = of_v ? 1 : a.scale;
    float sum[16] = {};
    if (r.lo >= r.hi) return;
    for (int p = 0; p < room.parts; p++)
        add_panel(sum, room.dkv + ((number + (size_t)p * room.lists.heads) * PANELS + panel) * PANEL, warp, u);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = warp * 16 + u / 8 + 8 * half;
        float out[8];
        if (slots[wg].key[row] < 0) continue;
        const size_t at = token + slots[wg].key[row], col = list % a.K * D + panel % ACROSS * 64 + u % 8 * 8;
#pragma unroll
        for (int e = 0; e < 8; e++) out[e] = scale * sum[8 * half + e];
        pb_store_vec<bf16, 8>(of_v ? (bf16 *)a.dv + at * a.lddv + col : (bf16 *)a.dk + at * a.lddk + col, out);
    }
    const int key = threadIdx.x < KEYS ? slots[threadIdx.x / SLOTS].key[threadIdx.x % SLOTS] : -1;
    if (panel || key < 0) return;
    float dbias = 0;
    for (int p = 0; p < room.parts; p++)
        dbias += room.dbias[(number + (size_t)p * room.lists.heads) * KEYS + threadIdx.x];
    a.dbias[(size_t)list * a.S_kv + key] = dbias;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* Launches the kernel that computes what dkv_kernel and dq_kernel read. */
template <int D> pb_status prepare(pb_ctx *ctx, const pb_dynmask_attention_bwd_args &a, const workspace<D> &room)
{
    const size_t rows = (size_t)a.B * a.S_kv * a.K, each = PREPARE_THREADS / (D / 8);
    const prepare_ctas ctas = {(unsigned)(a.B * a.H * room.tiles), gather_ctas(room.lists),
                               (unsigned)((rows + each - 1) / each)};
    prepare_kernel<D>
        <<<ctas.tiles + ctas.gathers + ctas.clears, PREPARE_THREADS, 0, pb_cuda_stream(ctx)>>>(a, room, ctas);
    return pb_cuda_launched(ctx, "dynmask_attention_bwd wgmma, preparation");
}

template <int D> pb_status bwd(pb_ctx *ctx, const pb_dynmask_attention_bwd_args &a)
{
    constexpr size_t bytes = sizeof(dkv_shared<D>) + 1024; /* 1024: dynamic shared memory may start unaligned */
    static_assert(bytes <= 232448, "more shared memory than a CTA of sm_90 can have");
    const workspace<D> room = lay_out<D>(ctx->scratch, a);
    const int blocks = room.blocks * room.lists.heads;
    bwd_maps m;
    PB_TRY(prepare<D>(ctx, a, room));
    PB_TRY(maps_of<D>(m, a, room.lists, QUERIES<D>, KEYS));
    PB_TRY(trace_begin(ctx));
    PB_TRY(pb_cuda_allow_shared(dkv_kernel<D>, bytes));
    dkv_kernel<D><<<blocks * room.parts, THREADS, bytes, pb_cuda_stream(ctx)>>>(m, a, room);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_attention_bwd wgmma, dk and dv"));
    PB_TRY(canaries_report(ctx));
    PB_TRY(trace_end<D>(ctx, a, room));
    PB_TRY(pb_dynmask_attention_dq_wgmma(ctx, &a));
    if (room.parts == 1) return PB_OK;
    add_parts_kernel<D><<<blocks * 4 * (D / 64), 256, 0, pb_cuda_stream(ctx)>>>(a, room);
    return pb_cuda_launched(ctx, "dynmask_attention_bwd wgmma, sums");
}
} // namespace

pb_status pb_dynmask_attention_bwd_wgmma(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_bwd_args &a = *(const pb_dynmask_attention_bwd_args *)args;
    return a.D == 64 ? bwd<64>(ctx, a) : bwd<128>(ctx, a);
}

size_t pb_dynmask_attention_bwd_wgmma_workspace(const void *args)
{
    const pb_dynmask_attention_bwd_args &a = *(const pb_dynmask_attention_bwd_args *)args;
    return a.D == 64 ? room_bytes<64>(a) : room_bytes<128>(a);
}
