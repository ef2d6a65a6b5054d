/* attention_wgmma_bwd.cu - attention backward with wgmma on sm_90a: bf16, D 64 or 128, after FlashAttention-3 (Shah et
 * al. 2024, arXiv:2407.08608).
 *
 * A CTA owns one part (cut.h) of a block of 128 keys of one key head. It keeps k and v in shared memory and iterates
 * over tiles of queries (128 at D 64, 64 at D 128) of all query heads of the group, or over a share of them. dk and
 * dv stay in registers the whole time, so they need no atomics.
 *
 * Up to three kernels: stats_kernel (delta and lse per tile), bwd_kernel (this file), round_kernel (adds partial sums
 * and rounds to bf16, or stores dk and dv in f32). The first and the last are in wgmma_bwd_ends.cuh.
 *
 * Roles of bwd_kernel:
 *
 *   threads    warps   role          registers per thread   work
 *   0..31      0       producer      24                     lane 0 starts the TMA loads of k, v, q, do and stats
 *   32..63     1       dq writer     24                     lane 0 adds each dq tile to f32 sums by TMA reduction
 *   64..127    2, 3    idle          24                     exit; setmaxnreg acts on whole warpgroups
 *   128..383   4..11   2 consumers   240                    warpgroup wg owns keys 64 wg .. 64 wg + 63
 *
 * Pipeline, one tile of queries:
 *
 *   producer:    k, v once;  q + stats -> stage s       do -> stage s        (rings of STAGES = 2 for q and for do)
 *                                  |                        |
 *   consumers:                S^T = k q^T  ----------> dP^T = v do^T
 *                                  |                        |
 *                             P^T = exp(S^T - lse)     dS^T = P^T (dP^T - delta)
 *                                  |                        |
 *                             dV += P^T do             dK += dS^T q         (P^T, dS^T are register operands)
 *                                                           |
 *                             dS^T of both warpgroups through shared memory: dQ = dS k
 *                                                           |
 *   dq writer:                                         dq tile (32 KB f32) from shared to global memory
 *
 * Barriers (struct shared; "lanes" are all 256 consumer threads):
 *
 *   mbarrier      arrivals                       waited for by   a completed phase means
 *   kv_full       producer + TMA bytes           consumers       k and v are in shared memory (once per CTA)
 *   q_full[s]     producer + TMA bytes           consumers       q and stats of this stage are in shared memory
 *   q_empty[s]    lanes, after dK += dS^T q      producer        q and stats of this stage may be overwritten
 *   do_full[s]    producer + TMA bytes           consumers       do of this stage is in shared memory
 *   do_empty[s]   lanes, after dV += P^T do      producer        do of this stage may be overwritten
 *   dq_full       lanes, dq tile written         dq writer       the dq tile is complete in shared memory
 *   dq_empty      dq writer, 1                   consumers       the dq tile has been read and may be overwritten
 *   named barrier DS_READY: the consumers wait for each other; dS^T of all 128 keys is in shared memory
 *   named barrier STATS_READY (AT_ONCE only): the consumers wait for each other; the stats that they have computed for
 *   this tile are in shared memory
 * With AT_ONCE no dq writer runs, and dq_full and dq_empty are not used.
 *
 * dq is summed over blocks of keys in one of three ways (dq_way):
 *   ANY_ORDER  (`wgmma`)          CTAs add in any order; dq may differ in the last bits between runs
 *   IN_ORDER   (`wgmma_ordered`)  CTAs add to a tile in the order of their keys: deterministic, but CTAs wait
 *   AT_ONCE    (S = N <= 128)     only one block of keys exists, and dk and dv are bf16: its CTA rounds dq directly;
 *                                 with at most INNER_STEPS tiles per CTA, the consumers also compute the stats and no
 *                                 stats_kernel runs
 *
 * The f32 sums of dq, dk and dv lie in accumulator order (store_sums). */
#include "kernels/attention/attention_impls.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/wgmma_bwd_ends.cuh"
#include "kernels/attention/wgmma_bwd_tiles.cuh"
#include "kernels/attention/wgmma_tiles.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{
enum { STAGES = 2, CONSUMERS = 256, CONSUMER_WARPS = 8, THREADS = 384, INNER_STEPS = 2 };
/* The three ways to sum dq over blocks of keys: see the top of the file. */
enum dq_way { ANY_ORDER, IN_ORDER, AT_ONCE };

