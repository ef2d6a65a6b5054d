/* sparse_mla_wgmma.cu - MLA forward with wgmma on sm_90a: bf16, D 512 or 576, V 512, after FlashMLA's sparse prefill.
 *
 * Persistent kernel: one CTA per SM. A tile is 64 heads of one token; tiles are dealt in snake order. The rows of kv
 * that the token attends to (slots of its key list) are processed in pairs of blocks of 64 rows. Keys are all D columns
 * of a row, values are its first V columns. A masked slot becomes a row of zeros with weight 0.
 *
 * Roles:
 *
 *   threads     warps    role     registers per thread   work
 *   0..127      0..3     left     216                    scores and softmax of block 0; output columns 0..255
 *   128..255    4..7     right    216                    scores and softmax of block 1; output columns 256..511
 *   256..383    8..11    gather   72                     cp.async of kv rows; thread 256 also loads q by TMA
 *
 * Pipeline of one pair (K0, K1: its blocks; V0, V1: their first V columns; Ol, Or: halves of the output):
 *
 *   gather    K0 parts 0 1 2 3           K1 parts 2 3 0 1          next pair, each part as soon as it is free
 *                |                          |
 *   left      S0 = q K0^T, softmax, P0 ---------+--> Ol += P0 V0 ------------------> wait for P1, Ol += P1 V1
 *                                           |   | P0                                    ^
 *                                           |   v                                       | P1
 *   right     S1 = q K1^T ----------------------> Or += P0 V0, softmax of S1 meanwhile -+--> Or += P1 V1
 *
 * A warpgroup multiplies its own weights from registers and those of the other from shared memory. `gather` runs ahead
 * into the next tile.
 *
 * The two warpgroups pass the reference maximum to each other along with the weights (left -> right -> left). It is
 * raised only when a weight would exceed 2^SLACK, so rescaling is rare.
 *
 * Barriers (struct shared). A block has 2 PARTS = 4 parts of 128 columns; parts 0 and 1 belong to `left`, 2 and 3 to
 * `right`:
 *
 *   mbarrier       arrivals                             waited for by   a completed phase means
 *   q_full         gather, 1, and TMA bytes             left, right     q of this tile is in shared memory
 *   q_free         128 lanes of right, after last S1    gather          q may be overwritten
 *   k_full[b][x]   128 cp.async arrivals of gather; at  left, right     part x of block b is in shared memory, and with
 *                  the part loaded first, also 4                        the first part also seen[b]
 *                  warps with the mask
 *   k_free[b][x]   128 lanes of the half's owner,       gather          part x of block b may be overwritten
 *                  after its last product with it
 *   w_full[LEFT]   128 lanes of left                    right           P0, state[LEFT] and `moved` are written
 *   w_full[RIGHT]  128 lanes of right                   left            P1 and state[RIGHT] are written
 *   named barrier LEFT_SCORES_DONE (D 576): the 128 threads of left; S0 is complete, P0 may overwrite columns of K0
 *
 * DESIGN.md shows why no further barriers are needed. */
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/sparse_mla/mla_impls.cuh"

