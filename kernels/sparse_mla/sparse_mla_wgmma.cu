/* sparse_mla_wgmma.cu - the forward pass of MLA on the tensor cores of sm_90a, bf16, D 512 or 576 and V 512 (FlashMLA's
 * two warpgroups that hold half of the outputs each, with a maximum that seldom moves and weights published at once).
 *
 * One block stays on each multiprocessor and takes tiles of 64 heads of a token. Slots pass in pairs of blocks of 64
 * rows of kv. `left` holds columns 0..255 of the outputs and weighs the first block of a pair, `right` columns 256..511
 * and the second: each multiplies its own weights from registers and the other's from shared memory, so that one's
 * softmax runs beside the other's products. The third warpgroup gathers rows, half a block at a time as halves fall
 * free, and runs ahead into the next tile. A masked slot is a row of zeros with weight 0. The plan and every barrier:
 * DESIGN.md. */
#include "kernels/core/mma.cuh"
#include "kernels/core/tensor_map.cuh"
#include "kernels/core/wgmma.cuh"
#include "kernels/sparse_mla/mla_impls.cuh"

namespace
{
typedef __nv_bfloat16 bf16;
enum { HEADS = 64, KEYS = 64, V = 512, THREADS = 384, MATH_REGS = 216, GATHER_REGS = 72 };
enum { LEFT, RIGHT }; /* halves of the columns, the warpgroups that own them, and the blocks of a pair */
/* Elements and bytes of 64 columns of a tile. A block of rows is loaded and given back in 2 PARTS parts, PARTS (1 or 2)
 * a half, of WIDE panels each; the last has the columns behind V too. */
enum { PANEL = KEYS * 64, PANEL_BYTES = PANEL * 2, PARTS = 2, WIDE = V / 2 / 64 / PARTS, TILES = WIDE * 8 };

/* The order in which parts of the second block fall free, come back, and are read: the right half first. */
__device__ constexpr int second_part(int n) { return (n + PARTS) % (2 * PARTS); }

template <int D> struct alignas(1024) shared {
    bf16 q[HEADS * D], k[2][KEYS * D];
    bf16 w[D == V ? 2 : 1][PANEL]; /* of RIGHT; of LEFT, unless there is no room */
    float2 state[2][HEADS];        /* of each warpgroup's rows: maximum; after the last pair, the sum of weights too */
    uint16_t seen[2][KEYS / 16];   /* bits of a block's slots that are not masked */
    alignas(4) bool moved[4];      /* whether a warp of `left` moved a maximum for the weights it published last */
    uint64_t q_full, q_free, k_full[2][2 * PARTS], k_free[2][2 * PARTS], w_full[2]; /* k: [block][part] */

    /* Columns V.. of the first block are read by `left` alone, before it has weights; they fall free with these. */
    __device__ bf16 *left_weights(void) { return D == V ? w[D == V] : k[LEFT] + V / 64 * PANEL; }
};

#ifdef PB_SM90_CODE
constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;
/* The maximum that weights are relative to moves only where one would exceed 2^SLACK: else nothing is rescaled. */
constexpr float SLACK = 8;

/* ---- tiles --------------------------------------------------------------------------------------------------- */

struct tile {
    pb_mla_keys keys;
    int b, token, h, pairs; /* token: of all batch rows; h: the first head; at least one pair, be it masked */
};
/* Dense causal tokens see the more the later they stand: those come first. */
__device__ inline tile tile_of(int t, const pb_mla &p)
{
    const int parts = (p.H + HEADS - 1) / HEADS, n = t / parts;
    const int b = p.idx ? n / p.S : n % p.B, i = p.idx ? n % p.S : p.S - 1 - n / p.B;
    const pb_mla_keys keys = pb_mla_keys_of(&p, b, i);
    return {keys, b, b * p.S + i, t % parts * HEADS, max(1, (keys.n + 2 * KEYS - 1) / (2 * KEYS))};
}

/* ---- gathering ----------------------------------------------------------------------------------------------- */

/* A warp gathers rows 16w .. 16w+15 of a block, four at a time, eight lanes a row: a lane's row j is first + 4j. */
struct gatherer {
    int first, chunk;
    uint64_t policy;
};

/* Reads which rows stand in this lane's slots of pair j, unchecked; -1 behind the last slot. */
__device__ inline void look_up(int (&row)[2][4], const gatherer &g, const tile &own, int j)
{
#pragma unroll
    for (int e = 0; e < 8; e++) {
        const int slot = (2 * j + e / 4) * KEYS + g.first + e % 4 * 4;
        row[e / 4][e % 4] = slot >= own.keys.n ? -1 : own.keys.list ? own.keys.list[slot] : own.keys.first + slot;
    }
}

/* Tells which slots of this warp's rows are not masked; one of 4 + 128 arrivals at `full`. */
__device__ inline void mark(uint16_t *seen, uint64_t *full, const int (&row)[4], int rows)
{
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t lanes = __ballot_sync(0xffffffffu, (unsigned)row[j] < (unsigned)rows);
        bits |= ((lanes & 1) | (lanes >> 7 & 2) | (lanes >> 14 & 4) | (lanes >> 21 & 8)) << (4 * j);
    }
    if (threadIdx.x % 32 == 0) {
        seen[threadIdx.x % 128 / 32] = (uint16_t)bits;
        barrier_arrive(full);
    }
}

