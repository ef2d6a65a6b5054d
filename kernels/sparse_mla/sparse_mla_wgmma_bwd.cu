/* sparse_mla_wgmma_bwd.cu - MLA backward with wgmma on sm_90a: bf16, D 512 or 576, V 512.
 *
 * Persistent kernel: one CTA per SM, each takes every gridDim-th item. An item is 64 heads of one token. Its q and do
 * stay in shared memory, and the rows of kv that the token attends to are loaded 64 at a time (a tile). A launch before
 * (list_kernel) removes masked slots from the key lists. Rows after the last of a list are filled with zeros; their
 * weights are 0 and they are not added to dkv.
 *
 * Roles:
 *
 *   threads     warps    role         registers per thread   work
 *   0..127      0..3     producers    24                     cp.async of kv rows; per item also: warp 0 loads q and
 *                                                            warp 1 do by TMA, warps 2 and 3 load lse and delta
 *   128..255    4..7     consumer 0   240                    S^T and P^T; columns 0..255 of dq and dkv
 *   256..383    8..11    consumer 1   240                    dP^T and dS^T; columns 256..511 of dq and dkv
 * At D 576, consumer 0 also has columns 512..575 of dq and consumer 1 those of dkv.
 *
 * Pipeline of one tile; kv has one buffer, so the order frees it halfway:
 *
 *   producers:   kv of tile n ------------------------------------------->  kv of tile n+1 -------------------->
 *                   |                                                        ^
 *   consumer 0:  S^T = kv q^T    P^T --+---------> dq += dS kv --(kv free)---+  dkv = P^T do + dS^T q, 64 columns
 *                                      | P^T  ^                              |  at a time; each is added to f32 sums
 *                                      v      | dS^T                         |  in global memory (red.v4) while the
 *   consumer 1:  dP^T = kv do^T        dS^T --+--> dq += dS kv --(kv free)---+  products of the next 64 columns run
 *
 * Each consumer uses its own weights as a register operand and those of the other from shared memory.
 *
 * Barriers (struct shared):
 *
 *   mbarrier       arrivals                               waited for by         a completed phase means
 *   kv_full        128 producer lanes, copies done        consumers             kv and row of this tile are written
 *   kv_empty       256 consumer lanes, after dq           producers             kv and row may be overwritten
 *   q_full         2 loading lanes, and TMA bytes         consumers             q and do of this item are written
 *   q_empty[c]     256 consumer lanes, after columns c    loading lanes         panels c and c + 4 of q and do may be
 *                  of the item's last dkv                                       overwritten
 *   weight_full    128 lanes of consumer 0                consumer 1            P^T is in shared memory
 *   weight_empty   128 lanes of consumer 1, after dkv     consumer 0            P^T may be overwritten
 *   named barrier DS_READY: the consumers wait for each other; P^T and dS^T are both in shared memory
 *
 * Limit: the reductions to dkv in L2. DESIGN.md has the budget of a tile, and shows why every wait ends. */
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/sparse_mla/mla_sums.cuh"