/* One hardware barrier has two names, one per purpose. All consumers use it for both purposes in the same fixed order,
 * so the purposes cannot be confused. */
enum named_barrier { DS_READY = 1, STATS_READY = 1 };
struct maps {
    CUtensorMap q, dO, k, v;
};

/* The work of a CTA: keys j0 .. j0 + 127 of key head `head` in batch row b, and `steps` tiles of queries, the first of
 * which is tile m of query head h. */
struct cta_work {
    int b, head, j0, h, m, steps;
    int first;         /* the first tile of a query head that may attend to these keys */
    int number, parts; /* index of this part among all parts; number of parts that share these keys */
};

template <int D> struct alignas(1024) shared {
    bf16 k[KEYS * D], v[KEYS * D], q[STAGES][DQ_TILE], dO[STAGES][DQ_TILE];
    bf16 ds[2][KEYS * QUERIES<D>]; /* dS^T of even and of odd tiles: a row per key, in panels of 64 queries */
    float dq[DQ_TILE];
    query_stats<D> stats[STAGES];
    /* mbarriers; the comment at the top of the file says who arrives, and what each completed phase means */
    uint64_t kv_full, q_full[STAGES], q_empty[STAGES], do_full[STAGES], do_empty[STAGES], dq_full, dq_empty;
    cta_work own;
};

#ifdef PB_SM90_CODE
/* ---- assignment of work ---------------------------------------------------------------------------------------- */

/* Returns the work of part `number`. Parts are numbered from the first keys on: under a causal mask those have the most
 * tiles of queries, so the longest parts start first. */
template <int D>
__device__ inline cta_work work_of_part(int number, const pb_attention_bwd_args &a, const scratch<D> &room)
{
    const int heads = a.B * a.K, bk = number % heads;
    int j = room.whole ? number / heads : 0, part = room.whole ? 0 : number / heads;
    for (int n; part >= (n = pb_cut_parts(&room.cut, j)); j++) part -= n;
    const int hidden = pb_cut_first(&room.cut, j), seen = room.tiles - hidden, length = pb_cut_length(&room.cut, j);
    const int from = part * length;
    return {bk / a.K,
            bk % a.K,
            j * KEYS,
            bk % a.K * room.cut.group + from / seen,
            hidden + from % seen,
            min(length, pb_cut_steps(&room.cut, j) - from),
            hidden,
            number,
            pb_cut_parts(&room.cut, j)};
}

/* The current tile of queries: tile m of query head h; `left` tiles remain, and `seen` are the keys it attends to.
 * Producer, dq writer and consumers all iterate with this cursor and so agree on the tiles. */
struct cursor {
    int h, m, left;
    key_range seen;
};
__device__ inline cursor before_first(const cta_work &own) { return {own.h, own.m - 1, own.steps, {0, 0, 0, 0}}; }
/* Moves to the next tile that attends to a key of this CTA (AT_ONCE: to the next tile in any case). Returns false after
 * the last. All 32 lanes must call it. SOLID: as in keys_of_tile; with MORE it is false for the producer and the dq
 * writer, which have 24 registers and do not read solid_lo and solid_hi. */
template <int D, dq_way WAY, bool MORE, bool SOLID>
__device__ inline bool advance(cursor &c, const cta_work &own, const pb_attention_bwd_args &a, const scratch<D> &room)
{
    const int32_t *start = a.start ? a.start + (size_t)own.b * a.S : NULL;
    for (;;) {
        if (--c.left < 0) return false;
        if (++c.m == room.tiles) c.m = MORE ? own.first : a.causal ? own.j0 / QUERIES<D> : 0, c.h++;
        c.seen = keys_of_tile<QUERIES<D>, SOLID>(start, c.m * QUERIES<D>, shape_in<MORE>(a));
        if (WAY == AT_ONCE || (c.seen.lo < own.j0 + KEYS && c.seen.hi > own.j0)) return true;
    }
}
__device__ inline int number_of(const cursor &c, const cta_work &own, const pb_attention_bwd_args &a, int tiles)
{
    return (own.b * a.H + c.h) * tiles + c.m;
}

