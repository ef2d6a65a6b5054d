/* dynmask_attention_wgmma_dq.cu - dq of the wgmma backward pass of dynmask_attention, whose roles and barriers the head
 * comment of dynmask_attention_wgmma_bwd.cu describes. */
#include "kernels/dynmask_attention/wgmma_bwd.cuh"
#define CANARY_KERNEL "dynmask_attention_bwd wgmma, dq"
#include "kernels/cuda/canary.cuh"

namespace
{
enum { DQ_ROWS = 128 };

template <int D> struct alignas(1024) dq_shared {
    bf16 q[DQ_ROWS * D];
    CANARY(q)
    bf16 dO[DQ_ROWS * D];
    CANARY(dO)
    bf16 k[STAGES][DQ_TILE];
    CANARY(k)
    bf16 v[STAGES][DQ_TILE];
    CANARY(v)
    slot_block slots[STAGES][DQ_TILE / D / SLOTS];
    CANARY(slots)
    barriers bar;
    CANARY(bar)
    CANARIES(6, &canary_q, &canary_dO, &canary_k, &canary_v, &canary_slots, &canary_bar)
};
static_assert(offsetof(dq_shared<64>, dO) % 1024 == 0 && offsetof(dq_shared<64>, k) % 1024 == 0 &&
                  offsetof(dq_shared<128>, k) % 1024 == 0 && offsetof(dq_shared<128>, v) % 1024 == 0,
              "tiles begin where the swizzle pattern does");
static_assert(offsetof(dq_shared<64>, slots) % 16 == 0 && offsetof(dq_shared<128>, slots) % 16 == 0,
              "bulk_load writes to 16-byte aligned addresses");

#ifdef PB_SM90_CODE
/* The work of a CTA: queries i0 .. i0 + DQ_ROWS - 1 of a head. */
struct dq_work {
    int b, head, list, i0;
};
/* The last queries of every head come first: they attend to the most keys. */
__device__ inline dq_work dq_work_of_cta(int number, const pb_dynmask_attention_bwd_args &a)
{
    const int tiles = (a.S + DQ_ROWS - 1) / DQ_ROWS, bh = number % (a.B * a.H), b = bh / a.H;
    return {b, bh % a.H, b * a.K + bh % a.H / (a.H / a.K), (tiles - 1 - number / (a.B * a.H)) * DQ_ROWS};
}

template <int D>
__device__ void dq_produce(dq_shared<D> &sm, const bwd_maps &m, const workspace<D> &room, const dq_work &own)
{
    constexpr int N = DQ_TILE / D;
    const bool leader = threadIdx.x % 32 == 0;
    ring_position at;
    if (leader) {
        barrier_expect(&sm.bar.own_full, sizeof sm.q + sizeof sm.dO);
        load_tile<D, DQ_ROWS>(sm.q, &m.q, &sm.bar.own_full, own.head, own.i0, own.b);
        load_tile<D, DQ_ROWS>(sm.dO, &m.dO, &sm.bar.own_full, own.head, own.i0, own.b);
    }
    for (slot_tiles<N> n(room.lists, own.list, own.i0, own.i0 + DQ_ROWS); n.next(); at.next()) {
        const int s = at.stage;
        barrier_wait(&sm.bar.first_empty[s], at.parity ^ 1);
        if (leader) {
            barrier_expect(&sm.bar.first_full[s], sizeof sm.k[0] + sizeof sm.slots[0]);
            load_tile<D, N>(sm.k[s], &m.k, &sm.bar.first_full[s], 0, n.tile * N, own.list);
            bulk_load(sm.slots[s], n.block + n.tile * (N / SLOTS), &sm.bar.first_full[s], sizeof sm.slots[0]);
        }
        barrier_wait(&sm.bar.second_empty[s], at.parity ^ 1);
        if (leader) {
            barrier_expect(&sm.bar.second_full[s], sizeof sm.v[0]);
            load_tile<D, N>(sm.v[s], &m.v, &sm.bar.second_full[s], 0, n.tile * N, own.list);
        }
        __syncwarp();
    }
}

/* The two queries of a thread, eight rows apart. */
struct query_rows {
    int i;
    float lse2[2], delta[2];
};
template <int D> __device__ inline query_rows query_rows_of(const query_tile<D> *queries, int i, int S)
{
    query_rows q = {i, {INFINITY, INFINITY}, {0, 0}};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = i + 8 * r;
        if (row >= S) continue;
        q.lse2[r] = queries[row / QUERIES<D>].stats.lse2[row % QUERIES<D>];
        q.delta[r] = queries[row / QUERIES<D>].stats.delta[row % QUERIES<D>];
    }
    return q;
}