namespace
{
typedef __nv_bfloat16 bf16;
enum { HEADS = 64, KEYS = 64, V = 512, THREADS = 384, MATH_REGS = 216, GATHER_REGS = 72 };
enum { LEFT, RIGHT }; /* index of an output half, of the warpgroup that owns it, and of a block in a pair */
enum named_barrier { LEFT_SCORES_DONE = 1 /* see the top of the file */ };
/* PANEL: elements of 64 columns of a tile. Each half of a block is loaded and freed in PARTS parts (1 or 2) of WIDE
 * panels; the last part of a block also has the columns from V on. */
enum { PANEL = KEYS * 64, PANEL_BYTES = PANEL * 2, PARTS = 2, WIDE = V / 2 / 64 / PARTS, TILES = WIDE * 8 };

/* Returns the part of block 1 that is freed, loaded and read as the n-th: the parts of the right half come first. */
__device__ constexpr int second_part(int n) { return (n + PARTS) % (2 * PARTS); }

template <int D> struct alignas(1024) shared {
    bf16 q[HEADS * D], k[2][KEYS * D];
    bf16 w[D == V ? 2 : 1][PANEL]; /* P1; at D 512 also P0 (at D 576 see left_weights) */
    float2 state[2][HEADS];        /* per warpgroup and row: maximum; in the last pair also the sum of weights */
    uint16_t seen[2][KEYS / 16];   /* per block: one bit per slot, 1: not masked */
    alignas(4) bool moved[4];      /* per warp of `left`: true if its latest weights raised the maximum of a row */
    /* mbarriers; the comment at the top of the file says who arrives, and what each completed phase means. k_full and
     * k_free are [block][part]. */
    uint64_t q_full, q_free, k_full[2][2 * PARTS], k_free[2][2 * PARTS], w_full[2];

    /* Returns the tile for P0, the weights of block 0. At D 576 it overwrites the columns of K0 from V on, which only
     * `left` reads, and only for S0. These columns are freed with the last part of K0. */
    __device__ bf16 *left_weights(void) { return D == V ? w[D == V] : k[LEFT] + V / 64 * PANEL; }
};

#ifdef PB_SM90_CODE
constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;
/* The reference maximum of the softmax is raised only when a weight would exceed 2^SLACK. Otherwise it stays, and
 * nothing is rescaled. */
constexpr float SLACK = 8;

/* ---- tiles: 64 heads of one token, and the keys it attends to ------------------------------------------------ */

struct tile {
    pb_mla_keys keys;
    int b, token, h, pairs; /* token: b S + i; h: first head; pairs: at least 1, even if every slot is masked */
};
/* Returns the tile with number t. Dense causal attention: the last tokens attend to the most keys and come first. */
__device__ inline tile tile_of(int t, const pb_mla &p)
{
    const int parts = (p.H + HEADS - 1) / HEADS, n = t / parts;
    const int b = p.idx ? n / p.S : n % p.B, i = p.idx ? n % p.S : p.S - 1 - n / p.B;
    const pb_mla_keys keys = pb_mla_keys_of(&p, b, i);
    return {keys, b, b * p.S + i, t % parts * HEADS, max(1, (keys.n + 2 * KEYS - 1) / (2 * KEYS))};
}

/* ---- the role gather: loading rows of kv, and q -------------------------------------------------------------- */

/* Which rows a lane copies: a warp copies rows 16 warp .. 16 warp + 15 of a block, four at a time with eight lanes per
 * row. This lane's row j is first + 4j, and it copies chunk `chunk` (16 bytes) of every panel. */
struct gatherer {
    int first, chunk;
    uint64_t policy;
};

/* Reads from the key list which rows of kv are in this lane's slots of pair j; -1 after the last slot. The indices may
 * be out of range: publish_mask and copy_part check them. */
__device__ inline void look_up_rows(int (&row)[2][4], const gatherer &g, const tile &own, int j)
{
#pragma unroll
    for (int e = 0; e < 8; e++) {
        const int slot = (2 * j + e / 4) * KEYS + g.first + e % 4 * 4;
        row[e / 4][e % 4] = slot >= own.keys.n ? -1 : own.keys.list ? own.keys.list[slot] : own.keys.first + slot;
    }
}

/* Writes the mask bits of this warp's 16 slots and arrives at `full`: one of its 4 + 128 arrivals. */
__device__ inline void publish_mask(uint16_t *seen, uint64_t *full, const int (&row)[4], int rows)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t lanes = __ballot_sync(0xffffffffu, (unsigned)row[j] < (unsigned)rows);
        bits |= ((lanes & 1) | (lanes >> 7 & 2) | (lanes >> 14 & 4) | (lanes >> 21 & 8)) << (4 * j);
    }
    if (lane == 0) {
        seen[warp] = (uint16_t)bits;
        barrier_arrive(full);
    }
}

