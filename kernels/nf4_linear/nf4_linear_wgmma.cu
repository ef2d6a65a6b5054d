/* nf4_linear_wgmma.cu - the NF4 linear layer with wgmma on sm_90a: bf16, forward and dx, with the weight decoded on its
 * way to the tensor cores. Meant for token counts at which writing a dequantised weight to memory would cost too much.
 *
 * out^T = W x^T (forward) or W^T dy^T (dx): the weight is operand A, so that up to 256 tokens share each decoded
 * element. `features` are the columns of out, `terms` the dimension that is summed over; each of them is one dimension
 * of W. A CTA computes 128 features of up to TOKENS (64, 128 or 256) tokens over its share of the terms, 64 terms per
 * step.
 *
 * Roles; D is 256 decoder threads (128 with TOKENS 256):
 *
 *   threads      role                  registers per thread       work
 *   0..D-1       decoders              104 (TOKENS 256), else     decode W into tiles of bf16; thread 0 also starts
 *                                      as launched                the TMA loads of x
 *   D..D+255     consumers, two        200 (TOKENS 256), else     warpgroup g: features 64 g .. 64 g + 63, all tokens
 *                warpgroups            as launched
 *
 * Pipeline of one step:
 *
 *   decoder:   codes and scales of step i + AHEAD: cp.async into the thread's own slots of a ring of AHEAD
 *              codes of step i: 16 values per quantisation block, then a table lookup by byte permutations
 *                 |                                     x of step i: TMA, half of it from each CTA of a pair
 *                 v                                        v
 *              w[stage]  [2][64][64] bf16               x[stage]  [TOKENS][64] bf16          (STAGES = 4)
 *                 |                                        |
 *   consumer:  sums += w x^T; A is K-major (forward) or MN-major (dx)
 *
 * Then the sums go to shared memory. A cluster holds all shares of the terms of one tile of features, or of two
 * (`pair`). Its CTAs add the shares through distributed shared memory in the order of the terms, so the result is
 * deterministic. The two tiles of a pair need the same tokens: each CTA loads half of them for both (multicast), which
 * halves L2 traffic.
 *
 * Barriers (struct shared):
 *
 *   mbarrier       arrivals                                waited for by   a completed phase means
 *   full[s]        decoder lanes, thread 0 once more,      consumers       w and x of this stage are in shared memory
 *                  and TMA bytes
 *   empty[s]       8 consumer warps of this CTA            decoders        w of this stage may be overwritten
 *   all_empty[s]   8 consumer warps of every CTA that      thread 0        x of this stage may be overwritten in both
 *                  shares the tokens                                       CTAs
 *   named barrier PRODUCTS_DONE: the consumers wait for each other; the sums may overwrite the stages
 *
 * Limits: loading codes with few tokens, the tensor cores from about 100 tokens on. */
#include "kernels/nf4_linear/nf4_linear_wgmma.cuh"

#include "kernels/nf4_linear/nf4_linear_tiles.cuh"