/* Adds the biases of the slots to products S. */
template <int N> __device__ inline void add_biases(float (&s)[N / 8][4], const slot_block (&slots)[N / SLOTS])
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const float2 bias = *reinterpret_cast<const float2 *>(&slots[n / 8].bias[n % 8 * 8 + col]);
        s[n][0] += bias.x, s[n][1] += bias.y, s[n][2] += bias.x, s[n][3] += bias.y;
    }
}
/* Turns scores S into weights P. */
template <int N> __device__ inline void weigh(float (&s)[N / 8][4], const query_rows &q, float sl)
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = pb_exp2_fast(fmaf(s[n][e], sl, -q.lse2[e >> 1]));
}
/* Turns weights s into dS = P (dP - delta); exactly 0, even for NaN, where a query does not attend to a slot. */
template <int N>
__device__ inline void differentiate_rows(float (&s)[N / 8][4], const float (&dp)[N / 8][4],
                                          const slot_block (&slots)[N / SLOTS], const query_rows &q, bool masked)
{
    const unsigned lane = threadIdx.x % 32, col = lane % 4 * 2; /* of the accumulator tile */
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] *= dp[n][e] - q.delta[e >> 1];
    if (!masked) return;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const int2 from = *reinterpret_cast<const int2 *>(&slots[n / 8].from[n % 8 * 8 + col]);
        const int2 to = *reinterpret_cast<const int2 *>(&slots[n / 8].to[n % 8 * 8 + col]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = q.i + 8 * (e >> 1);
            if (row < (e & 1 ? from.y : from.x) || row >= (e & 1 ? to.y : to.x)) s[n][e] = 0;
        }
    }
}

