/* attention_wgmma.cu - attention forward with wgmma on sm_90a: bf16, D 64 or 128, after FlashAttention-3 (Shah et al.
 * 2024, arXiv:2407.08608).
 *
 * Persistent kernel: one CTA per SM. A tile is 64 queries per consumer warpgroup of one head. Tiles are dealt in snake
 * order, longest first. When tiles of 64 queries would not fill the GPU (no more tiles than SMs), each CTA has one
 * consumer warpgroup (G = 1) and at most one tile.
 *
 * Roles; G is 1, or 2 at D 128, or 3 at D 64:
 *
 *   threads           warps            role       registers per thread       work
 *   0..31             0                producer   24 (G 2), 32 (G 3)         lane 0 starts the TMA loads of q, k and v
 *   32..127           1..3             idle                                  exit; they exist because setmaxnreg acts
 *                                                                            on whole warpgroups
 *   128..128(G+1)-1   4..4G+3          consumers  240 (G 2), 160 (G 3)       warpgroup wg: queries 64 wg .. 64 wg + 63
 * With G 1 there is no setmaxnreg: 256 threads already get up to 255 registers each.
 *
 * Pipeline of one tile with four key tiles of 128 keys, processed from the last (k3, v3; the masked one under a causal
 * mask) to the first; time runs down:
 *
 *   producer, TMA            rings of STAGES = 2        consumers: wgmma              consumers: softmax in registers
 *   q          -----------> q (one buffer) ---------+
 *   k3         -----------> k stage 0 --------------+-> S3 = q k3^T               -> P3
 *   v3, k2     -----------> v stage 0, k stage 1 -----> S2 = q k2^T, O += P3 v3   -> P2 while O += P3 v3 runs; rescale
 *   v2, k1     -----------> v stage 1, k stage 0 -----> S1 = q k1^T, O += P2 v2   -> P1 while O += P2 v2 runs; rescale
 *   v1, k0     -----------> v stage 0, k stage 1 -----> S0 = q k0^T, O += P1 v1   -> P0 while O += P1 v1 runs; rescale
 *   v0         -----------> v stage 1 ----------------> O += P0 v0                -> store O and lse
 *   then q of the next tile after q_empty, and its k and v, while the consumers store o of this tile
 *
 * With G > 1 the warpgroups issue their products in turn (named barriers), so that the softmax of one overlaps the
 * products of another. Limits: tensor cores at D 128, exponentials at D 64.
 *
 * Barriers (struct shared; "lanes" are all 128 G consumer threads):
 *
 *   mbarrier     arrivals                   waited for by           a completed phase means
 *   q_full       producer + TMA bytes       consumers               q of this tile is in shared memory
 *   q_empty      lanes, after the tile      producer                q may be overwritten
 *   k_full[s]    producer + TMA bytes       consumers               k of this stage is in shared memory
 *   k_empty[s]   lanes, after S             producer                k of this stage may be overwritten
 *   v_full[s]    producer + TMA bytes       consumers               v of this stage is in shared memory
 *   v_empty[s]   lanes, after O += P v      producer                v of this stage may be overwritten
 *   named barrier ISSUE_TURN + wg: the warpgroup before wg arrives once it has issued its products, wg waits */
#include "kernels/attention/attention_impls.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/wgmma_tiles.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{
constexpr int KEYS = 128, STAGES = 2;
enum named_barrier { ISSUE_TURN = 1 /* barrier ISSUE_TURN + w: consumer warpgroup w may issue its products */ };
enum { ISSUE_THREADS = 256 /* threads of an ISSUE_TURN barrier: one warpgroup arrives, another one waits */ };

constexpr int most_consumers(int D) { return D == 64 ? 3 : 2; } /* consumer warpgroups when there are enough tiles */

/* Sizes for G consumer warpgroups. */
template <int D, int G> struct plan {
    enum {
        QUERIES = 64 * G,
        THREADS = 128 * (G + 1),
        PRODUCER_REGS = G == 3 ? 32 : 24,
        CONSUMER_REGS = G == 3 ? 160 : 240
    };
};

