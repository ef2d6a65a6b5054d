/* attention_wgmma.cu - attention forward on the tensor cores of sm_90a, bf16, D 64 and 128 (the plan of
 * FlashAttention-3, Shah et al. 2024, arXiv:2407.08608).
 *
 * One block stays on each multiprocessor and takes tiles of 64 queries a consumer warpgroup, the longest first, dealt
 * there and back: who got the longest of one round gets the shortest of the next. Where there are no more tiles of 64
 * queries than multiprocessors, a block has one consumer warpgroup and one tile. A producer warp loads queries and, two
 * stages deep, keys and values with the tensor engine, running ahead into the next tile while the consumers store
 * theirs. A consumer starts the scores of the next keys before it weighs the values of the present ones, and does its
 * softmax while both products run; the warpgroups take turns at issuing, so that one's softmax hides behind the other's
 * products. Bound: tensor cores at D 128, exponentials at D 64. */
#include "kernels/attention/attention_impls.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/core/tensor_map.cuh"
#include "kernels/core/wgmma.cuh"

namespace
{
constexpr int KEYS = 128, STAGES = 2;

constexpr int tall(int D) { return D == 64 ? 3 : 2; } /* consumer warpgroups where there is enough to do */

/* G consumer warpgroups. */
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
    uint64_t q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

#ifdef PB_SM90_CODE
/* A place in a ring of stages. */
struct place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void next(void)
    {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

struct tile {
    int b, head, i0;
};
/* Tile number t is one of those with the longest way to go of the tiles not dealt. */
template <int D, int G> __device__ inline tile tile_of(int t, const pb_attention_fwd_args &a)
{
    const int tiles = (a.S + plan<D, G>::QUERIES - 1) / plan<D, G>::QUERIES, bh = t % (a.H * a.B);
    return {bh / a.H, bh % a.H, (tiles - 1 - t / (a.H * a.B)) * plan<D, G>::QUERIES};
}
__device__ inline const int32_t *starts_of(const pb_attention_fwd_args &a, int b)
{
    return a.start ? a.start + (size_t)b * a.S : NULL;
}

/* Key tiles are walked from the last one down to range.lo. */
__device__ inline int key_tiles(const key_range &r) { return r.hi > r.lo ? (r.hi - r.lo + KEYS - 1) / KEYS : 0; }

/* ROWS tokens from `token` on, all D columns. */
template <int D, int ROWS>
__device__ inline void load(bf16 *to, const CUtensorMap *map, uint64_t *full, int head, int token, int b)
{
    barrier_expect(full, ROWS * D * (int)sizeof(bf16));
#pragma unroll
    for (int half = 0; half < D / 64; half++) tma_load(to + half * ROWS * 64, map, full, half * 64, head, token, b);
}

template <int D, int G>
__device__ void produce(shared<D, G> &sm, const CUtensorMap *mq, const CUtensorMap *mk, const CUtensorMap *mv,
                        const pb_attention_fwd_args &a, int total)
{
    const bool leader = threadIdx.x % 32 == 0;
    const int group = a.H / a.K;
    place at;
    uint32_t q_parity = 0;
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of<D, G>(t, a);
        const key_range r = keys_of_tile<plan<D, G>::QUERIES>(starts_of(a, own.b), own.i0, a.S, a.causal);
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

/* Starts s = q k^T. */
template <int D, int G> __device__ inline void start_scores(float (&s)[KEYS / 8][4], factor q, factor k)
{
#pragma unroll
    for (int d = 0; d < D / 16; d++)
        wgmma<0, 0>(s, step(q, d / 4 * plan<D, G>::QUERIES * 128 + d % 4 * 32),
                    step(k, d / 4 * KEYS * 128 + d % 4 * 32), d > 0);
    wgmma_commit();
}
/* Starts o += p v. */
template <int D> __device__ inline void start_outputs(float (&o)[D / 8][4], const uint32_t (&p)[KEYS / 16][4], factor v)
{
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) wgmma(o, p[k], step(v, k * 16 * 128));
    wgmma_commit();
}

__device__ inline void hide(float (&s)[KEYS / 8][4], const key_range &r, const keys (&seen)[2], int j0)
{
    if (j0 >= r.solid_lo && j0 + KEYS <= r.solid_hi) return;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int j = j0 + n * 8 + threadIdx.x % 4 * 2 + (e & 1);
            if (j < seen[e >> 1].from || j >= seen[e >> 1].to) s[n][e] = -INFINITY;
        }
}

/* The key tiles n = nt-1 .. 0 of one tile of queries. */
template <int D, int G>
__device__ inline void consume_keys(shared<D, G> &sm, float (&o)[D / 8][4], softmax_rows &st, place &at_k, place &at_v,
                                    int nt, int lo, const key_range &mine, const keys (&seen)[2], int wg, float sl)
{
    const factor q = factor_k_major(sm.q + wg * 64 * 64), k = factor_k_major(sm.k),
                 v = factor_mn_major(sm.v, KEYS * 128);
    constexpr uint32_t STAGE = KEYS * D * sizeof(bf16);
    float s[KEYS / 8][4], keep[2];
    uint32_t p[KEYS / 16][4];
    barrier_wait(&sm.k_full[at_k.stage], at_k.parity);
    wgmma_fence();
    start_scores<D, G>(s, q, step(k, at_k.stage * STAGE));
    wgmma_wait<0>();
    settled(s);
    release(&sm.k_empty[at_k.stage]);
    at_k.next();
    hide(s, mine, seen, lo + (nt - 1) * KEYS);
    softmax_tile<KEYS / 8>(s, st, sl, keep);
    as_operand<KEYS / 8>(p, s);
    for (int n = nt - 2; n >= 0; n--) {
        barrier_wait(&sm.k_full[at_k.stage], at_k.parity);
        if (G > 1) named_sync(1 + wg, 256);
        wgmma_fence();
        start_scores<D, G>(s, q, step(k, at_k.stage * STAGE));
        barrier_wait(&sm.v_full[at_v.stage], at_v.parity);
        wgmma_fence();
        start_outputs<D>(o, p, step(v, at_v.stage * STAGE));
        if (G > 1) named_arrive(1 + (wg + 1) % G, 256);
        wgmma_wait<1>();
        settled(s);
        release(&sm.k_empty[at_k.stage]);
        at_k.next();
        hide(s, mine, seen, lo + n * KEYS);
        softmax_tile<KEYS / 8>(s, st, sl, keep);
        wgmma_wait<0>();
        settled(o), settled(p);
        release(&sm.v_empty[at_v.stage]);
        at_v.next();
#pragma unroll
        for (int d = 0; d < D / 8; d++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[d][e] *= keep[e >> 1];
        as_operand<KEYS / 8>(p, s);
    }
    barrier_wait(&sm.v_full[at_v.stage], at_v.parity);
    wgmma_fence();
    start_outputs<D>(o, p, step(v, at_v.stage * STAGE));
    wgmma_wait<0>();
    settled(o), settled(p);
    release(&sm.v_empty[at_v.stage]);
    at_v.next();
}

template <int D, int G> __device__ void consume(shared<D, G> &sm, const pb_attention_fwd_args &a, int total)
{
    const int wg = warpgroup() - 1, row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const float sl = a.scale * LOG2E;
    place at_k, at_v;
    uint32_t q_parity = 0;
    if (G > 1 && wg == G - 1) named_arrive(1, 256); /* the first turn is warpgroup 0's */
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of<D, G>(t, a);
        const int32_t *start = starts_of(a, own.b);
        const int i = own.i0 + wg * 64 + row;
        const key_range all = keys_of_tile<plan<D, G>::QUERIES>(start, own.i0, a.S, a.causal);
        const key_range mine = keys_of_tile<64>(start, own.i0 + wg * 64, a.S, a.causal);
        const keys seen[2] = {keys_of(start, i, a.S, a.causal), keys_of(start, i + 8, a.S, a.causal)};
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

template <int D, int G>
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
        if (threadIdx.x < 32) produce<D, G>(sm, &mq, &mk, &mv, a, total);
    } else {
        if constexpr (G > 1) registers_more<plan<D, G>::CONSUMER_REGS>();
        consume<D, G>(sm, a, total);
    }
#endif
}

template <int D, int G> pb_status fwd_launch(pb_ctx *ctx, const pb_attention_fwd_args &a)
{
    constexpr size_t bytes = sizeof(shared<D, G>) + 1024; /* the base may begin anywhere */
    const int total = (a.S + plan<D, G>::QUERIES - 1) / plan<D, G>::QUERIES * a.H * a.B;
    const int sms = pb_cuda_device_of(ctx)->sms, blocks = total < sms ? total : sms;
    CUtensorMap mq, mk, mv;
    PB_TRY(tensor_map(&mq, a.q, a.ldq, a.B, a.S, a.H, D, plan<D, G>::QUERIES));
    PB_TRY(tensor_map(&mk, a.k, a.ldk, a.B, a.S, a.K, D, KEYS));
    PB_TRY(tensor_map(&mv, a.v, a.ldv, a.B, a.S, a.K, D, KEYS));
    PB_TRY(pb_attention_smem(fwd_kernel<D, G>, bytes));
    fwd_kernel<D, G><<<blocks, plan<D, G>::THREADS, bytes, pb_cuda_stream(ctx)>>>(mq, mk, mv, a, total);
    return pb_cuda_launched(ctx, "attention_fwd wgmma");
}

template <int D> pb_status fwd(pb_ctx *ctx, const pb_attention_fwd_args &a)
{
    const long small = (a.S + 63L) / 64 * a.H * a.B; /* tiles for one consumer warpgroup */
    return small <= pb_cuda_device_of(ctx)->sms ? fwd_launch<D, 1>(ctx, a) : fwd_launch<D, tall(D)>(ctx, a);
}
} // namespace

pb_status pb_attention_fwd_wgmma(pb_ctx *ctx, const void *args)
{
    const pb_attention_fwd_args &a = *(const pb_attention_fwd_args *)args;
    return a.D == 64 ? fwd<64>(ctx, a) : fwd<128>(ctx, a);
}