namespace
{
enum { V = 512, HEADS = 64, KEYS = 64, PARTS = 4, THREADS = 384, WARPS = 8 /* of the consumers */ };
/* A panel is [64 rows][64 columns] of bf16 with 128-byte swizzle. */
enum {
    PANEL = 64 * 64,         /* elements */
    PANEL_BYTES = 2 * PANEL, /* bytes */
    SIXTEEN_ROWS = 16 * 128, /* bytes of 16 rows */
    HALF = 4                 /* panels of the columns of V that one consumer owns */
};
enum { PRODUCER_REGS = 24, CONSUMER_REGS = 240 };
enum named_barrier { DS_READY = 1 }; /* see the top of the file */

struct maps {
    CUtensorMap q, dO;
};

/* Arguments of the kernel. The key lists of p, if any, are the output of list_kernel: W + 1 entries per token, of which
 * the first is the number of unmasked slots. p.idx points to the second entry; p.W is the number of all entries. */
struct task {
    pb_mla p;
    const float *delta;
    float *sum;        /* f32 sums of dkv, columns ordered BY_QUADS */
    int blocks, items; /* blocks: groups of 64 heads per token; items: blocks of all tokens */
};

template <int D> struct alignas(1024) shared {
    bf16 q[D / 64 * PANEL], dO[V / 64 * PANEL], kv[D / 64 * PANEL]; /* one row per head, head, key */
    bf16 weight[PANEL], ds[PANEL];   /* P^T and dS^T: one row per key, one column per head */
    float lse2[HEADS], delta[HEADS]; /* lse2: lse * log2(e); infinite for heads from H on */
    int row[KEYS];                   /* row of kv of each slot of the tile, or -1 */
    /* mbarriers; the comment at the top of the file says who arrives, and what each completed phase means. Part c of q
     * and do is panels c and c + 4; at D 576 part 3 of q also has the ninth panel. */
    uint64_t q_full, q_empty[PARTS], kv_full, kv_empty, weight_full, weight_empty;
};

#ifdef PB_SM90_CODE
/* ---- assignment of work, and the producer warps ---------------------------------------------------------------- */

/* An item: heads h .. h + 63 of a token, and the keys it attends to. The last tokens, which attend to most keys under a
 * causal mask, come first. */
struct item {
    int b, h;
    size_t token;
    pb_mla_keys keys;
    int tiles;
};
__device__ inline item item_of(int number, const task &a)
{
    const pb_mla &p = a.p;
    const int token = number / a.blocks, b = token % p.B, i = p.S - 1 - token / p.B;
    pb_mla_keys keys = pb_mla_keys_of(&p, b, i);
    if (keys.list) keys.n = keys.list[-1];
    return {b, number % a.blocks * HEADS, (size_t)b * p.S + i, keys, (keys.n + KEYS - 1) / KEYS};
}

/* Loads an item: q (lane 0 of warp 0) and do (lane 0 of warp 1), part by part as they become free, and lse and delta of
 * its heads (warps 2 and 3). `parity`: phase parity of the q mbarriers. */
template <int D>
__device__ inline void load_heads(shared<D> &sm, const maps &m, const task &a, int number, uint32_t parity)
{
    const pb_mla &p = a.p;
    asm volatile("" : "+r"(number)); /* makes the compiler compute `it` again, to save registers */
    const item it = item_of(number, a);
    const int warp = threadIdx.x / 32, local_head = threadIdx.x % HEADS;
    /* lse2 and delta may be overwritten: consumers have read those of the previous item before they arrived at
     * kv_empty, and gather() has waited for that. */
    if (warp >= 2) {
        const bool there = it.h + local_head < p.H;
        const size_t head = it.token * p.H + it.h + local_head;
        sm.lse2[local_head] = there ? p.lse[head] * MLA_LOG2E : INFINITY;
        sm.delta[local_head] = there ? a.delta[head] : 0;
    } else if (threadIdx.x % 32 == 0) {
        barrier_expect(&sm.q_full, (warp ? V : D) / 64 * PANEL_BYTES);
#pragma unroll 1
        for (int n = 0; n < (warp ? V : D) / 64; n++) {
            const int panel = n < 2 * PARTS ? n / 2 + n % 2 * HALF : n;
            barrier_wait(&sm.q_empty[n / 2 % PARTS], parity ^ 1); /* the ninth panel of q is freed with the eighth */
            tma_load((warp ? sm.dO : sm.q) + panel * PANEL, warp ? &m.dO : &m.q, &sm.q_full, panel * 64, 0, it.h,
                     (int)it.token);
        }
    }
    __syncwarp();
}

/* Starts to copy the rows of tile t and returns whether another tile follows. A warp copies rows 4 warp + 0..3 + 16 n
 * of the tile (n = 0..3), eight lanes per row, 16 bytes each. Lane 4 n + k < 16 looks up the row of kv for row 4 warp +
 * k + 16 n. */
template <int D> __device__ inline bool gather(shared<D> &sm, const task &a, int number, int t, uint32_t parity)
{
    const pb_mla &p = a.p;
    asm volatile("" : "+r"(number));
    const item it = item_of(number, a);
    const int lane = threadIdx.x % 32, tile_row = threadIdx.x / 8,
              slot = threadIdx.x / 32 * 4 + lane % 4 + lane / 4 * 16;
    const int list_slot = t * KEYS + slot;
    const int row = lane >= 16 || list_slot >= it.keys.n ? -1
                    : it.keys.list                       ? __ldg(it.keys.list + list_slot)
                                                         : it.keys.first + list_slot;
    const bf16 *const kv = (const bf16 *)p.kv + (size_t)it.b * p.S_kv * D + lane % 8 * 8;
    bf16 *const to = sm.kv + tile_row * 64 + ((lane % 8 ^ (tile_row & 7)) << 3);
    barrier_wait(&sm.kv_empty, parity ^ 1);
    if (lane < 16) sm.row[slot] = row;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int mine = __shfl_sync(0xffffffffu, row, lane / 8 + 4 * n);
        const bf16 *from = kv + (mine >= 0 ? (size_t)mine * D : 0);
#pragma unroll
        for (int panel = 0; panel < D / 64; panel++)
            copy_async(to + panel * PANEL + n * 16 * 64, from + panel * 64, mine >= 0);
    }
    copy_commit();
    return t + 1 < it.tiles;
}