template <int D, int G> struct alignas(1024) shared {
    bf16 q[plan<D, G>::QUERIES * D], k[STAGES][KEYS * D], v[STAGES][KEYS * D];
    /* mbarriers; the comment at the top of the file says who arrives, and what each completed phase means */
    uint64_t q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

#ifdef PB_SM90_CODE
typedef stage_ring<STAGES> ring_position;

/* b: batch row; head: query head; i0: first query. */
struct tile {
    int b, head, i0;
};
/* Returns the tile with number t. Numbers are in descending order of causal work: the last queries of every head come
 * first. */
template <int D, int G> __device__ inline tile tile_of(int t, const pb_attention_fwd_args &a)
{
    const int tiles = (a.S + plan<D, G>::QUERIES - 1) / plan<D, G>::QUERIES, bh = t % (a.H * a.B);
    return {bh / a.H, bh % a.H, (tiles - 1 - t / (a.H * a.B)) * plan<D, G>::QUERIES};
}
__device__ inline const int32_t *starts_of(const pb_attention_fwd_args &a, int b)
{
    return a.start ? a.start + (size_t)b * a.S : NULL;
}

/* Returns how many tiles of KEYS keys cover the range. The tiles begin at r.lo, not at a multiple of KEYS, and are
 * processed from the last to the first. */
__device__ inline int key_tiles(const key_range &r) { return r.hi > r.lo ? (r.hi - r.lo + KEYS - 1) / KEYS : 0; }

/* Starts the TMA load of ROWS tokens from `token` on, all D columns. The phase of mbarrier `full` waits for their
 * bytes. */
template <int D, int ROWS>
__device__ inline void load(bf16 *to, const CUtensorMap *map, uint64_t *full, int head, int token, int b)
{
    barrier_expect(full, ROWS * D * (int)sizeof(bf16));
    load_tile<D, ROWS>(to, map, full, head, token, b);
}

template <int D, int G, bool MORE>
__device__ void produce(shared<D, G> &sm, const CUtensorMap *mq, const CUtensorMap *mk, const CUtensorMap *mv,
                        const pb_attention_fwd_args &a, int total)
{
    const bool leader = threadIdx.x % 32 == 0;
    const int group = a.H / a.K;
    ring_position at;
    uint32_t q_parity = 0;
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of<D, G>(t, a);
        const key_range r = keys_of_tile<plan<D, G>::QUERIES>(starts_of(a, own.b), own.i0, shape_in<MORE>(a));
        barrier_wait(&sm.q_empty, q_parity ^ 1);
        if (leader) load<D, plan<D, G>::QUERIES>(sm.q, mq, &sm.q_full, own.head, own.i0, own.b);
        for (int n = key_tiles(r) - 1; n >= 0; n--, at.next()) {
            barrier_wait(&sm.k_empty[at.stage], at.parity ^ 1);
            if (leader)
                load<D, KEYS>(sm.k[at.stage], mk, &sm.k_full[at.stage], own.head / group, r.lo + n * KEYS, own.b);
            barrier_wait(&sm.v_empty[at.stage], at.parity ^ 1);
            if (leader)
                load<D, KEYS>(sm.v[at.stage], mv, &sm.v_full[at.stage], own.head / group, r.lo + n * KEYS, own.b);
        }
    }
}

/* Sets the scores of masked (query, key) pairs to -inf. j0 is the first key of the tile. Returns at once if every query
 * of this warpgroup attends to every key of the tile. */
__device__ inline void mask_scores(float (&s)[KEYS / 8][4], const key_range &r, const keys (&seen)[2], int j0)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
    if (j0 >= r.solid_lo && j0 + KEYS <= r.solid_hi) return;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int j = j0 + n * 8 + col + (e & 1);
            if (j < seen[e >> 1].from || j >= seen[e >> 1].to) s[n][e] = -INFINITY;
        }
}

/* Processes the nt key tiles of one tile of queries, from the last to the first. lo: first key of tile 0. `mine` and
 * `seen`: visible keys of this warpgroup and of this thread's two rows. sl = scale log2(e). */
