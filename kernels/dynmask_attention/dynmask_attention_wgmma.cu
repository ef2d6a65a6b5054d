/* dynmask_attention_wgmma.cu - dynamic-mask attention forward with wgmma on sm_90a: bf16, D 64 or 128.
 *
 * Two kernels. gather_kernel copies the listed keys and values to consecutive rows (gather() of slots.cuh). fwd_kernel is
 * the persistent kernel of attention_wgmma.cu, whose head comment shows its roles and its pipeline, with these differences:
 *
 *   - a tile of keys is KEYS slots of the list; tiles that no query of the CTA attends to are skipped
 *   - with k the producer loads the biases and the queries of the tile's slots (slot_block), so k_empty is released
 *     after the scores have been masked, not after the product
 *   - accumulators begin as bias / scale, so that the product leaves q.k + bias / scale in them, and the softmax is that
 *     of dense attention; adding the bias to each score afterwards made the softmax longer
 *
 * Barriers (struct shared; "lanes" are all 128 G consumer threads):
 *
 *   mbarrier     arrivals                   waited for by           a completed phase means
 *   q_full       producer + TMA bytes       consumers               q of this tile is in shared memory
 *   q_empty      lanes, after the tile      producer                q may be overwritten
 *   k_full[s]    producer + TMA bytes       consumers               k and slots of this stage are in shared memory
 *   k_empty[s]   lanes, after the mask      producer                k and slots of this stage may be overwritten
 *   v_full[s]    producer + TMA bytes       consumers               v of this stage is in shared memory
 *   v_empty[s]   lanes, after O += P v      producer                v of this stage may be overwritten
 *   named barrier ISSUE_TURN + wg: the warpgroup before wg arrives once it has issued its products, wg waits */
#include "kernels/attention/attention_impls.cuh"
#include "kernels/attention/wgmma_tiles.cuh"
#include "kernels/dynmask_attention/dynmask_attention_impls.cuh"
#include "kernels/dynmask_attention/slots.cuh"
#define CANARY_KERNEL "dynmask_attention_fwd wgmma"
#include "kernels/cuda/canary.cuh"