/* Copies part x of this lane's rows to the block `to`; those of masked slots become 0. */
template <int D>
__device__ inline void fill(bf16 *to, uint64_t *full, int x, const int (&row)[4], const gatherer &g, const bf16 *kv,
                            int rows)
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
    uint32_t free = 1, q_free = 1; /* parities: of fresh barriers the phase before is over */
    int t = blockIdx.x, j = 0, next[2][4];
    tile own = tile_of(t, p);
    look_up(next, g, own, 0);
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
        if (t < total) look_up(next, g, own, j);

#pragma unroll
        for (int x = 0; x < 2 * PARTS; x++) {
            barrier_wait(&sm.k_free[LEFT][x], free);
            if (x == 0) mark(sm.seen[LEFT], &sm.k_full[LEFT][x], row[LEFT], p.S_kv);
            fill<D>(sm.k[LEFT], &sm.k_full[LEFT][x], x, row[LEFT], g, kv, p.S_kv);
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
            if (n == 0) mark(sm.seen[RIGHT], &sm.k_full[RIGHT][x], row[RIGHT], p.S_kv);
            fill<D>(sm.k[RIGHT], &sm.k_full[RIGHT][x], x, row[RIGHT], g, kv, p.S_kv);
        }
        free ^= 1;
    }
    copy_commit(), copy_wait<0>();
}

/* ---- softmax ------------------------------------------------------------------------------------------------- */

/* Rows g and g+8 of this lane's quad, in powers of two: what weights are relative to, and this lane's part of their
 * sum.
 */
struct softmax {
    float top[2], sum[2];
};

/* Weights are relative to `top` from now on: what was summed before counts `keep`. Whether it moved for the warp. */
__device__ inline bool follow(softmax &st, const float (&top)[2], float (&keep)[2])
{
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float base = top[r] == -INFINITY ? 0 : top[r]; /* nothing seen and no sink: weights 0, not NaN */
        keep[r] = pb_exp2_fast(st.top[r] - base);
        moved |= top[r] != st.top[r];
        st.sum[r] *= keep[r], st.top[r] = top[r];
    }
    return __any_sync(0xffffffffu, moved);
}

/* Scores become weights. `seen`: bits of their columns; sl = scale log2(e) > 0. */
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
    const bool moved = follow(st, top, keep);
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