template <int D, int G>
__device__ inline void consume_keys(shared<D, G> &sm, float (&o)[D / 8][4], softmax_rows &st, ring_position &at_k,
                                    ring_position &at_v, int nt, int lo, const key_range &mine, const keys (&seen)[2],
                                    int wg, float sl)
{
    const operand_desc q = k_major_desc(sm.q + wg * 64 * 64), k = k_major_desc(sm.k);
    const operand_desc v = mn_major_desc(sm.v, KEYS * 128);
    constexpr uint32_t STAGE = KEYS * D * sizeof(bf16);
    float s[KEYS / 8][4], keep[2];
    uint32_t p[KEYS / 16][4];
    /* For the first tile only scores are computed: no weights exist yet that could be multiplied with values. */
    barrier_wait(&sm.k_full[at_k.stage], at_k.parity);
    wgmma_fence();
    start_dots<D, plan<D, G>::QUERIES, KEYS>(s, q, advance_desc(k, at_k.stage * STAGE));
    wgmma_wait<0>();
    wgmma_fence_operand(s);
    release(&sm.k_empty[at_k.stage]);
    at_k.next();
    mask_scores(s, mine, seen, lo + (nt - 1) * KEYS);
    softmax_tile<KEYS / 8>(s, st, sl, keep);
    as_operand<KEYS / 8>(p, s);
    /* Each iteration computes the scores of tile n, and multiplies the weights and the values of tile n + 1. */
    for (int n = nt - 2; n >= 0; n--) {
        barrier_wait(&sm.k_full[at_k.stage], at_k.parity);
        if (G > 1) named_sync(ISSUE_TURN + wg, ISSUE_THREADS);
        wgmma_fence();
        start_dots<D, plan<D, G>::QUERIES, KEYS>(s, q, advance_desc(k, at_k.stage * STAGE));
        barrier_wait(&sm.v_full[at_v.stage], at_v.parity);
        wgmma_fence();
        start_weighted_sum<D>(o, p, advance_desc(v, at_v.stage * STAGE));
        if (G > 1) named_arrive(ISSUE_TURN + (wg + 1) % G, ISSUE_THREADS);
        wgmma_wait<1>();
        wgmma_fence_operand(s);
        release(&sm.k_empty[at_k.stage]);
        at_k.next();
        mask_scores(s, mine, seen, lo + n * KEYS);
        softmax_tile<KEYS / 8>(s, st, sl, keep);
        wgmma_wait<0>();
        wgmma_fence_operand(o), wgmma_fence_operand(p);
        release(&sm.v_empty[at_v.stage]);
        at_v.next();
#pragma unroll
        for (int d = 0; d < D / 8; d++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[d][e] *= keep[e >> 1];
        as_operand<KEYS / 8>(p, s);
    }
    /* The weights of tile 0 are multiplied with the values of tile 0. */
    barrier_wait(&sm.v_full[at_v.stage], at_v.parity);
    wgmma_fence();
    start_weighted_sum<D>(o, p, advance_desc(v, at_v.stage * STAGE));
    wgmma_wait<0>();
    wgmma_fence_operand(o), wgmma_fence_operand(p);
    release(&sm.v_empty[at_v.stage]);
    at_v.next();
}

template <int D, int G, bool MORE> __device__ void consume(shared<D, G> &sm, const pb_attention_fwd_args &a, int total)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int wg = warpgroup() - 1, row = warp * 16 + lane / 4;
    const float sl = a.scale * LOG2E;
    ring_position at_k, at_v;
    uint32_t q_parity = 0;
    if (G > 1 && wg == G - 1) named_arrive(ISSUE_TURN, ISSUE_THREADS); /* warpgroup 0 has the first turn */
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of<D, G>(t, a);
        const int32_t *start = starts_of(a, own.b);
        const int i = own.i0 + wg * 64 + row;
        const row_shape shape = shape_in<MORE>(a);
        const key_range all = keys_of_tile<plan<D, G>::QUERIES>(start, own.i0, shape);
        const key_range mine = keys_of_tile<64>(start, own.i0 + wg * 64, shape);
        const keys seen[2] = {keys_of(start, i, shape), keys_of(start, i + 8, shape)};
        softmax_rows st = {{-INFINITY, -INFINITY}, {0, 0}};
        float o[D / 8][4], f[2], lse[2];
        bf16 *to[2];
#pragma unroll
        for (int d = 0; d < D / 8; d++) o[d][0] = o[d][1] = o[d][2] = o[d][3] = 0;
        barrier_wait(&sm.q_full, q_parity);
        if (key_tiles(all)) consume_keys<D, G>(sm, o, st, at_k, at_v, key_tiles(all), all.lo, mine, seen, wg, sl);
        release(&sm.q_empty);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool there = i + 8 * r < a.S;
            f[r] = softmax_end(st, r, a.scale, lse[r]);
            to[r] = (bf16 *)a.o + ((size_t)own.b * a.S + i + 8 * r) * a.ldo + (size_t)own.head * D;
            if (!there) to[r] = NULL;
            else if (threadIdx.x % 4 == 0) a.lse[((size_t)own.b * a.H + own.head) * a.S + i + 8 * r] = lse[r];
        }
        store_rows<D / 8>(o, f[0], f[1], to[0], to[1], D);
    }
}