template <int D> __device__ void produce(shared<D> &sm, const maps &m, const task &a)
{
    /* bit 0: phase of the kv mbarriers (flips per tile); bit 1: phase of the q mbarriers (flips per item that has a
     * tile) */
    uint32_t parity = 0;
    for (int number = blockIdx.x; number < a.items; number += gridDim.x) {
        bool more = item_of(number, a).tiles > 0;
#pragma unroll 1
        for (int t = 0; more; t++) {
            more = gather(sm, a, number, t, parity & 1);
            parity ^= 1;
            if (t == 0) {
                load_heads(sm, m, a, number, parity >> 1);
                parity ^= 2;
            }
            copy_wait<0>();
            fence_async_shared();
            release(&sm.kv_full);
        }
    }
}

/* ---- matrix products: scores, dq and dkv ----------------------------------------------------------------------- */

/* Operand descriptors (K-major and MN-major) of the first byte of struct shared, and the byte offsets of its tiles. */
template <int D> struct operand_offsets {
    operand_desc k_major, mn_major;
    enum {
        Q = 0,
        DO = Q + D / 64 * PANEL_BYTES,
        KV = DO + V / 64 * PANEL_BYTES,
        WEIGHT = KV + D / 64 * PANEL_BYTES,
        DS = WEIGHT + PANEL_BYTES
    };
};

/* Starts s = kv y^T as one wgmma group: y is q (WG 0) or do (WG 1). Rows are keys, columns are heads. */
template <int D, int WG> __device__ inline void start_scores(float (&s)[8][4], const operand_offsets<D> &at)
{
    constexpr int WIDTH = WG == 0 ? D : V, Y = WG == 0 ? operand_offsets<D>::Q : operand_offsets<D>::DO;
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++) {
        const int x = d / 4 * PANEL_BYTES + d % 4 * 32;
        wgmma<0, 0>(s, advance_desc(at.k_major, operand_offsets<D>::KV + x), advance_desc(at.k_major, Y + x), d > 0);
    }
    wgmma_commit();
}

/* Starts dq += dS kv on this consumer's columns; consumer 0 also computes `rope`, the columns from V on. */
template <int D, int WG>
__device__ inline void start_dq(float (&dq)[2][16][4], float (&rope)[8][4], const operand_offsets<D> &at)
{
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        const operand_desc ds = advance_desc(at.mn_major, operand_offsets<D>::DS + k * SIXTEEN_ROWS);
        const operand_desc kv =
            advance_desc(at.mn_major, operand_offsets<D>::KV + WG * HALF * PANEL_BYTES + k * SIXTEEN_ROWS);
        wgmma<1, 1>(dq[0], ds, kv, 1);
        wgmma<1, 1>(dq[1], ds, advance_desc(kv, 2 * PANEL_BYTES), 1);
        if (D > V && WG == 0) wgmma<1, 1>(rope, ds, advance_desc(kv, V / 64 * PANEL_BYTES), 1);
    }
    wgmma_commit();
}

/* Starts dkv = P^T do + dS^T q on panel i of this consumer's columns; `own` is P^T (WG 0) or dS^T (WG 1). Columns from
 * V on (i = HALF) get dS^T q only. */