namespace
{
enum { CONSUMERS = 256, STAGES = 4, TILE = 64 * TERMS };
enum named_barrier { PRODUCTS_DONE = 1 /* see the top of the file */ };

/* Accumulators for 256 tokens need so many registers that a CTA can have only 384 threads. One warpgroup of decoders is
 * then enough, because a step takes longer. */
template <int TOKENS> struct plan {
    enum {
        AHEAD = TOKENS == 256 ? 4 : 8,
        DECODERS = TOKENS == 256 ? 128 : 256,
        THREADS = DECODERS + CONSUMERS,
        DECODER_REGS = 104, /* registers per thread, set for 256 tokens only */
        CONSUMER_REGS = 200
    };
};

template <int TOKENS> struct alignas(1024) shared {
    union {
        struct {
            bf16 w[STAGES][2][TILE], x[STAGES][TOKENS * TERMS];
        };
        float sums[TOKENS][PITCH]; /* uses the memory of the stages when all products are done */
    };
    uint4 codes[plan<TOKENS>::AHEAD][RUNS];
    uint32_t scales[plan<TOKENS>::AHEAD][2][RUNS]; /* [0]: absmax or a word of four codes; [1]: absmax2 */
    float map[256];
    /* mbarriers; the comment at the top of the file says who arrives, and what each completed phase means */
    uint64_t full[STAGES], empty[STAGES], all_empty[STAGES];
};

#ifdef PB_SM90_CODE
/* Starts to copy the codes and scales of this thread's runs of a step to this thread's own slots in shared memory. */
template <int TOKENS, bool W_MN_MAJOR>
__device__ inline void fetch(shared<TOKENS> &sm, const task &t, int feature0, int step, int slot)
{
#pragma unroll
    for (int i = 0; i < RUNS / plan<TOKENS>::DECODERS; i++) {
        const int run = (int)threadIdx.x + i * plan<TOKENS>::DECODERS;
        const size_t e = run_at<W_MN_MAJOR>(t, feature0, step, run), j = e >> t.w.shift;
        copy_async_line(&sm.codes[slot][run], t.w.q + e / 2);
        if (t.w.s.absmax) copy_async_word(&sm.scales[slot][0][run], t.w.s.absmax + j);
        else {
            copy_async_word(&sm.scales[slot][0][run], t.w.s.absmax_q + j / 4 * 4);
            copy_async_word(&sm.scales[slot][1][run], t.w.s.absmax2 + j / 256);
        }
    }
}

/* Returns the scale of the run that begins at element e, as pb_nf4_scale_at computes it. */
template <int TOKENS>
__device__ inline float fetched_scale(const shared<TOKENS> &sm, const task &t, size_t e, int slot, int run,
                                      float offset)
{
    const uint32_t word = sm.scales[slot][0][run];
    if (t.w.s.absmax) return __uint_as_float(word);
    const uint32_t code = word >> 8 * ((uint32_t)(e >> t.w.shift) % 4) & 255;
    return __fadd_rn(__fmul_rn(sm.map[code], __uint_as_float(sm.scales[slot][1][run])), offset);
}

/* The 16 values that the codes of a quantisation block can have, rounded to bf16 as the dequantiser rounds them. The
 * low and the high bytes are in separate tables. */
struct values {
    uint32_t low[4], high[4];
};
__device__ inline values values_of(const task &t, float scale)
{
    values v;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *level = t.w.level + 4 * i;
        const uint32_t a = pack_bf16(__fmul_rn(level[0], scale), __fmul_rn(level[1], scale));
        const uint32_t b = pack_bf16(__fmul_rn(level[2], scale), __fmul_rn(level[3], scale));
        v.low[i] = bytes_of(a, b, 0x6420), v.high[i] = bytes_of(a, b, 0x7531);
    }
    return v;
}
/* Looks up four codes in a table of 16 bytes: the low three bits of a code select one of 8 bytes of each half of the
 * table, the fourth bit selects the half. */
__device__ inline uint32_t look_up(const uint32_t (&plane)[4], uint32_t among8, uint32_t half)
{
    return bytes_of(bytes_of(plane[0], plane[1], among8), bytes_of(plane[2], plane[3], among8), half);
}
/* Decodes eight elements. The high nibble of a byte is the earlier element. */
__device__ inline uint4 decode(const values &v, uint32_t codes)
{
    const uint32_t among8 = codes & 0x77777777, half = (codes >> 1 & 0x44444444) | 0x32103210;
    const uint32_t low0 = look_up(v.low, among8, half), high0 = look_up(v.high, among8, half);
    const uint32_t low1 = look_up(v.low, among8 >> 16, half >> 16), high1 = look_up(v.high, among8 >> 16, half >> 16);
    return make_uint4(bytes_of(low0, high0, 0x4051), bytes_of(low0, high0, 0x6273), bytes_of(low1, high1, 0x4051),
                      bytes_of(low1, high1, 0x6273));
}

/* Starts the TMA load of x for a step. */
template <int TOKENS>
__device__ inline void start_load(shared<TOKENS> &sm, const CUtensorMap *map, const task &t, const part &p, int stage,
                                  int step)
{
    barrier_expect(&sm.full[stage], TOKENS * TERMS * (int)sizeof(bf16));
    load_tokens<TOKENS>(sm.x[stage], &sm.full[stage], map, t, p, step);
}