#endif

/* MORE: there are more keys than queries. One kernel for both cases would spill a register at D 128 in both. */
template <int D, int G, bool MORE>
__global__ __launch_bounds__(plan<D, G>::THREADS, 1) void fwd_kernel(const __grid_constant__ CUtensorMap mq,
                                                                     const __grid_constant__ CUtensorMap mk,
                                                                     const __grid_constant__ CUtensorMap mv,
                                                                     const pb_attention_fwd_args a, int total)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    shared<D, G> &sm = *reinterpret_cast<shared<D, G> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    if (threadIdx.x == 0) {
        barrier_init(&sm.q_full, 1), barrier_init(&sm.q_empty, 4 * G * WARP_ARRIVES);
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&sm.k_full[s], 1), barrier_init(&sm.k_empty[s], 4 * G * WARP_ARRIVES);
            barrier_init(&sm.v_full[s], 1), barrier_init(&sm.v_empty[s], 4 * G * WARP_ARRIVES);
        }
        barrier_inits_done();
        tensor_map_prefetch(&mq), tensor_map_prefetch(&mk), tensor_map_prefetch(&mv);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if constexpr (G > 1) registers_fewer<plan<D, G>::PRODUCER_REGS>();
        if (threadIdx.x < 32) produce<D, G, MORE>(sm, &mq, &mk, &mv, a, total);
    } else {
        if constexpr (G > 1) registers_more<plan<D, G>::CONSUMER_REGS>();
        consume<D, G, MORE>(sm, a, total);
    }
#endif
}

template <int D, int G, bool MORE> pb_status fwd_launch(pb_ctx *ctx, const pb_attention_fwd_args &a)
{
    constexpr size_t bytes = sizeof(shared<D, G>) + 1024; /* 1024: dynamic shared memory may start unaligned */
    const int total = (a.S + plan<D, G>::QUERIES - 1) / plan<D, G>::QUERIES * a.H * a.B;
    const int sms = pb_cuda_device_of(ctx)->sms, blocks = total < sms ? total : sms;
    CUtensorMap mq, mk, mv;
    PB_TRY(tensor_map(&mq, a.q, a.ldq, a.B, a.S, a.H, D, plan<D, G>::QUERIES));
    PB_TRY(tensor_map(&mk, a.k, a.ldk, a.B, pb_attention_keys(&a), a.K, D, KEYS));
    PB_TRY(tensor_map(&mv, a.v, a.ldv, a.B, pb_attention_keys(&a), a.K, D, KEYS));
    PB_TRY(pb_cuda_allow_shared(fwd_kernel<D, G, MORE>, bytes));
    fwd_kernel<D, G, MORE><<<blocks, plan<D, G>::THREADS, bytes, pb_cuda_stream(ctx)>>>(mq, mk, mv, a, total);
    return pb_cuda_launched(ctx, "attention_fwd wgmma");
}

template <int D, bool MORE> pb_status fwd(pb_ctx *ctx, const pb_attention_fwd_args &a)
{
    const long small = (a.S + 63L) / 64 * a.H * a.B; /* tiles if each CTA had one consumer warpgroup */
    return small <= pb_cuda_device_of(ctx)->sms ? fwd_launch<D, 1, MORE>(ctx, a)
                                                : fwd_launch<D, most_consumers(D), MORE>(ctx, a);
}

template <int D> pb_status fwd_of(pb_ctx *ctx, const pb_attention_fwd_args &a)
{
    return a.keys > a.S ? fwd<D, true>(ctx, a) : fwd<D, false>(ctx, a);
}
} // namespace

pb_status pb_attention_fwd_wgmma(pb_ctx *ctx, const void *args)
{
    const pb_attention_fwd_args a = with_keys(*(const pb_attention_fwd_args *)args);
    return a.D == 64 ? fwd_of<64>(ctx, a) : fwd_of<128>(ctx, a);
}