/* Starts to copy part x of this lane's rows to block `to` and arrives at `full` when the copy is complete. Rows of
 * masked slots become 0. */
template <int D>
__device__ inline void copy_part(bf16 *to, uint64_t *full, int x, const int (&row)[4], const gatherer &g,
                                 const bf16 *kv, int rows)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const bool there = (unsigned)row[j] < (unsigned)rows;
        const bf16 *from = kv + (there ? (size_t)row[j] * D : 0) + g.chunk * 8;
        bf16 *at = to + (g.first + 4 * j) * 64 + ((g.chunk ^ ((g.first + 4 * j) & 7)) << 3);
#pragma unroll
        for (int n = x * WIDE; n < (x + 1) * WIDE; n++) copy_async_kept(at + n * PANEL, from + n * 64, there, g.policy);
        if (D > V && x == 2 * PARTS - 1) copy_async_kept(at + V / 64 * PANEL, from + V, there, g.policy);
    }
    barrier_arrive_copied(full);
}

template <int D> __device__ inline void load_q(shared<D> &sm, const CUtensorMap *map, const tile &own)
{
    barrier_expect(&sm.q_full, sizeof sm.q);
#pragma unroll
    for (int n = 0; n < D / 64; n++) tma_load(sm.q + n * PANEL, map, &sm.q_full, n * 64, 0, own.h, own.token);
}

template <int D> __device__ void gather(shared<D> &sm, const CUtensorMap *map, const pb_mla &p, int total)
{
    const gatherer g = {(int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 8, (int)threadIdx.x % 8,
                        kept_in_l2()};
    uint32_t free = 1, q_free = 1; /* parities to wait for: on a fresh mbarrier, parity 1 counts as completed */
    int t = blockIdx.x, j = 0, next[2][4];
    tile own = tile_of(t, p);
    look_up_rows(next, g, own, 0);
    while (t < total) {
        const bf16 *kv = (const bf16 *)p.kv + (size_t)own.b * p.S_kv * D;
        const tile now = own;
        const bool first = j == 0;
        int row[2][4];
#pragma unroll
        for (int e = 0; e < 8; e++) row[e / 4][e % 4] = next[e / 4][e % 4];
        if (++j == own.pairs) {
            j = 0, t = next_tile(t);
            if (t < total) own = tile_of(t, p);
        }
        if (t < total) look_up_rows(next, g, own, j);

#pragma unroll
        for (int x = 0; x < 2 * PARTS; x++) {
            barrier_wait(&sm.k_free[LEFT][x], free);
            if (x == 0) publish_mask(sm.seen[LEFT], &sm.k_full[LEFT][x], row[LEFT], p.S_kv);
            copy_part<D>(sm.k[LEFT], &sm.k_full[LEFT][x], x, row[LEFT], g, kv, p.S_kv);
            if (x == 0 && first) {
                if (threadIdx.x % 128 == 0) barrier_wait(&sm.q_free, q_free), load_q(sm, map, now);
                __syncwarp();
                q_free ^= 1;
            }
        }
#pragma unroll
        for (int n = 0; n < 2 * PARTS; n++) {
            const int x = second_part(n);
            barrier_wait(&sm.k_free[RIGHT][x], free);
            if (n == 0) publish_mask(sm.seen[RIGHT], &sm.k_full[RIGHT][x], row[RIGHT], p.S_kv);
            copy_part<D>(sm.k[RIGHT], &sm.k_full[RIGHT][x], x, row[RIGHT], g, kv, p.S_kv);
        }
        free ^= 1;
    }
    copy_commit(), copy_wait<0>();
}

/* ---- online softmax, whose maximum both warpgroups share ----------------------------------------------------- */

/* State of the online softmax of rows g and g+8 (g = lane/4), with scores in base 2. top: the reference maximum,
 * weights are 2^(score - top); sum: sum of the weights that this lane has computed. */
struct softmax {
    float top[2], sum[2];
};

/* Sets the reference maximum to `top` and `keep` to the factor that rescales earlier sums and outputs. Returns true if
 * the maximum of any row of the warp changed. */
__device__ inline bool set_maximum(softmax &st, const float (&top)[2], float (&keep)[2])
{
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float base = top[r] == -INFINITY ? 0 : top[r]; /* no key and no sink yet: weights are 0, not NaN */
        keep[r] = pb_exp2_fast(st.top[r] - base);
        moved |= top[r] != st.top[r];
        st.sum[r] *= keep[r], st.top[r] = top[r];
    }
    return __any_sync(0xffffffffu, moved);
}