/* Position in the ring of stages, with the parity of the mbarrier phase to wait for. */
struct ring_position {
    uint32_t n = 0;
    __device__ int stage(void) const { return (int)(n % STAGES); }
    __device__ uint32_t parity(void) const { return n / STAGES % 2; }
    __device__ void next(void) { n++; }
};

template <int D, dq_way WAY, bool MORE>
__device__ void produce(shared<D> &sm, const maps &m, const pb_attention_bwd_args &a, const scratch<D> &room,
                        const cta_work &own)
{
    constexpr int Q = QUERIES<D>, BYTES = DQ_TILE * (int)sizeof(bf16);
    const bool leader = threadIdx.x % 32 == 0, inner = WAY == AT_ONCE && room.inner;
    ring_position at;
    if (leader) {
        barrier_expect(&sm.kv_full, 2 * KEYS * D * (int)sizeof(bf16));
        load_tile<D, KEYS>(sm.k, &m.k, &sm.kv_full, own.head, own.j0, own.b);
        load_tile<D, KEYS>(sm.v, &m.v, &sm.kv_full, own.head, own.j0, own.b);
    }
    for (cursor c = before_first(own); advance<D, WAY, MORE, !MORE>(c, own, a, room); at.next()) {
        const int s = at.stage();
        barrier_wait(&sm.q_empty[s], at.parity() ^ 1);
        if (leader) {
            barrier_expect(&sm.q_full[s], BYTES + (inner ? 0 : (int)sizeof(query_stats<D>)));
            load_tile<D, Q>(sm.q[s], &m.q, &sm.q_full[s], c.h, c.m * Q, own.b);
            if (!inner)
                bulk_load(&sm.stats[s], room.stats + number_of(c, own, a, room.tiles), &sm.q_full[s],
                          sizeof(query_stats<D>));
        }
        barrier_wait(&sm.do_empty[s], at.parity() ^ 1);
        if (leader) {
            barrier_expect(&sm.do_full[s], BYTES);
            load_tile<D, Q>(sm.dO[s], &m.dO, &sm.do_full[s], c.h, c.m * Q, own.b);
        }
    }
}

/* Adds each finished dq tile to the sums in global memory. IN_ORDER: a CTA waits until the CTAs of all earlier keys
 * have added to the tile (room.turns counts them). The CTA of the first keys stores instead of adding, so the sums need
 * no clearing. */
template <int D, dq_way WAY, bool MORE>
__device__ void add_dq(shared<D> &sm, const pb_attention_bwd_args &a, const scratch<D> &room, const cta_work &own)
{
    constexpr bool ORDERED = WAY == IN_ORDER;
    uint32_t parity = 0;
    for (cursor c = before_first(own); advance<D, WAY, MORE, !MORE>(c, own, a, room); parity ^= 1) {
        const int number = number_of(c, own, a, room.tiles), turn = (own.j0 / KEYS) - c.seen.lo / KEYS;
        float *to = room.dq + (size_t)number * DQ_TILE;
        barrier_wait(&sm.dq_full, parity);
        if (threadIdx.x % 32 == 0) {
            if (ORDERED) turn_wait(room.turns + number, turn), fence_async();
            if (ORDERED && turn == 0) bulk_store(to, sm.dq, sizeof sm.dq);
            else tma_reduce_add(to, sm.dq, sizeof sm.dq);
            if (ORDERED) bulk_wait();
            else bulk_read_wait();
            barrier_arrive(&sm.dq_empty);
            if (ORDERED) fence_async(), __threadfence(), turn_pass(room.turns + number);
        }
        __syncwarp();
    }
}

/* ---- matrix products ------------------------------------------------------------------------------------------- */

/* Starts this warpgroup's half of dq = dS k. D 64: its 64 queries, all columns. D 128: all 64 queries, 64 columns. */
__device__ inline void start_dq(float (&c)[8][4], operand_desc ds, operand_desc k)
{
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++)
        wgmma<1, 1>(c, advance_desc(ds, j * 16 * 128), advance_desc(k, j * 16 * 128), j > 0);
    wgmma_commit();
}