template <int D, int WG>
__device__ inline void start_dkv(float (&c)[8][4], const uint32_t (&own)[4][4], const operand_offsets<D> &at, int i)
{
    constexpr int THEIRS = WG == 0 ? operand_offsets<D>::DS : operand_offsets<D>::WEIGHT;
    constexpr int OWN_Y = WG == 0 ? operand_offsets<D>::DO : operand_offsets<D>::Q,
                  THEIR_Y = WG == 0 ? operand_offsets<D>::Q : operand_offsets<D>::DO;
    const int panel = (WG * HALF + i) * PANEL_BYTES;
#pragma unroll
    for (int k = 0; k < HEADS / 16; k++) {
        if (i >= HALF)
            wgmma<0, 1>(c, advance_desc(at.k_major, operand_offsets<D>::DS + k * 32),
                        advance_desc(at.mn_major, OWN_Y + panel + k * SIXTEEN_ROWS), k > 0);
        else
            wgmma<0, 1>(c, advance_desc(at.k_major, THEIRS + k * 32),
                        advance_desc(at.mn_major, THEIR_Y + panel + k * SIXTEEN_ROWS), k > 0);
    }
#pragma unroll
    for (int k = 0; k < HEADS / 16; k++)
        if (i < HALF) wgmma(c, own[k], advance_desc(at.mn_major, OWN_Y + panel + k * SIXTEEN_ROWS));
    wgmma_commit();
}

/* ---- weights P^T and their gradients dS^T ---------------------------------------------------------------------- */

/* Returns the address of register e of operand k in a panel with one row per key; `mine` is the address of this
 * thread's first pair, without the swizzle. */
__device__ inline uint32_t *word_of(bf16 *mine, int k, int e)
{
    const int lane = threadIdx.x % 32, chunk = k * 2 + e / 2, row = lane / 4;
    return reinterpret_cast<uint32_t *>(mine + (e & 1) * 8 * 64 + ((chunk ^ row) << 3));
}

/* Returns the values of x for this thread's two heads of column tile n. */
__device__ inline float2 pair_of(const float *x, int n)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
    return *reinterpret_cast<const float2 *>(x + n * 8 + col);
}

/* Turns scores into weights e^(scale s - lse). Slots without a row get 0 by selection, not by multiplication, because
 * their score may be infinite. */
__device__ inline void weigh(uint32_t (&w)[4][4], const float (&s)[8][4], const float *lse2, const bool (&there)[2],
                             float sl)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float *x = s[2 * k + e / 2] + e % 2 * 2;
            const float2 lse = pair_of(lse2, 2 * k + e / 2);
            const float a = pb_exp2_fast(fmaf(x[0], sl, -lse.x)), b = pb_exp2_fast(fmaf(x[1], sl, -lse.y));
            w[k][e] = there[e % 2] ? pack_bf16(a, b) : 0;
        }
}

/* Computes dS^T = scale P^T (dP^T - delta), with P^T from the panel that consumer 0 has written. */
__device__ inline void differentiate(uint32_t (&ds)[4][4], const float (&dp)[8][4], bf16 *weight, const float *delta,
                                     const bool (&there)[2], float scale)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float *x = dp[2 * k + e / 2] + e % 2 * 2;
            const float2 del = pair_of(delta, 2 * k + e / 2);
            const uint32_t w = *word_of(weight, k, e);
            const float a = __uint_as_float(w << 16) * scale * (x[0] - del.x);
            const float b = __uint_as_float(w & 0xffff0000u) * scale * (x[1] - del.y);
            ds[k][e] = there[e % 2] ? pack_bf16(a, b) : 0;
        }
}

/* Writes an operand to its panel and makes it visible to wgmma; a barrier must follow before it is used. */
__device__ inline void write_panel(bf16 *mine, const uint32_t (&w)[4][4])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) *word_of(mine, k, e) = w[k][e];
    fence_async_shared();
}

/* ---- adding dkv to the sums in global memory ------------------------------------------------------------------- */

__device__ inline void add4(float *to, float a, float b, float c, float d)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}

/* Adds 64 columns of dkv to the sums of this thread's rows of kv, which are ordered BY_QUADS; row -1 is skipped. The
 * quads of an even row and of the odd row after it exchange halves first, so that eight lanes reduce 128 contiguous
 * bytes of one row: with 64 bytes per row, the whole pass takes about a third longer. */