/* Replaces the scores in s by weights and updates the softmax. `seen`: one bit per column, 1: not masked; sl = scale
 * log2(e) > 0. Returns the result of set_maximum(). */
__device__ inline bool weigh(float (&s)[8][4], uint64_t seen, softmax &st, float sl, float (&keep)[2])
{
    if (seen != ~(uint64_t)0) {
        const uint64_t mine = seen >> threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (!(mine >> (8 * n + e % 2) & 1)) s[n][e] = -INFINITY;
    }
    float top[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = fmaxf(s[0][2 * r], s[0][2 * r + 1]);
#pragma unroll
        for (int n = 1; n < 8; n++) most = fmaxf(most, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)) * sl;
        top[r] = most > st.top[r] + SLACK ? most : st.top[r];
    }
    const bool moved = set_maximum(st, top, keep);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float base = top[r] == -INFINITY ? 0 : top[r];
        float sum[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                s[n][2 * r + e] = pb_exp2_fast(s[n][2 * r + e] * sl - base);
                sum[e] += s[n][2 * r + e];
            }
        st.sum[r] += sum[0] + sum[1];
    }
    return moved;
}

/* Writes weights, maximum and sum to shared memory for the other warpgroup. In the last pair the sum covers the whole
 * row. Otherwise it covers this lane's weights only and is not used. */
__device__ inline void publish(bf16 *to, float2 *state, uint64_t *full, const uint32_t (&w)[KEYS / 16][4], softmax &st,
                               bool last)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) store_operand(to, w[k], row + lane % 16, 2 * k + lane / 16);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (last) {
            st.sum[r] += __shfl_xor_sync(0xffffffffu, st.sum[r], 1);
            st.sum[r] += __shfl_xor_sync(0xffffffffu, st.sum[r], 2);
        }
        if (lane % 4 == 0) state[row + lane / 4 + 8 * r] = make_float2(st.top[r], st.sum[r]);
    }
    fence_async_shared();
    release(full);
}
/* Sets the reference maximum to that of the other warpgroup; `sum` receives its sums of weights. Returns the result of
 * set_maximum(). */
__device__ inline bool adopt_other_maximum(softmax &st, const float2 *state, float (&keep)[2], float (&sum)[2])
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int row = warp * 16 + lane / 4;
    const float2 a = state[row], b = state[row + 8];
    const float top[2] = {a.x, b.x};
    sum[0] = a.y, sum[1] = b.y;
    return set_maximum(st, top, keep);
}

/* ---- matrix products: scores, and outputs -------------------------------------------------------------------- */

/* This warpgroup's half of the outputs of this lane's rows, as [part][column tile][4]. */
typedef float outputs[PARTS][TILES][4];

__device__ inline void rescale(outputs &o, const float (&keep)[2])
{
#pragma unroll
    for (int n = 0; n < PARTS * TILES; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n / TILES][n % TILES][e] *= keep[e / 2];
}

/* Waits until a part of a block is in shared memory, and lets wgmma read it. */
__device__ inline void wait_for_part(uint64_t *full, uint32_t parity)
{
    barrier_wait(full, parity);
    fence_async_shared(); /* cp.async wrote through the generic proxy, wgmma reads through the async proxy */
    wgmma_fence();
}