template <int TOKENS, bool W_MN_MAJOR>
__device__ void produce(shared<TOKENS> &sm, const CUtensorMap *map, const task &t, const part &own)
{
    constexpr int AHEAD = plan<TOKENS>::AHEAD, EACH = RUNS / plan<TOKENS>::DECODERS;
    const float offset = t.w.s.absmax ? 0 : *t.w.s.offset;
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES && own.from + i < own.to; i++) start_load(sm, map, t, own, i, own.from + i);
    for (int i = 0; i < own.to - own.from; i++) {
        const int stage = i % STAGES, slot = i % AHEAD;
        uint4 codes[EACH];
        values v[EACH];
        copy_wait<AHEAD - 1>();
#pragma unroll
        for (int p = 0; p < EACH; p++) {
            const int run = (int)threadIdx.x + p * plan<TOKENS>::DECODERS;
            const size_t e = run_at<W_MN_MAJOR>(t, own.feature0, own.from + i, run);
            codes[p] = sm.codes[slot][run];
            v[p] = values_of(t, fetched_scale(sm, t, e, slot, run, offset));
        }
        barrier_wait(&sm.empty[stage], (i / STAGES & 1) ^ 1);
        if (threadIdx.x == 0 && i >= STAGES) {
            barrier_wait(&sm.all_empty[stage], (i / STAGES & 1) ^ 1);
            start_load(sm, map, t, own, stage, own.from + i);
        }
#pragma unroll
        for (int p = 0; p < EACH; p++) {
            const int run = (int)threadIdx.x + p * plan<TOKENS>::DECODERS, row = run % 128 / 2, chunk = run % 2 * 4;
            uint4 *tile = reinterpret_cast<uint4 *>(sm.w[stage][run / 128]) + row * 8;
            tile[chunk ^ (row % 8)] = decode(v[p], codes[p].x);
            tile[(chunk + 1) ^ (row % 8)] = decode(v[p], codes[p].y);
            tile[(chunk + 2) ^ (row % 8)] = decode(v[p], codes[p].z);
            tile[(chunk + 3) ^ (row % 8)] = decode(v[p], codes[p].w);
        }
        fence_async_shared();
        release(&sm.full[stage]);
        if (own.from + i + AHEAD < own.to) fetch<TOKENS, W_MN_MAJOR>(sm, t, own.feature0, own.from + i + AHEAD, slot);
        copy_commit();
    }
}

/* Computes this CTA's share of the sums and leaves it in shared memory as [token][feature]. */
template <int TOKENS, bool W_MN_MAJOR> __device__ void consume(shared<TOKENS> &sm, const task &t, const part &own)
{
    constexpr uint32_t W_STAGE = 2 * TILE * sizeof(bf16), X_STAGE = TOKENS * TERMS * sizeof(bf16);
    constexpr uint32_t NEXT = W_MN_MAJOR ? 16 * 128 : 16 * sizeof(bf16); /* bytes of 16 terms */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int group = warpgroup() - plan<TOKENS>::DECODERS / 128, feature = group * 64 + warp * 16 + lane / 4;
    const operand_desc w = W_MN_MAJOR ? mn_major_desc(sm.w[0][group], 64 * 128) : k_major_desc(sm.w[0][group]);
    const operand_desc x = k_major_desc(sm.x[0]);
    float c[TOKENS / 8][4];
    for (int i = 0; i < own.to - own.from; i++) {
        const int stage = i % STAGES, last = (i + STAGES - 1) % STAGES;
        barrier_wait(&sm.full[stage], i / STAGES & 1);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TERMS / 16; k++)
            wgmma<W_MN_MAJOR, 0>(c, advance_desc(w, stage * W_STAGE + k * NEXT),
                                 advance_desc(x, stage * X_STAGE + k * 32), i + k > 0);
        wgmma_commit();
        if (!i) continue;
        wgmma_wait<1>();
        if (lane == 0) barrier_arrive(&sm.empty[last]);
        if (lane < t.pair) cluster_arrive(&sm.all_empty[last], own.share * t.pair + lane);
    }
    wgmma_wait<0>();
    wgmma_fence_operand(c);
    named_sync(PRODUCTS_DONE, CONSUMERS); /* sums overwrite the stages, which both warpgroups read */
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sm.sums[8 * j + lane % 4 * 2 + e % 2][feature + e / 2 * 8] = c[j][e];
}

#endif