__device__ inline void add_columns(const int (&even)[2], const int (&odd)[2], float *to, int D, const float (&c)[8][4],
                                   int i)
{
    const unsigned lane = threadIdx.x % 32;
    const bool second = lane & 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float x[2][4], y[2][4];
#pragma unroll
        for (int n = 0; n < 8; n += 4)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float a = c[n + e / 2][2 * r + e % 2], b = c[n + 2 + e / 2][2 * r + e % 2];
                const float got = __shfl_xor_sync(0xffffffffu, second ? a : b, 4);
                x[n / 4][e] = second ? got : a, y[n / 4][e] = second ? b : got;
            }
        if (even[r] >= 0) {
            float *at = to + (size_t)even[r] * D + i * 64;
            add4(at, x[0][0], x[0][1], x[0][2], x[0][3]), add4(at + 32, x[1][0], x[1][1], x[1][2], x[1][3]);
        }
        if (odd[r] >= 0) {
            float *at = to + (size_t)odd[r] * D + i * 64;
            add4(at, y[0][0], y[0][1], y[0][2], y[0][3]), add4(at + 32, y[1][0], y[1][1], y[1][2], y[1][3]);
        }
    }
}

/* ---- the two consumer warpgroups ------------------------------------------------------------------------------- */

/* Registers that a consumer keeps over all tiles of an item. SETS: buffers of 64 columns of dkv, as registers allow. */
template <int D> struct state {
    static constexpr int SETS = D == V ? 2 : 1;
    float dq[2][16][4], rope[8][4], dkv[SETS][8][4];
    uint32_t own[4][4];  /* P^T or dS^T */
    int even[2], odd[2]; /* arguments of add_columns: rows of kv of this quad and of the next quad; -1: none */
    float *to;           /* this thread's columns of row 0 of the sums of dkv */
};

/* Replaces the scores by P^T (WG 0) or dS^T (WG 1), and returns when both are in shared memory. `tile` counts the CTA's
 * tiles. */
template <int D, int WG>
__device__ inline void make_operands(state<D> &st, shared<D> &sm, const float (&s)[8][4], const bool (&there)[2],
                                     bf16 *weight, bf16 *ds, const pb_mla &p, uint32_t tile)
{
    if (WG == 0) {
        weigh(st.own, s, sm.lse2, there, p.scale * MLA_LOG2E);
        barrier_wait(&sm.weight_empty, (tile & 1) ^ 1);
        write_panel(weight, st.own);
        release(&sm.weight_full);
    } else {
        barrier_wait(&sm.weight_full, tile & 1);
        differentiate(st.own, s, weight, sm.delta, there, p.scale);
        write_panel(ds, st.own);
    }
    named_meet(DS_READY, 256);
}

/* Computes dq and dkv of a tile from P^T and dS^T. last: this is the item's last tile, so parts of q and do are freed.
 * With two SETS, the last 64 columns of dkv stay in registers, and the caller must add them with add_rest(). */
template <int D, int WG>
__device__ inline void multiply_tile(state<D> &st, shared<D> &sm, const operand_offsets<D> &at, bool last)
{
    constexpr int SETS = state<D>::SETS, COLUMNS = HALF + (D > V && WG == 1);
    wgmma_fence();
    start_dq<D, WG>(st.dq, st.rope, at);
    start_dkv<D, WG>(st.dkv[0], st.own, at, 0);
    wgmma_wait<1>();
    wgmma_fence_operand(st.dq[0]), wgmma_fence_operand(st.dq[1]);
    if (D > V && WG == 0) wgmma_fence_operand(st.rope);
    release(&sm.kv_empty);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        if (SETS == 2 && i + 1 < COLUMNS) {
            wgmma_fence();
            start_dkv<D, WG>(st.dkv[(i + 1) % SETS], st.own, at, i + 1);
            wgmma_wait<1>();
        } else wgmma_wait<0>();
        wgmma_fence_operand(st.dkv[i % SETS]);
        if (last && (i + 1 < PARTS || i + 1 == COLUMNS)) release(&sm.q_empty[i < PARTS ? i : PARTS - 1]);
        if (SETS == 1 || i + 1 < COLUMNS) add_columns(st.even, st.odd, st.to, D, st.dkv[i % SETS], i);
        if (SETS == 1 && i + 1 < COLUMNS) {
            wgmma_fence();
            start_dkv<D, WG>(st.dkv[0], st.own, at, i + 1);
        }
    }
    wgmma_fence_operand(st.own);
}