template <int D>
__device__ void dq_consume(dq_shared<D> &sm, const pb_dynmask_attention_bwd_args &a, const workspace<D> &room,
                           const dq_work &own)
{
    constexpr bool BIAS_FIRST = D == 128; /* the biases are in the accumulators before the product q k^T */
    constexpr int N = DQ_TILE / D;
    constexpr uint32_t STAGE = DQ_TILE * sizeof(bf16);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int wg = warpgroup() - 1, i0 = own.i0 + wg * 64, i = i0 + warp * 16 + lane / 4;
    const operand_desc q = k_major_desc(sm.q + wg * 64 * 64), dO = k_major_desc(sm.dO + wg * 64 * 64);
    const operand_desc k = k_major_desc(sm.k), k_mn = mn_major_desc(sm.k, N * 128), v = k_major_desc(sm.v);
    const float sl = a.scale * LOG2E;
    const query_rows mine = query_rows_of<D>(room.queries + (size_t)(own.b * a.H + own.head) * room.tiles, i, a.S);
    float dq[D / 8][4] = {};
    uint32_t ds[N / 16][4] = {};
    ring_position at;
    int before = -1; /* stage of the tile whose product with k is pending */
    barrier_wait(&sm.bar.own_full, 0);
    for (slot_tiles<N> n(room.lists, own.list, own.i0, own.i0 + DQ_ROWS); n.next(); at.next()) {
        const int stage = at.stage;
        float s[N / 8][4], dp[N / 8][4];
        barrier_wait(&sm.bar.first_full[stage], at.parity);
        if (BIAS_FIRST) {
            wgmma_wait<0>(); /* for dq of the tile before; the compiler would insert this wait before the stores to s */
            wgmma_fence_operand(dq), wgmma_fence_operand(ds);
            fill_columns<N>(s, sm.slots[stage]);
        }
        wgmma_fence();
        start_dots<D, DQ_ROWS, N, BIAS_FIRST>(s, q, advance_desc(k, stage * STAGE));
        barrier_wait(&sm.bar.second_full[stage], at.parity);
        wgmma_fence();
        start_dots<D, DQ_ROWS, N>(dp, dO, advance_desc(v, stage * STAGE));
        wgmma_wait<1>();
        wgmma_fence_operand(s), wgmma_fence_operand(dq), wgmma_fence_operand(ds);
        if (before >= 0) release(&sm.bar.first_empty[before]);
        before = stage;
        if (!BIAS_FIRST) add_biases<N>(s, sm.slots[stage]);
        weigh<N>(s, mine, sl);
        wgmma_wait<0>();
        wgmma_fence_operand(dp);
        release(&sm.bar.second_empty[stage]);
        differentiate_rows<N>(s, dp, sm.slots[stage], mine, !all_attend(range_of<N>(sm.slots[stage]), i0, 64));
        as_operand<N / 8>(ds, s);
        wgmma_fence();
        start_weighted_sum<D>(dq, ds, advance_desc(k_mn, stage * STAGE));
    }
    wgmma_wait<0>();
    wgmma_fence_operand(dq), wgmma_fence_operand(ds);
    bf16 *to = (bf16 *)a.dq + ((size_t)own.b * a.S + i) * a.lddq + (size_t)own.head * D;
    store_rows<D / 8>(dq, a.scale, a.scale, i < a.S ? to : NULL, i + 8 < a.S ? to + 8 * a.lddq : NULL, D);
}
#endif

/* m.q, m.dO: boxes of DQ_ROWS queries; m.k, m.v: boxes of DQ_TILE / D slots. */
template <int D>
__global__ __launch_bounds__(THREADS, 1) void dq_kernel(const __grid_constant__ bwd_maps m,
                                                        const pb_dynmask_attention_bwd_args a, const workspace<D> room)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    dq_shared<D> &sm = *reinterpret_cast<dq_shared<D> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    const dq_work own = dq_work_of_cta(blockIdx.x, a);
    if (threadIdx.x == 0) init(sm.bar);
    canaries_begin(sm);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<24>();
        if (threadIdx.x < 32) dq_produce<D>(sm, m, room, own);
    } else {
        registers_more<240>();
        dq_consume<D>(sm, a, room, own);
        canaries_end(sm, threadIdx.x - 128, CONSUMERS);
    }
#endif
}

template <int D> pb_status dq(pb_ctx *ctx, const pb_dynmask_attention_bwd_args &a)
{
    constexpr size_t bytes = sizeof(dq_shared<D>) + 1024; /* 1024: dynamic shared memory may start unaligned */
    static_assert(bytes <= 232448, "more shared memory than a CTA of sm_90 can have");
    const workspace<D> room = lay_out<D>(ctx->scratch, a);
    bwd_maps m;
    PB_TRY(maps_of<D>(m, a, room.lists, DQ_ROWS, DQ_TILE / D));
    PB_TRY(pb_cuda_allow_shared(dq_kernel<D>, bytes));
    dq_kernel<D><<<(a.S + DQ_ROWS - 1) / DQ_ROWS * a.B * a.H, THREADS, bytes, pb_cuda_stream(ctx)>>>(m, a, room);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_attention_bwd wgmma, dq"));
    return canaries_report(ctx);
}
} // namespace

pb_status pb_dynmask_attention_dq_wgmma(pb_ctx *ctx, const pb_dynmask_attention_bwd_args *a)
{
    return a->D == 64 ? dq<64>(ctx, *a) : dq<128>(ctx, *a);
}