/* Starts s = q k^T on one panel, or adds to s. */
__device__ inline void start_panel(float (&s)[8][4], operand_desc q, operand_desc k, int panel, bool add)
{
#pragma unroll
    for (int c = 0; c < 4; c++)
        wgmma<0, 0>(s, advance_desc(q, panel * PANEL_BYTES + c * 32), advance_desc(k, panel * PANEL_BYTES + c * 32),
                    add || c > 0);
}
/* Starts s = q k^T on part x of a block as one wgmma group, or adds to s. */
template <int D> __device__ inline void start_scores(float (&s)[8][4], operand_desc q, operand_desc k, int x, bool add)
{
#pragma unroll
    for (int n = 0; n < WIDE; n++) start_panel(s, q, k, x * WIDE + n, add || n > 0);
    if (D > V && x == 2 * PARTS - 1) start_panel(s, q, k, V / 64, true);
    wgmma_commit();
}
/* Starts o += w v, one wgmma group per part. This overload has w in registers. The second has w in shared memory and
 * waits for each part of v. */
__device__ inline void start_outputs(outputs &o, const uint32_t (&w)[KEYS / 16][4], operand_desc v)
{
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < PARTS; x++) {
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) wgmma(o[x], w[k], advance_desc(v, x * WIDE * PANEL_BYTES + k * 16 * 128));
        wgmma_commit();
    }
}
__device__ inline void start_outputs(outputs &o, operand_desc w, operand_desc v, uint64_t (&full)[2 * PARTS], int half,
                                     uint32_t parity)
{
#pragma unroll
    for (int x = 0; x < PARTS; x++) {
        wait_for_part(&full[half * PARTS + x], parity);
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
            wgmma<0, 1>(o[x], advance_desc(w, k * 32), advance_desc(v, x * WIDE * PANEL_BYTES + k * 16 * 128), 1);
        wgmma_commit();
    }
}
/* Waits for the products of start_outputs and frees each part of the block as soon as its product is complete. */
__device__ inline void end_outputs(outputs &o, uint64_t (&free)[2 * PARTS], int half)
{
#pragma unroll
    for (int x = 0; x < PARTS; x++) {
        if (x + 1 < PARTS) wgmma_wait<1>();
        else wgmma_wait<0>();
        wgmma_fence_operand(o[x]);
        release(&free[half * PARTS + x]);
    }
}

/* Returns the state of the softmax before the first key: the sink is the maximum, with weight 1. Only one lane of
 * `left` counts this weight in its sum. */
__device__ inline softmax softmax_start(const pb_mla &p, const tile &own, int wg)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    softmax st;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int h = own.h + warp * 16 + lane / 4 + 8 * r;
        st.top[r] = h < p.H ? p.sink[h] * LOG2E : 0;
        st.sum[r] = wg == LEFT && threadIdx.x % 4 == 0 && st.top[r] != -INFINITY ? 1 : 0;
    }
    return st;
}

/* Divides this warpgroup's half of the outputs by `sum`, the sum of the whole row, and stores it. `left` also stores
 * lse. */
__device__ inline void store(const outputs &o, const softmax &st, const float (&sum)[2], const pb_mla &p,
                             const tile &own, int wg)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    float f[2];
    bf16 *to[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int h = own.h + warp * 16 + lane / 4 + 8 * r;
        const size_t head = (size_t)own.token * p.H + h;
        f[r] = sum[r] == 0 ? 0 : 1 / sum[r];
        to[r] = h < p.H ? (bf16 *)p.o + head * V + wg * (V / 2) : NULL;
        if (wg == LEFT && h < p.H && threadIdx.x % 4 == 0)
            p.lse[head] = sum[r] == 0 ? -INFINITY : st.top[r] * LN2 + logf(sum[r]);
    }
#pragma unroll
    for (int x = 0; x < PARTS; x++)
        store_rows<TILES>(o[x], f[0], f[1], to[0] ? to[0] + x * WIDE * 64 : NULL, to[1] ? to[1] + x * WIDE * 64 : NULL,
                          V / 2);
}