namespace
{
constexpr int KEYS = 128, STAGES = 2;
enum named_barrier { ISSUE_TURN = 1 /* barrier ISSUE_TURN + w: consumer warpgroup w may issue its products */ };
enum { ISSUE_THREADS = 256 /* threads of an ISSUE_TURN barrier: one warpgroup arrives, another one waits */ };
static_assert(SLOT_UNIT % KEYS == 0 && KEYS % SLOTS == 0, "a list is whole tiles, and a tile whole blocks of slots");

constexpr int most_consumers(int D) { return D == 64 ? 3 : 2; } /* consumer warpgroups when there are enough tiles */

/* Sizes for G consumer warpgroups. */
template <int G> struct plan {
    enum {
        QUERIES = 64 * G,
        THREADS = 128 * (G + 1),
        PRODUCER_REGS = G == 3 ? 32 : 24,
        CONSUMER_REGS = G == 3 ? 160 : 240
    };
};

template <int D, int G> struct alignas(1024) shared {
    bf16 q[plan<G>::QUERIES * D];
    CANARY(q)
    bf16 k[STAGES][KEYS * D];
    CANARY(k)
    bf16 v[STAGES][KEYS * D];
    CANARY(v)
    slot_block slots[STAGES][KEYS / SLOTS];
    CANARY(slots)
    /* mbarriers; the comment at the top of the file says who arrives, and what each completed phase means */
    uint64_t q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    CANARY(barriers)
    CANARIES(5, &canary_q, &canary_k, &canary_v, &canary_slots, &canary_barriers)
};

#ifdef PB_SM90_CODE
typedef stage_ring<STAGES> ring_position;

/* A tile of queries. b: batch row; head: query head; list: number of its list; i0: first query. */
struct tile {
    int b, head, list, i0;
};
/* Returns the tile with number t. The last queries of every head come first: they attend to the most keys. */
template <int G> __device__ inline tile tile_of(int t, const pb_dynmask_attention_fwd_args &a)
{
    const int tiles = (a.S + plan<G>::QUERIES - 1) / plan<G>::QUERIES, bh = t % (a.H * a.B), b = bh / a.H;
    return {b, bh % a.H, b * a.K + bh % a.H / (a.H / a.K), (tiles - 1 - t / (a.H * a.B)) * plan<G>::QUERIES};
}

template <int G> __device__ inline slot_tiles<KEYS> slots_of_tile(const compact &c, const tile &own)
{
    return slot_tiles<KEYS>(c, own.list, own.i0, own.i0 + plan<G>::QUERIES);
}

template <int D, int G>
__device__ void produce(shared<D, G> &sm, const CUtensorMap *mq, const CUtensorMap *mk, const CUtensorMap *mv,
                        const pb_dynmask_attention_fwd_args &a, const compact &c, int total)
{
    const bool leader = threadIdx.x % 32 == 0;
    ring_position at;
    uint32_t q_parity = 0;
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of<G>(t, a);
        barrier_wait(&sm.q_empty, q_parity ^ 1);
        if (leader) {
            barrier_expect(&sm.q_full, sizeof sm.q);
            load_tile<D, plan<G>::QUERIES>(sm.q, mq, &sm.q_full, own.head, own.i0, own.b);
        }
        for (slot_tiles<KEYS> n = slots_of_tile<G>(c, own); n.next(); at.next()) {
            barrier_wait(&sm.k_empty[at.stage], at.parity ^ 1);
            if (leader) {
                barrier_expect(&sm.k_full[at.stage], sizeof sm.k[0] + sizeof sm.slots[0]);
                load_tile<D, KEYS>(sm.k[at.stage], mk, &sm.k_full[at.stage], 0, n.tile * KEYS, own.list);
                bulk_load(sm.slots[at.stage], n.block + n.tile * (KEYS / SLOTS), &sm.k_full[at.stage],
                          sizeof sm.slots[0]);
            }
            barrier_wait(&sm.v_empty[at.stage], at.parity ^ 1);
            if (leader) {
                barrier_expect(&sm.v_full[at.stage], sizeof sm.v[0]);
                load_tile<D, KEYS>(sm.v[at.stage], mv, &sm.v_full[at.stage], 0, n.tile * KEYS, own.list);
            }
            __syncwarp();
        }
    }
}

/* Sets scores to -inf where a query does not attend to the slot. i0: first query of this warpgroup, i: of this thread. */
__device__ inline void mask_scores(float (&s)[KEYS / 8][4], const slot_block (&slots)[KEYS / SLOTS], int i0, int i)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
    if (all_attend(range_of<KEYS>(slots), i0, 64)) return;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        const int2 from = *reinterpret_cast<const int2 *>(&slots[n / 8].from[n % 8 * 8 + col]);
        const int2 to = *reinterpret_cast<const int2 *>(&slots[n / 8].to[n % 8 * 8 + col]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = i + 8 * (e >> 1);
            if (row < (e & 1 ? from.y : from.x) || row >= (e & 1 ? to.y : to.x)) s[n][e] = -INFINITY;
        }
    }
}

/* The state of a consumer warpgroup: its positions in the rings of k and v, its index wg, and the first query of the
 * warpgroup (i0) and of the thread (i). */
struct consumer {
    ring_position k, v;
    int wg, i0, i;
    float sl; /* scale log2(e) */
};

/* Waits for the product of q and the current stage of k, and turns it into weights `p`. */
template <int D, int G, int PENDING>
__device__ inline void finish_scores(shared<D, G> &sm, float (&s)[KEYS / 8][4], softmax_rows &st, consumer &at,
                                     float (&keep)[2])
{
    wgmma_wait<PENDING>();
    wgmma_fence_operand(s);
    mask_scores(s, sm.slots[at.k.stage], at.i0, at.i);
    release(&sm.k_empty[at.k.stage]);
    at.k.next();
    softmax_tile<KEYS / 8>(s, st, at.sl, keep);
}
/* Waits for the product of the weights and the current stage of v. */
template <int D, int G>
__device__ inline void finish_outputs(shared<D, G> &sm, float (&o)[D / 8][4], uint32_t (&p)[KEYS / 16][4], consumer &at)
{
    wgmma_wait<0>();
    wgmma_fence_operand(o), wgmma_fence_operand(p);
    release(&sm.v_empty[at.v.stage]);
    at.v.next();
}