/* Turns scores S^T into weights P^T = 2^(s sl - lse2), with sl = scale log2(e). Rows are keys, columns are queries. */
template <int D> __device__ inline void weigh(float (&s)[QUERIES<D> / 8][4], const query_stats<D> &st, float sl)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
#pragma unroll
    for (int n = 0; n < QUERIES<D> / 8; n++) {
        const float2 lse2 = *reinterpret_cast<const float2 *>(&st.lse2[n * 8 + col]);
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = pb_exp2_fast(s[n][e] * sl - (e & 1 ? lse2.y : lse2.x));
    }
}
/* Sets masked weights to 0. j: key of this thread's first row; i0: first query of the tile. */
template <int D, bool MORE>
__device__ inline void mask_weights(float (&p)[QUERIES<D> / 8][4], const query_stats<D> &st,
                                    const pb_attention_bwd_args &a, int j, int i0)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
    const row_shape r = shape_in<MORE>(a);
#pragma unroll
    for (int n = 0; n < QUERIES<D> / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = n * 8 + col + (e & 1), key = j + (e >> 1) * 8;
            if (key < st.from[i] || key >= (a.causal ? r.N - r.S + i0 + i + 1 : r.N)) p[n][e] = 0;
        }
}
/* Writes operand dS^T to shared memory in swizzled layout; `key` is the row of this thread's first pair. */
template <int D> __device__ inline void write_ds(bf16 *ds, const uint32_t (&w)[QUERIES<D> / 16][4], int key)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
#pragma unroll
    for (int k = 0; k < QUERIES<D> / 16; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = key + (e & 1) * 8, chunk = k % 4 * 2 + e / 2;
            bf16 *to = ds + k / 4 * KEYS * 64 + row * 64 + ((chunk ^ (row & 7)) << 3) + col;
            *reinterpret_cast<uint32_t *>(to) = w[k][e];
        }
}

/* Writes this warpgroup's dS^T and waits until both warpgroups have written theirs. */
template <int D> __device__ inline void exchange_ds(bf16 *ds, const uint32_t (&w)[QUERIES<D> / 16][4], int key)
{
    write_ds<D>(ds, w, key);
    fence_async_shared();
    named_sync(DS_READY, CONSUMERS);
}

/* Computes delta and lse of a tile with all consumer threads, instead of stats_kernel. */
template <int D>
__device__ inline void find_tile_stats(query_stats<D> &st, const cursor &c, const pb_attention_bwd_args &a,
                                       const cta_work &own)
{
    const int bh = own.b * a.H + c.h;
#pragma unroll
    for (int u = 0; u < DQ_TILE / 8; u += CONSUMERS)
        find_stats<D>(st, a, bh, c.m * QUERIES<D>, u + (int)threadIdx.x - 128);
    named_sync(STATS_READY, CONSUMERS);
}
/* Rounds this warpgroup's half of a dq tile to bf16 and stores it. `row`: row of this thread's first pair of elements
 * in the half tile. */
template <int D>
__device__ inline void round_dq(const float (&dq)[8][4], const cursor &c, const pb_attention_bwd_args &a,
                                const cta_work &own, int wg, int row)
{
    const int i = c.m * QUERIES<D> + (D == 64 ? wg * 64 : 0) + row;
    bf16 *to = (bf16 *)a.dq + ((size_t)own.b * a.S + i) * a.lddq + (size_t)c.h * D + (D == 64 ? 0 : wg * 64);
    store_rows<8>(dq, a.scale, a.scale, i < a.S ? to : NULL, i + 8 < a.S ? to + 8 * a.lddq : NULL, 64);
}
/* Writes this warpgroup's half of a dq tile to shared memory and signals the dq writer. */
template <int D>
__device__ inline void pass_dq_to_writer(shared<D> &sm, const float (&dq)[8][4], int wg, uint32_t parity)
{
    barrier_wait(&sm.dq_empty, parity ^ 1);
    store_sums<8>(sm.dq + wg * PANEL, dq);
    fence_async_shared();
    release(&sm.dq_full);
}