/* Weights and state to shared memory, for the other warpgroup; in the last pair with the sum of the whole row. */
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
/* Takes over the other's maximum; its sums. */
__device__ inline bool follow_other(softmax &st, const float2 *state, float (&keep)[2], float (&sum)[2])
{
    const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const float2 a = state[row], b = state[row + 8];
    const float top[2] = {a.x, b.x};
    sum[0] = a.y, sum[1] = b.y;
    return follow(st, top, keep);
}

/* ---- products ------------------------------------------------------------------------------------------------ */

/* Half of the outputs of this lane's rows, part by part. */
typedef float outputs[PARTS][TILES][4];

__device__ inline void rescale(outputs &o, const float (&keep)[2])
{
#pragma unroll
    for (int n = 0; n < PARTS * TILES; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n / TILES][n % TILES][e] *= keep[e / 2];
}

/* Waits for part of a block. */
__device__ inline void arrived(uint64_t *full, uint32_t parity)
{
    barrier_wait(full, parity);
    fence_async_shared(); /* copies of single threads, read by products */
    wgmma_fence();
}

/* Starts s = q k^T on part x, or adds to it. */
__device__ inline void start_panel(float (&s)[8][4], factor q, factor k, int panel, bool add)
{
#pragma unroll
    for (int c = 0; c < 4; c++)
        wgmma<0, 0>(s, step(q, panel * PANEL_BYTES + c * 32), step(k, panel * PANEL_BYTES + c * 32), add || c > 0);
}
template <int D> __device__ inline void start_scores(float (&s)[8][4], factor q, factor k, int x, bool add)
{
#pragma unroll
    for (int n = 0; n < WIDE; n++) start_panel(s, q, k, x * WIDE + n, add || n > 0);
    if (D > V && x == 2 * PARTS - 1) start_panel(s, q, k, V / 64, true);
    wgmma_commit();
}
/* Starts o += w v, a group for each part; w from registers, or from shared memory. */
__device__ inline void start_outputs(outputs &o, const uint32_t (&w)[KEYS / 16][4], factor v)
{
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < PARTS; x++) {
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) wgmma(o[x], w[k], step(v, x * WIDE * PANEL_BYTES + k * 16 * 128));
        wgmma_commit();
    }
}
__device__ inline void start_outputs(outputs &o, factor w, factor v, uint64_t (&full)[2 * PARTS], int half,
                                     uint32_t parity)
{
#pragma unroll
    for (int x = 0; x < PARTS; x++) {
        arrived(&full[half * PARTS + x], parity);
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
            wgmma<0, 1>(o[x], step(w, k * 32), step(v, x * WIDE * PANEL_BYTES + k * 16 * 128), 1);
        wgmma_commit();
    }
}
/* Waits for them, and gives back what they have read. */
__device__ inline void end_outputs(outputs &o, uint64_t (&free)[2 * PARTS], int half)
{
#pragma unroll
    for (int x = 0; x < PARTS; x++) {
        if (x + 1 < PARTS) wgmma_wait<1>();
        else wgmma_wait<0>();
        settled(o[x]);
        release(&free[half * PARTS + x]);
    }
}

/* The state before any key: the sink is a weight of 1, counted by one lane of `left`. */
__device__ inline softmax softmax_start(const pb_mla &p, const tile &own, int wg)
{
    softmax st;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int h = own.h + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r;
        st.top[r] = h < p.H ? p.sink[h] * LOG2E : 0;
        st.sum[r] = wg == LEFT && threadIdx.x % 4 == 0 && st.top[r] != -INFINITY ? 1 : 0;
    }
    return st;
}