/* Processes all slots that the tile of queries attends to. */
template <int D, int G>
__device__ inline void consume_slots(shared<D, G> &sm, float (&o)[D / 8][4], softmax_rows &st, consumer &at,
                                     slot_tiles<KEYS> n)
{
    const operand_desc q = k_major_desc(sm.q + at.wg * 64 * 64), k = k_major_desc(sm.k);
    const operand_desc v = mn_major_desc(sm.v, KEYS * 128);
    constexpr uint32_t STAGE = KEYS * D * sizeof(bf16);
    float s[KEYS / 8][4], keep[2];
    uint32_t p[KEYS / 16][4];
    if (!n.next()) return;
    /* For the first tile only scores are computed: no weights exist yet that could be multiplied with values. */
    barrier_wait(&sm.k_full[at.k.stage], at.k.parity);
    fill_columns<KEYS>(s, sm.slots[at.k.stage]);
    wgmma_fence();
    start_dots<D, plan<G>::QUERIES, KEYS, true>(s, q, advance_desc(k, at.k.stage * STAGE));
    finish_scores<D, G, 0>(sm, s, st, at, keep);
    as_operand<KEYS / 8>(p, s);
    /* Each iteration computes the scores of a tile, and multiplies the weights and the values of the tile before it. */
    while (n.next()) {
        barrier_wait(&sm.k_full[at.k.stage], at.k.parity);
        fill_columns<KEYS>(s, sm.slots[at.k.stage]);
        if (G > 1) named_sync(ISSUE_TURN + at.wg, ISSUE_THREADS);
        wgmma_fence();
        start_dots<D, plan<G>::QUERIES, KEYS, true>(s, q, advance_desc(k, at.k.stage * STAGE));
        barrier_wait(&sm.v_full[at.v.stage], at.v.parity);
        wgmma_fence();
        start_weighted_sum<D>(o, p, advance_desc(v, at.v.stage * STAGE));
        if (G > 1) named_arrive(ISSUE_TURN + (at.wg + 1) % G, ISSUE_THREADS);
        finish_scores<D, G, 1>(sm, s, st, at, keep);
        finish_outputs<D, G>(sm, o, p, at);
#pragma unroll
        for (int d = 0; d < D / 8; d++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[d][e] *= keep[e >> 1];
        as_operand<KEYS / 8>(p, s);
    }
    barrier_wait(&sm.v_full[at.v.stage], at.v.parity);
    wgmma_fence();
    start_weighted_sum<D>(o, p, advance_desc(v, at.v.stage * STAGE));
    finish_outputs<D, G>(sm, o, p, at);
}

/* Divides the outputs by the sums of weights, and stores them and lse. */
template <int D>
__device__ inline void store(const float (&o)[D / 8][4], const softmax_rows &st, const pb_dynmask_attention_fwd_args &a,
                             const tile &own, int i)
{
    float f[2], lse[2];
    bf16 *to[2];
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

template <int D, int G>
__device__ void consume(shared<D, G> &sm, const pb_dynmask_attention_fwd_args &a, const compact &c, int total)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    consumer at = {{}, {}, warpgroup() - 1, 0, 0, a.scale * LOG2E};
    uint32_t q_parity = 0;
    if (G > 1 && at.wg == G - 1) named_arrive(ISSUE_TURN, ISSUE_THREADS); /* warpgroup 0 has the first turn */
    for (int t = blockIdx.x; t < total; t = next_tile(t), q_parity ^= 1) {
        const tile own = tile_of<G>(t, a);
        softmax_rows st = {{-INFINITY, -INFINITY}, {0, 0}};
        float o[D / 8][4];
        at.i0 = own.i0 + at.wg * 64, at.i = at.i0 + warp * 16 + lane / 4;
#pragma unroll
        for (int d = 0; d < D / 8; d++) o[d][0] = o[d][1] = o[d][2] = o[d][3] = 0;
        barrier_wait(&sm.q_full, q_parity);
        consume_slots<D, G>(sm, o, st, at, slots_of_tile<G>(c, own));
        release(&sm.q_empty);
        store<D>(o, st, a, own, at.i);
    }
}
#endif

template <int D> __global__ __launch_bounds__(GATHER_THREADS) void gather_kernel(const list_args a, const compact to)
{
    gather<D>(a, to, (int)blockIdx.x);
}

template <int D, int G>
__global__ __launch_bounds__(plan<G>::THREADS, 1) void fwd_kernel(const __grid_constant__ CUtensorMap mq,
                                                                  const __grid_constant__ CUtensorMap mk,
                                                                  const __grid_constant__ CUtensorMap mv,
                                                                  const pb_dynmask_attention_fwd_args a,
                                                                  const compact c, int total)
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
    canaries_begin(sm);
    __syncthreads();
    if (threadIdx.x < 128) {
        if constexpr (G > 1) registers_fewer<plan<G>::PRODUCER_REGS>();
        if (threadIdx.x < 32) produce<D, G>(sm, &mq, &mk, &mv, a, c, total);
    } else {
        if constexpr (G > 1) registers_more<plan<G>::CONSUMER_REGS>();
        consume<D, G>(sm, a, c, total);
        canaries_end(sm, threadIdx.x - 128, 128 * G);
    }
#endif
}