/* Adds the last 64 columns of dkv that multiply_tile() has left in registers, if any. */
template <int D> __device__ inline void add_rest(state<D> &st)
{
    if (state<D>::SETS == 2) add_columns(st.even, st.odd, st.to, D, st.dkv[(HALF - 1) % state<D>::SETS], HALF - 1);
}

template <int D, int WG> __device__ inline void store_dq(const state<D> &st, const pb_mla &p, const item &it, int r)
{
    bf16 *to = (bf16 *)p.dq + (it.token * p.H + it.h + r) * D, *to8 = to + 8 * D;
    if (it.h + r >= p.H) to = NULL;
    if (it.h + r + 8 >= p.H) to8 = NULL;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int col = WG * V / 2 + n * 128;
        store_rows<16>(st.dq[n], 1, 1, to ? to + col : NULL, to8 ? to8 + col : NULL, 128);
    }
    if (D > V && WG == 0) store_rows<8>(st.rope, 1, 1, to ? to + V : NULL, to8 ? to8 + V : NULL, 64);
}

template <int D, int WG> __device__ void consume(shared<D> &sm, const task &a)
{
    const pb_mla &p = a.p;
    const operand_offsets<D> at = {k_major_desc(&sm), mn_major_desc(&sm, PANEL_BYTES)};
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int first_row = warp * 16 + lane / 4, col = threadIdx.x % 4;
    bf16 *const weight = sm.weight + first_row * 64 + col * 2, *const ds = sm.ds + first_row * 64 + col * 2;
    uint32_t tile = 0, heads = 0; /* tiles, and items with a tile, that this CTA has processed */
    for (int number = blockIdx.x; number < a.items; number += gridDim.x) {
        const item it = item_of(number, a);
        state<D> st;
#pragma unroll
        for (int n = 0; n < 32; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) st.dq[n / 16][n % 16][e] = 0, st.rope[n % 8][e] = 0;
        st.even[0] = st.even[1] = st.odd[0] = st.odd[1] = -1;
        st.to = a.sum + (size_t)it.b * p.S_kv * D + WG * V / 2 + col * 4 + (threadIdx.x & 4) * 4;
        if (it.tiles > 0) barrier_wait(&sm.q_full, heads++ & 1);
        for (int t = 0; t < it.tiles; t++, tile++) {
            float s[8][4];
            barrier_wait(&sm.kv_full, tile & 1);
            start_scores<D, WG>(s, at);
            wgmma_wait<1>(); /* already complete; this tells ptxas that the registers that add_rest reads are final */
            add_rest(st);
            wgmma_wait<0>();
            wgmma_fence_operand(s);
            const int row[2] = {sm.row[first_row], sm.row[first_row + 8]};
            const bool there[2] = {row[0] >= 0, row[1] >= 0};
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int other = __shfl_xor_sync(0xffffffffu, row[n], 4);
                st.even[n] = threadIdx.x & 4 ? other : row[n], st.odd[n] = threadIdx.x & 4 ? row[n] : other;
            }
            make_operands<D, WG>(st, sm, s, there, weight, ds, p, tile);
            multiply_tile<D, WG>(st, sm, at, t + 1 == it.tiles);
            if (WG == 1) release(&sm.weight_empty);
        }
        add_rest(st);
        store_dq<D, WG>(st, p, it, first_row);
    }
}

template <int D> __device__ inline void init(shared<D> &sm)
{
    barrier_init(&sm.q_full, 2), barrier_init(&sm.kv_full, 4 * WARP_ARRIVES),
        barrier_init(&sm.kv_empty, WARPS * WARP_ARRIVES);
    for (int n = 0; n < PARTS; n++) barrier_init(&sm.q_empty[n], WARPS * WARP_ARRIVES);
    barrier_init(&sm.weight_full, 4 * WARP_ARRIVES), barrier_init(&sm.weight_empty, 4 * WARP_ARRIVES);
    barrier_inits_done();
}
#endif

template <int D>
__global__ __launch_bounds__(THREADS, 1) void bwd_kernel(const __grid_constant__ maps m, const __grid_constant__ task a)
{
#ifdef PB_SM90_CODE
    extern __shared__ __align__(1024) unsigned char smem[];
    shared<D> &sm = *reinterpret_cast<shared<D> *>(smem);
    if (threadIdx.x == 0) init(sm), tensor_map_prefetch(&m.q), tensor_map_prefetch(&m.dO);
    __syncthreads();
    const int wg = warpgroup();
    if (wg == 0) {
        registers_fewer<PRODUCER_REGS>();
        produce(sm, m, a);
    } else if (wg == 1) {
        registers_more<CONSUMER_REGS>();
        consume<D, 0>(sm, a);
    } else {
        registers_more<CONSUMER_REGS>();
        consume<D, 1>(sm, a);
    }
#endif
}