/* Grid: x = clusters * splits * pair, y = tiles of tokens. */
template <int TOKENS, bool W_MN_MAJOR>
__global__ __launch_bounds__(plan<TOKENS>::THREADS, 1) void fused(const __grid_constant__ CUtensorMap map,
                                                                  const __grid_constant__ task t)
{
#ifdef PB_SM90_CODE
    constexpr int DECODERS = plan<TOKENS>::DECODERS;
    extern __shared__ unsigned char smem[];
    shared<TOKENS> &sm = *reinterpret_cast<shared<TOKENS> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    const part own = part_of<TOKENS>(t);
    if (threadIdx.x < DECODERS) {
        for (int i = 0; i < plan<TOKENS>::AHEAD; i++) {
            if (own.from + i < own.to) fetch<TOKENS, W_MN_MAJOR>(sm, t, own.feature0, own.from + i, i);
            copy_commit();
        }
        for (int i = (int)threadIdx.x; i < 256 && !t.w.s.absmax; i += DECODERS) sm.map[i] = t.w.s.code[i];
    } else if (threadIdx.x == DECODERS) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&sm.full[s], DECODERS / 32 * WARP_ARRIVES + 1);
            barrier_init(&sm.empty[s], CONSUMERS / 32);
            barrier_init(&sm.all_empty[s], CONSUMERS / 32 * t.pair);
        }
        barrier_inits_done();
        tensor_map_prefetch(&map);
    }
    if (t.pair > 1) cluster_sync(); /* CTAs of the cluster arrive at this CTA's mbarriers */
    else __syncthreads();
    if (threadIdx.x < DECODERS) {
        if (TOKENS == 256) registers_fewer<plan<TOKENS>::DECODER_REGS>();
        produce<TOKENS, W_MN_MAJOR>(sm, &map, t, own);
        finish<TOKENS, plan<TOKENS>::THREADS / 32>(sm.sums, t, own);
    } else {
        if (TOKENS == 256) registers_more<plan<TOKENS>::CONSUMER_REGS>();
        consume<TOKENS, W_MN_MAJOR>(sm, t, own);
        finish<TOKENS, plan<TOKENS>::THREADS / 32>(sm.sums, t, own);
    }
#endif
}

/* The fixed cost of a CTA is 2.3 us. That is worth `start` steps: a step takes 0.29 us with 128 tokens and 0.58 us with
 * 256. */
template <int TOKENS, bool W_MN_MAJOR> pb_status launch(pb_ctx *ctx, const void *x, task t)
{
    constexpr size_t bytes = sizeof(shared<TOKENS>) + 1024; /* 1024: dynamic shared memory may start unaligned */
    const tiles n = {(t.features + FEATURES - 1) / FEATURES, (t.tokens + TOKENS - 1) / TOKENS};
    CUtensorMap map;
    divide(&t, n, pb_cuda_device_of(ctx)->sms, {.per_sm = 1, .start = t.tokens > 128 ? 4 : 8, .odd = false});
    PB_TRY(tensor_map(&map, x, (size_t)t.terms, 1, t.tokens, 1, t.terms, TOKENS / t.pair));
    return launch_clusters(ctx, "nf4_linear wgmma", fused<TOKENS, W_MN_MAJOR>, t, n, plan<TOKENS>::THREADS, bytes, map,
                           t);
}

template <bool W_MN_MAJOR> pb_status by_tokens(pb_ctx *ctx, const void *x, const task &t)
{
    if (t.tokens <= 64) return launch<64, W_MN_MAJOR>(ctx, x, t);
    if (t.tokens <= 128) return launch<128, W_MN_MAJOR>(ctx, x, t);
    return launch<256, W_MN_MAJOR>(ctx, x, t);
}

bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

bool takes(const void *x, const void *q, const void *out, const pb_nf4_scales *s, int N, int K)
{
    const size_t blocks = ((size_t)N * K + (size_t)s->block - 1) / (size_t)s->block;
    const bool words = s->absmax || ((uintptr_t)s->absmax_q % 4 == 0 && blocks % 4 == 0);
    return K % 32 == 0 && N % 8 == 0 && aligned(x) && aligned(q) && aligned(out) && words;
}
} // namespace

bool pb_nf4_linear_wgmma_takes_fwd(const void *args)
{
    const pb_nf4_linear_fwd_args *a = static_cast<const pb_nf4_linear_fwd_args *>(args);
    return a->dtype == PB_BF16 && takes(a->x, a->q, a->y, &a->scales, a->N, a->K);
}

bool pb_nf4_linear_wgmma_takes_dx(const void *args)
{
    const pb_nf4_linear_dx_args *a = static_cast<const pb_nf4_linear_dx_args *>(args);
    return a->dtype == PB_BF16 && takes(a->dy, a->q, a->dx, &a->scales, a->N, a->K);
}

pb_status pb_nf4_linear_wgmma_fwd(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_fwd_args *a = static_cast<const pb_nf4_linear_fwd_args *>(args);
    return a->T ? by_tokens<false>(ctx, a->x, fwd_task(a)) : PB_OK;
}

pb_status pb_nf4_linear_wgmma_dx(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_dx_args *a = static_cast<const pb_nf4_linear_dx_args *>(args);
    return a->T ? by_tokens<true>(ctx, a->dy, dx_task(a)) : PB_OK;
}