/* Half of the outputs; `sum` is that of the whole row. `left` stores lse. */
__device__ inline void store(const outputs &o, const softmax &st, const float (&sum)[2], const pb_mla &p,
                             const tile &own, int wg)
{
    float f[2];
    bf16 *to[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int h = own.h + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r;
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
    const factor q = factor_k_major(sm.q), k = factor_k_major(sm.k[LEFT]), w_other = factor_k_major(sm.w[0]);
    const factor v = factor_mn_major(sm.k[LEFT], PANEL_BYTES), v_other = factor_mn_major(sm.k[RIGHT], PANEL_BYTES);
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
                arrived(&sm.k_full[LEFT][x], parity);
                start_scores<D>(s, q, k, x, x > 0);
            }
            wgmma_wait<0>();
            settled(s);
            const bool moved = weigh(s, *reinterpret_cast<const uint64_t *>(sm.seen[LEFT]), st, sl, keep);
            as_operand<KEYS / 8>(w, s);
            if (threadIdx.x % 32 == 0) sm.moved[threadIdx.x / 32 % 4] = moved;
            if (D > V) named_sync(1, 128); /* where the weights go, other warps' products may still read columns */
            publish(sm.left_weights(), sm.state[LEFT], &sm.w_full[LEFT], w, st, j == 1);
            if (moved) rescale(o, keep);
            start_outputs(o, w, v);
            end_outputs(o, sm.k_free[LEFT], LEFT);
            settled(w);
            barrier_wait(&sm.w_full[RIGHT], parity);
            if (follow_other(st, sm.state[RIGHT], keep, sum)) rescale(o, keep);
            start_outputs(o, w_other, v_other, sm.k_full[RIGHT], LEFT, parity);
            end_outputs(o, sm.k_free[RIGHT], LEFT);
        }
        sum[0] += st.sum[0], sum[1] += st.sum[1];
        store(o, st, sum, p, own, LEFT);
    }
}

template <int D> __device__ void right(shared<D> &sm, const pb_mla &p, int total)
{
    const factor q = factor_k_major(sm.q), k = factor_k_major(sm.k[RIGHT]), w_other = factor_k_major(sm.left_weights());
    const factor v = factor_mn_major(sm.k[RIGHT] + PARTS * WIDE * PANEL, PANEL_BYTES);
    const factor v_other = factor_mn_major(sm.k[LEFT] + PARTS * WIDE * PANEL, PANEL_BYTES);
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
                arrived(&sm.k_full[RIGHT][second_part(n)], parity);
                start_scores<D>(s, q, k, second_part(n), n > 0);
            }
            barrier_wait(&sm.w_full[LEFT], parity);
            follow_other(st, sm.state[LEFT], keep, sum);
            if (*reinterpret_cast<const uint32_t *>(sm.moved)) { /* seldom; all four warps wait, or none */
                wgmma_wait<0>();
                rescale(o, keep);
            }
            start_outputs(o, w_other, v_other, sm.k_full[LEFT], RIGHT, parity);
            wgmma_wait<PARTS>();
            settled(s);
            if (j == 1) release(&sm.q_free);
            const bool moved = weigh(s, *reinterpret_cast<const uint64_t *>(sm.seen[RIGHT]), st, sl, keep);
            as_operand<KEYS / 8>(w, s);
            publish(sm.w[0], sm.state[RIGHT], &sm.w_full[RIGHT], w, st, j == 1);
            end_outputs(o, sm.k_free[LEFT], RIGHT);
            if (moved) rescale(o, keep);
            start_outputs(o, w, v);
            end_outputs(o, sm.k_free[RIGHT], RIGHT);
            settled(w);
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
    constexpr size_t bytes = sizeof(shared<D>) + 1024; /* the base may begin anywhere */
    static_assert(bytes <= 232448, "a block gets no more");
    const int total = p.B * p.S * ((p.H + HEADS - 1) / HEADS);
    const int sms = pb_cuda_device_of(ctx)->sms, blocks = total < sms ? total : sms;
    CUtensorMap q;
    PB_TRY(tensor_map(&q, p.q, D, p.B * p.S, p.H, 1, D, HEADS)); /* heads stand where tokens do */
    PB_CUDA_TRY(
        cudaFuncSetAttribute((const void *)fwd_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
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