template <int D> __device__ void left(shared<D> &sm, const pb_mla &p, int total)
{
    const operand_desc q = k_major_desc(sm.q), k = k_major_desc(sm.k[LEFT]), w_other = k_major_desc(sm.w[0]);
    const operand_desc v = mn_major_desc(sm.k[LEFT], PANEL_BYTES), v_other = mn_major_desc(sm.k[RIGHT], PANEL_BYTES);
    const float sl = p.scale * LOG2E;
    uint32_t parity = 0, q_parity = 0;
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of(t, p);
        softmax st = softmax_start(p, own, LEFT);
        outputs o = {};
        float keep[2], sum[2];
        barrier_wait(&sm.q_full, q_parity);
        for (int j = own.pairs; j > 0; j--, parity ^= 1) {
            float s[8][4];
            uint32_t w[KEYS / 16][4];
#pragma unroll
            for (int x = 0; x < 2 * PARTS; x++) {
                wait_for_part(&sm.k_full[LEFT][x], parity);
                start_scores<D>(s, q, k, x, x > 0);
            }
            wgmma_wait<0>();
            wgmma_fence_operand(s);
            const bool moved = weigh(s, *reinterpret_cast<const uint64_t *>(sm.seen[LEFT]), st, sl, keep);
            as_operand<KEYS / 8>(w, s);
            if (threadIdx.x % 32 == 0) sm.moved[threadIdx.x / 32 % 4] = moved;
            if (D > V) named_sync(LEFT_SCORES_DONE, 128); /* P0 overwrites columns that S0 of other warps reads */
            publish(sm.left_weights(), sm.state[LEFT], &sm.w_full[LEFT], w, st, j == 1);
            if (moved) rescale(o, keep);
            start_outputs(o, w, v);
            end_outputs(o, sm.k_free[LEFT], LEFT);
            wgmma_fence_operand(w);
            barrier_wait(&sm.w_full[RIGHT], parity);
            if (adopt_other_maximum(st, sm.state[RIGHT], keep, sum)) rescale(o, keep);
            start_outputs(o, w_other, v_other, sm.k_full[RIGHT], LEFT, parity);
            end_outputs(o, sm.k_free[RIGHT], LEFT);
        }
        sum[0] += st.sum[0], sum[1] += st.sum[1];
        store(o, st, sum, p, own, LEFT);
    }
}

template <int D> __device__ void right(shared<D> &sm, const pb_mla &p, int total)
{
    const operand_desc q = k_major_desc(sm.q), k = k_major_desc(sm.k[RIGHT]), w_other = k_major_desc(sm.left_weights());
    const operand_desc v = mn_major_desc(sm.k[RIGHT] + PARTS * WIDE * PANEL, PANEL_BYTES);
    const operand_desc v_other = mn_major_desc(sm.k[LEFT] + PARTS * WIDE * PANEL, PANEL_BYTES);
    const float sl = p.scale * LOG2E;
    uint32_t parity = 0, q_parity = 0;
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of(t, p);
        softmax st = softmax_start(p, own, RIGHT);
        outputs o = {};
        float keep[2], sum[2];
        barrier_wait(&sm.q_full, q_parity);
        for (int j = own.pairs; j > 0; j--, parity ^= 1) {
            float s[8][4];
            uint32_t w[KEYS / 16][4];
#pragma unroll
            for (int n = 0; n < 2 * PARTS; n++) {
                wait_for_part(&sm.k_full[RIGHT][second_part(n)], parity);
                start_scores<D>(s, q, k, second_part(n), n > 0);
            }
            barrier_wait(&sm.w_full[LEFT], parity);
            adopt_other_maximum(st, sm.state[LEFT], keep, sum);
            if (*reinterpret_cast<const uint32_t *>(sm.moved)) { /* a maximum was raised (rare); all four warps agree */
                wgmma_wait<0>();
                rescale(o, keep);
            }
            start_outputs(o, w_other, v_other, sm.k_full[LEFT], RIGHT, parity);
            wgmma_wait<PARTS>();
            wgmma_fence_operand(s);
            if (j == 1) release(&sm.q_free);
            const bool moved = weigh(s, *reinterpret_cast<const uint64_t *>(sm.seen[RIGHT]), st, sl, keep);
            as_operand<KEYS / 8>(w, s);
            publish(sm.w[0], sm.state[RIGHT], &sm.w_full[RIGHT], w, st, j == 1);
            end_outputs(o, sm.k_free[LEFT], RIGHT);
            if (moved) rescale(o, keep);
            start_outputs(o, w, v);
            end_outputs(o, sm.k_free[RIGHT], RIGHT);
            wgmma_fence_operand(w);
        }
        sum[0] = sum[0] * keep[0] + st.sum[0], sum[1] = sum[1] * keep[1] + st.sum[1];
        store(o, st, sum, p, own, RIGHT);
    }
}