/* Stores one of dk and dv of 64 keys: accumulator c times scale to rows of T, ld apart; j: key of this thread's first
 * row, which is at `to`. */
template <int D, class T>
__device__ inline void store_gradient(const float (&c)[D / 8][4], float scale, T *to, size_t ld, int j, int keys)
{
    store_rows<D / 8>(c, scale, scale, j < keys ? to : NULL, j + 8 < keys ? to + 8 * ld : NULL, D);
}

/* Stores dk and dv of this warpgroup's keys, or their f32 partial sums when several parts share the keys. `row`: row of
 * this thread's first pair of elements in the tile of keys. */
template <int D, bool MORE>
__device__ inline void store_dkv(const float (&dk)[D / 8][4], const float (&dv)[D / 8][4], const shared<D> &sm,
                                 const pb_attention_bwd_args &a, const scratch<D> &room, const cta_work &own, int wg,
                                 int row)
{
    if (sm.own.parts > 1) {
        float *to = room.dkv + (size_t)sm.own.number * 2 * KEYS * D + wg * 64 * D;
        store_sums<D / 8>(to, dk);
        store_sums<D / 8>(to + KEYS * D, dv);
        return;
    }
    const int j = own.j0 + row, keys = shape_in<MORE>(a).N;
    const size_t token = (size_t)own.b * keys + j;
    const size_t at_k = token * a.lddk + sm.own.head * D, at_v = token * a.lddv + sm.own.head * D;
    if (MORE && a.wide) {
        store_gradient<D>(dk, a.scale, (float *)a.dk + at_k, a.lddk, j, keys);
        store_gradient<D>(dv, 1, (float *)a.dv + at_v, a.lddv, j, keys);
    } else {
        store_gradient<D>(dk, a.scale, (bf16 *)a.dk + at_k, a.lddk, j, keys);
        store_gradient<D>(dv, 1, (bf16 *)a.dv + at_v, a.lddv, j, keys);
    }
}