/* Removes masked slots from the key lists, one warp per token: writes the count of unmasked rows and then those rows in
 * order. */
__global__ __launch_bounds__(MLA_THREADS) void list_kernel(const pb_mla p, int *lists)
{
    const size_t token = (size_t)blockIdx.x * (MLA_THREADS / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    int n = 0;
    if (token >= (size_t)p.B * p.S) return;
    const pb_mla_keys keys = {p.idx + token * p.W, 0, p.W};
    int *const to = lists + token * (p.W + 1);
#pragma unroll 4
    for (int w = lane; w - lane < p.W; w += 32) {
        const int row = w < p.W ? pb_mla_row(&p, &keys, w) : -1;
        const uint32_t there = __ballot_sync(0xffffffffu, row >= 0);
        if (row >= 0) to[1 + n + __popc(there & ((1u << lane) - 1))] = row;
        n += __popc(there);
    }
    if (lane == 0) to[0] = n;
}

template <int D> pb_status launch(pb_ctx *ctx, const task &a)
{
    constexpr size_t bytes = sizeof(shared<D>);
    static_assert(bytes <= 232448, "more shared memory than a CTA of sm_90 can have");
    const pb_mla &p = a.p;
    const int sms = pb_cuda_device_of(ctx)->sms, grid = a.items < sms ? a.items : sms;
    maps m;
    /* the heads of a token are the rows of a TMA box; heads from H on are filled with zeros */
    PB_TRY(tensor_map(&m.q, p.q, D, p.B * p.S, p.H, 1, D, HEADS));
    PB_TRY(tensor_map(&m.dO, p.dO, V, p.B * p.S, p.H, 1, V, HEADS));
    PB_TRY(pb_cuda_allow_shared(bwd_kernel<D>, bytes));
    bwd_kernel<D><<<grid, THREADS, bytes, pb_cuda_stream(ctx)>>>(m, a);
    return pb_cuda_launched(ctx, "mla_bwd wgmma");
}
} // namespace

bool pb_mla_bwd_wgmma_takes(const pb_mla *p)
{
    return (p->D == V || p->D == 576) && p->V == V && pb_mla_mma_takes(p) &&
           (int64_t)p->B * p->S * ((p->H + HEADS - 1) / HEADS) <= INT32_MAX / 2;
}

/* Returns the size of the workspace: that of pb_mla_bwd_mma (f32 sums of dkv, delta, terms of dsink), followed by the
 * lists without masked slots. */
size_t pb_mla_bwd_wgmma_workspace(const pb_mla *p)
{
    return pb_mla_bwd_mma_workspace(p) + (p->idx ? (size_t)p->B * p->S * (p->W + 1) * sizeof(int) : 0);
}

pb_status pb_mla_bwd_wgmma(pb_ctx *ctx, const pb_mla *p)
{
    const int blocks = (p->H + HEADS - 1) / HEADS;
    float *sum = (float *)ctx->scratch, *delta = sum + mla_sums_of(*p);
    task a = {*p, delta, sum, blocks, p->B * p->S * blocks};
    PB_TRY(pb_mla_dsink_cuda(ctx, p, delta));
    PB_TRY(mla_clear(ctx, *p, sum));
    if (p->idx) {
        const unsigned warps = MLA_THREADS / 32, tokens = (unsigned)(p->B * p->S);
        int *lists = (int *)((char *)ctx->scratch + pb_mla_bwd_mma_workspace(p));
        list_kernel<<<(tokens + warps - 1) / warps, MLA_THREADS, 0, pb_cuda_stream(ctx)>>>(*p, lists);
        PB_TRY(pb_cuda_launched(ctx, "mla_bwd wgmma, lists"));
        a.p.idx = lists + 1, a.p.W = p->W + 1;
    }
    PB_TRY(p->D == V ? launch<V>(ctx, a) : launch<576>(ctx, a));
    return mla_round<BY_QUADS>(ctx, *p, sum);
}