template <int D> __device__ inline void init(shared<D> &sm)
{
    barrier_init(&sm.q_full, 1), barrier_init(&sm.q_free, 4 * WARP_ARRIVES);
    for (int b = 0; b < 2; b++) {
        barrier_init(&sm.w_full[b], 4 * WARP_ARRIVES);
        for (int x = 0; x < 2 * PARTS; x++)
            barrier_init(&sm.k_full[b][x], x == (b == LEFT ? 0 : second_part(0)) ? 128 + 4 : 128),
                barrier_init(&sm.k_free[b][x], 4 * WARP_ARRIVES);
    }
    barrier_inits_done();
}
#endif

template <int D>
__global__ __launch_bounds__(THREADS, 1) void fwd_kernel(const __grid_constant__ CUtensorMap q, const pb_mla p,
                                                         int total)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    shared<D> &sm = *reinterpret_cast<shared<D> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    if (threadIdx.x == 0) {
        init(sm);
        tensor_map_prefetch(&q);
    }
    __syncthreads();
    const int wg = warpgroup();
    if (wg == 2) {
        registers_fewer<GATHER_REGS>();
        gather(sm, &q, p, total);
    } else if (wg == LEFT) {
        registers_more<MATH_REGS>();
        left(sm, p, total);
    } else {
        registers_more<MATH_REGS>();
        right(sm, p, total);
    }
#endif
}

template <int D> pb_status launch(pb_ctx *ctx, const pb_mla &p)
{
    constexpr size_t bytes = sizeof(shared<D>) + 1024; /* 1024: dynamic shared memory may start unaligned */
    static_assert(bytes <= 232448, "more shared memory than a CTA of sm_90 can have");
    const int total = p.B * p.S * ((p.H + HEADS - 1) / HEADS);
    const int sms = pb_cuda_device_of(ctx)->sms, blocks = total < sms ? total : sms;
    CUtensorMap q;
    PB_TRY(tensor_map(&q, p.q, D, p.B * p.S, p.H, 1, D, HEADS)); /* the token dimension of the map holds the heads */
    PB_TRY(pb_cuda_allow_shared(fwd_kernel<D>, bytes));
    fwd_kernel<D><<<blocks, THREADS, bytes, pb_cuda_stream(ctx)>>>(q, p, total);
    return pb_cuda_launched(ctx, "mla_fwd wgmma");
}
} // namespace

bool pb_mla_wgmma_takes(const pb_mla *p)
{
    const double tiles = (double)p->B * p->S * ((p->H + HEADS - 1) / HEADS);
    return (p->D == V || p->D == V + 64) && p->V == V && p->scale > 0 && tiles < 1 << 30 && pb_mla_mma_takes(p);
}

pb_status pb_mla_fwd_wgmma(pb_ctx *ctx, const pb_mla *p)
{
    return p->D == V ? launch<V>(ctx, *p) : launch<V + 64>(ctx, *p);
}