template <int D, dq_way WAY, bool MORE>
__device__ void consume(shared<D> &sm, const pb_attention_bwd_args &a, const scratch<D> &room, const cta_work &own)
{
    constexpr bool EARLY = D == 128; /* starts dV += P^T do before waiting for dP^T; at D 64 this would spill */
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int wg = warpgroup() - 1, row = wg * 64 + warp * 16 + lane / 4;
    const int j0 = own.j0 + wg * 64;
    constexpr uint32_t STAGE = DQ_TILE * sizeof(bf16), HALF = KEYS * 64;
    const operand_desc k = k_major_desc(sm.k + wg * 64 * 64), v = k_major_desc(sm.v + wg * 64 * 64);
    const operand_desc q = k_major_desc(sm.q), q_mn = mn_major_desc(sm.q, QUERIES<D> * 128);
    const operand_desc dO = k_major_desc(sm.dO), dO_mn = mn_major_desc(sm.dO, QUERIES<D> * 128);
    const operand_desc ds_mn = mn_major_desc(sm.ds[0] + (D == 64 ? wg * HALF : 0), 2 * HALF);
    const operand_desc k_mn = mn_major_desc(sm.k + (D == 64 ? 0 : wg * HALF), 2 * HALF);
    const float sl = a.scale * LOG2E;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    uint32_t parity = 0;
    ring_position at;
    barrier_wait(&sm.kv_full, 0);
    for (cursor c = before_first(own); advance<D, WAY, MORE, true>(c, own, a, room); at.next(), parity ^= 1) {
        const int stage = at.stage();
        const query_stats<D> &st = sm.stats[stage];
        const bool masked = j0 < c.seen.solid_lo || j0 + 64 > c.seen.solid_hi;
        float s[QUERIES<D> / 8][4], dp[QUERIES<D> / 8][4], dq[8][4];
        uint32_t p[QUERIES<D> / 16][4], ds[QUERIES<D> / 16][4];
        if (WAY == AT_ONCE && room.inner) find_tile_stats<D>(sm.stats[stage], c, a, own);
        barrier_wait(&sm.q_full[stage], at.parity());
        wgmma_fence();
        start_dots<D, KEYS, QUERIES<D>>(s, k, advance_desc(q, stage * STAGE));
        barrier_wait(&sm.do_full[stage], at.parity());
        wgmma_fence();
        start_dots<D, KEYS, QUERIES<D>>(dp, v, advance_desc(dO, stage * STAGE));
        wgmma_wait<1>();
        wgmma_fence_operand(s);
        weigh<D>(s, st, sl);
        if (masked) mask_weights<D, MORE>(s, st, a, own.j0 + row, c.m * QUERIES<D>);
        if (EARLY) {
            as_operand<QUERIES<D> / 8>(p, s);
            wgmma_fence();
            start_weighted_sum<D>(dv, p, advance_desc(dO_mn, stage * STAGE));
            wgmma_wait<1>();
        } else wgmma_wait<0>();
        wgmma_fence_operand(dp);
        differentiate<D, EARLY>(p, ds, s, dp, st, [](int, float) {});
        if (!EARLY) {
            wgmma_fence();
            start_weighted_sum<D>(dv, p, advance_desc(dO_mn, stage * STAGE));
        }
        exchange_ds<D>(sm.ds[parity], ds, row); /* the other buffer may still be read until the next DS_READY */
        wgmma_fence();
        start_dq(dq, advance_desc(ds_mn, parity * sizeof sm.ds[0]), k_mn);
        start_weighted_sum<D>(dk, ds, advance_desc(q_mn, stage * STAGE));
        wgmma_wait<1>();
        wgmma_fence_operand(dq), wgmma_fence_operand(dv), wgmma_fence_operand(p);
        release(&sm.do_empty[stage]);
        if (WAY == AT_ONCE) round_dq<D>(dq, c, a, own, wg, row - wg * 64);
        else pass_dq_to_writer<D>(sm, dq, wg, parity);
        wgmma_wait<0>();
        wgmma_fence_operand(dk), wgmma_fence_operand(ds);
        release(&sm.q_empty[stage]);
    }
    store_dkv<D, MORE>(dk, dv, sm, a, room, own, wg, row);
}

template <int D> __device__ inline void init(shared<D> &sm)
{
    barrier_init(&sm.kv_full, 1), barrier_init(&sm.dq_full, CONSUMER_WARPS * WARP_ARRIVES),
        barrier_init(&sm.dq_empty, 1);
    for (int s = 0; s < STAGES; s++) {
        barrier_init(&sm.q_full[s], 1), barrier_init(&sm.q_empty[s], CONSUMER_WARPS * WARP_ARRIVES);
        barrier_init(&sm.do_full[s], 1), barrier_init(&sm.do_empty[s], CONSUMER_WARPS * WARP_ARRIVES);
    }
    barrier_inits_done();
}
#endif

/* MORE: there are more keys than queries, or dk and dv are f32. Other calls have a kernel without what this needs. */
template <int D, dq_way WAY, bool MORE>
__global__ __launch_bounds__(THREADS, 1) void bwd_kernel(const __grid_constant__ maps m, const pb_attention_bwd_args a,
                                                         const scratch<D> room)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    shared<D> &sm = *reinterpret_cast<shared<D> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    if (threadIdx.x == 0) {
        init(sm);
        /* IN_ORDER: a CTA waits only for CTAs of lower number. An atomic counter numbers CTAs as they start, so all
         * CTAs of lower number are already running, and no wait can deadlock. */
        sm.own = work_of_part(WAY == IN_ORDER ? atomicAdd(room.turns + room.count, 1) : (int)blockIdx.x, a, room);
    }
    if (threadIdx.x == 32)
        tensor_map_prefetch(&m.k), tensor_map_prefetch(&m.v), tensor_map_prefetch(&m.q), tensor_map_prefetch(&m.dO);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<24>(); /* 128 * 24 + 256 * 240 = 384 * 168, the registers of the CTA at launch */
        const cta_work own = sm.own;
        if (threadIdx.x < 32) produce<D, WAY, MORE>(sm, m, a, room, own);
        else if (WAY != AT_ONCE && threadIdx.x < 64) add_dq<D, WAY, MORE>(sm, a, room, own);
    } else {
        registers_more<240>();
        const cta_work own = sm.own;
        consume<D, WAY, MORE>(sm, a, room, own);
    }