template <int D, int G> pb_status fwd_launch(pb_ctx *ctx, const pb_dynmask_attention_fwd_args &a, const compact &c)
{
    typedef shared<D, G> room;
    constexpr size_t bytes = sizeof(room) + 1024; /* 1024: dynamic shared memory may start unaligned */
    static_assert(offsetof(room, k) % 1024 == 0 && offsetof(room, v) % 1024 == 0, "tiles are aligned to the swizzle");
    static_assert(offsetof(room, slots) % 16 == 0, "bulk_load writes to 16-byte aligned addresses");
    static_assert(bytes <= 232448, "more shared memory than a CTA of sm_90 can have");
    const int total = (a.S + plan<G>::QUERIES - 1) / plan<G>::QUERIES * a.H * a.B;
    const int sms = pb_cuda_device_of(ctx)->sms, blocks = total < sms ? total : sms;
    CUtensorMap mq, mk, mv;
    PB_TRY(tensor_map(&mq, a.q, a.ldq, a.B, a.S, a.H, D, plan<G>::QUERIES));
    PB_TRY(slot_map(&mk, c.k, c, D, KEYS));
    PB_TRY(slot_map(&mv, c.v, c, D, KEYS));
    PB_TRY(pb_cuda_allow_shared(fwd_kernel<D, G>, bytes));
    fwd_kernel<D, G><<<blocks, plan<G>::THREADS, bytes, pb_cuda_stream(ctx)>>>(mq, mk, mv, a, c, total);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_attention_fwd wgmma"));
    return canaries_report(ctx);
}

template <int D> pb_status fwd(pb_ctx *ctx, const pb_dynmask_attention_fwd_args &a)
{
    const compact c = compact_at(ctx->scratch, compact_sizes(a), D);
    const long small = (a.S + 63L) / 64 * a.H * a.B; /* tiles if each CTA had one consumer warpgroup */
    gather_kernel<D><<<gather_ctas(c), GATHER_THREADS, 0, pb_cuda_stream(ctx)>>>(list_args_of(a), c);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_attention_fwd wgmma, gather"));
    return small <= pb_cuda_device_of(ctx)->sms ? fwd_launch<D, 1>(ctx, a, c)
                                                : fwd_launch<D, most_consumers(D)>(ctx, a, c);
}
} // namespace

pb_status pb_dynmask_attention_fwd_wgmma(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_fwd_args &a = *(const pb_dynmask_attention_fwd_args *)args;
    return a.D == 64 ? fwd<64>(ctx, a) : fwd<128>(ctx, a);
}

size_t pb_dynmask_attention_fwd_wgmma_workspace(const void *args)
{
    const pb_dynmask_attention_fwd_args &a = *(const pb_dynmask_attention_fwd_args *)args;
    return compact_bytes(compact_sizes(a), a.D);
}