#endif
}

template <int D> pb_status maps_of(maps &m, const pb_attention_bwd_args &a)
{
    PB_TRY(tensor_map(&m.q, a.q, a.ldq, a.B, a.S, a.H, D, QUERIES<D>));
    PB_TRY(tensor_map(&m.dO, a.dO, a.lddo, a.B, a.S, a.H, D, QUERIES<D>));
    PB_TRY(tensor_map(&m.k, a.k, a.ldk, a.B, a.keys, a.K, D, KEYS));
    return tensor_map(&m.v, a.v, a.ldv, a.B, a.keys, a.K, D, KEYS);
}

template <int D, dq_way WAY, bool MORE>
pb_status bwd_launch(pb_ctx *ctx, const pb_attention_bwd_args &a, const pb_cut &cut)
{
    constexpr size_t bytes = sizeof(shared<D>) + 1024; /* 1024: dynamic shared memory may start unaligned */
    const int heads = a.B * a.K;
    scratch<D> room = lay_out<D>(ctx->scratch, a, cut);
    maps m;
    PB_TRY(maps_of<D>(m, a));
    room.inner = WAY == AT_ONCE && pb_cut_length(&cut, 0) <= INNER_STEPS;
    if (!room.inner) {
        stats_kernel<D><<<room.count * STATS_BLOCKS, 256, 0, pb_cuda_stream(ctx)>>>(a, room, WAY == ANY_ORDER);
        PB_TRY(pb_cuda_launched(ctx, "attention_bwd wgmma, delta"));
    }
    PB_TRY(pb_cuda_allow_shared(bwd_kernel<D, WAY, MORE>, bytes));
    bwd_kernel<D, WAY, MORE>
        <<<heads * pb_cut_before(&cut, cut.keys), THREADS, bytes, pb_cuda_stream(ctx)>>>(m, a, room);
    PB_TRY(pb_cuda_launched(ctx, "attention_bwd wgmma"));
    const int dq_blocks = WAY == AT_ONCE ? 0 : room.count * 2;
    const int dkv_blocks = room.whole ? 0 : heads * cut.keys * (2 * KEYS * D / PANEL) * 4;
    if (dq_blocks + dkv_blocks == 0) return PB_OK;
    round_kernel<D><<<dq_blocks + dkv_blocks, 256, 0, pb_cuda_stream(ctx)>>>(a, room, dq_blocks);
    return pb_cuda_launched(ctx, "attention_bwd wgmma, rounding");
}

template <int D, dq_way WAY> pb_status bwd(pb_ctx *ctx, const pb_attention_bwd_args &a)
{
    const bool more = a.keys > a.S || a.wide, at_once = !more && a.S <= KEYS;
    const pb_cut_shape s = cut_shape<D>(a, WAY == IN_ORDER && !at_once);
    const pb_cut cut = pb_cut_of(&s, pb_cuda_free_sms(ctx));
    if (at_once) return bwd_launch<D, AT_ONCE, false>(ctx, a, cut);
    return more ? bwd_launch<D, WAY, true>(ctx, a, cut) : bwd_launch<D, WAY, false>(ctx, a, cut);
}
} // namespace

pb_status pb_attention_bwd_wgmma(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args a = with_keys(*(const pb_attention_bwd_args *)args);
    return a.D == 64 ? bwd<64, ANY_ORDER>(ctx, a) : bwd<128, ANY_ORDER>(ctx, a);
}

pb_status pb_attention_bwd_wgmma_ordered(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args a = with_keys(*(const pb_attention_bwd_args *)args);
    return a.D == 64 ? bwd<64, IN_ORDER>(ctx, a) : bwd<128, IN_ORDER>(ctx, a);
}

size_t pb_attention_bwd_wgmma_workspace(const void *args)
{
    const pb_attention_bwd_args &a = *(const pb_attention_bwd_args *)args;
    return a.D == 64 ? room_bytes<64>(a) : room_bytes<128>(a);
}
