/* nf4_linear_registers.cu - the NF4 linear layer with wgmma on sm_90a: bf16, forward and dx, with the weight decoded
 * straight into the registers of operand A. Meant for 17 to 256 tokens.
 *
 * nf4_linear_tiles.cuh has the names (features, terms, share, pair) and the division of the work: a CTA computes 128
 * features of up to TOKENS (64, 128 or 256) tokens over its share of the terms, 64 terms per step. The weight is
 * operand A, so that all tokens share each decoded element. Decoded elements never pass through shared memory, so a
 * step needs no barrier between the warps that decode and those that multiply, and no proxy fence.
 *
 * A CTA is two warpgroups. Warpgroup g computes features 64 g .. 64 g + 63 of all tokens; each warp decodes the 16
 * features whose rows of A it holds. Thread 0 also starts the TMA loads. There is no producer warp: with 256 threads a
 * thread may have 128 registers although an SM holds two CTAs (up to 128 tokens). Two CTAs hide each other's latencies,
 * and one multiplies while the other starts or ends.
 *
 * Pipeline of one step, in a ring of STAGES:
 *
 *   thread 0:  x[stage]      [TOKENS][64] bf16     TMA, half of it from each CTA of a pair
 *              codes[stage]  [128][32] bytes, the rows of W that are features (forward), or [64][64] bytes, the rows
 *                            that are terms (dx); TMA
 *   each warp: scales        one f32 for each run of 32 codes that the warp decodes: global memory, registers (a step
 *                            ahead), the warp's part of shared memory
 *              for each half of the step (32 terms): codes and scales to registers; waits until the products of the
 *              last but one half have read their A registers; decodes into these; starts sums += w x^T
 *
 * So a warp decodes one half while the tensor cores multiply the previous one.
 *
 * Decoding: an element is a load from a table of 16 f32 levels in shared memory, in 16 different banks, so that the
 * loads of a warp never conflict; then the multiplication by the scale, and a rounding to bf16 that two elements share.
 * Lane 4 g + t needs columns 2t, 2t+1, 2t+8 and 2t+9 of rows g and g+8 of each A fragment (mma.cuh):
 *     forward  A row of A is a row of W, a column is a term. Columns 2t and 2t+1 are byte t of a word of eight codes.
 *              The four lanes of a quad load the same words; each uses its byte.
 *     dx       A column of A is a row of W. The two rows of A that a lane holds are neighbouring features, which share
 *              a byte of codes. ldmatrix with transposition gives lane 4 g + t the codes of terms 2t and 2t+1 of features
 *              4 g .. 4 g + 3; the warp uses the first two of these or the last two, its neighbour the others.
 *
 * Then the sums go to shared memory and are added over the shares (finish).
 *
 * Barriers (struct shared):
 *
 *   mbarrier    arrivals                            waited for by   a completed phase means
 *   full[s]     thread 0 and TMA bytes              all             codes and x of this stage are in shared memory
 *   empty[s]    8 warps of every CTA that shares    thread 0        this stage may be overwritten in both CTAs
 *               the tokens
 *
 * A warp releases a stage in the second half of the next step, when the products of the stage are done. Thread 0
 * refills it at the start of the step after that (LAG), so that it seldom waits for other warps.
 *
 * Edges: TMA reads zeros for codes and tokens beyond the edges; run_at() gives them the scale of an existing run.
 *
 * Limits: shared memory, which both the decoding lanes (4 bytes per element) and the tensor cores (x) read. */
#include "kernels/cuda/mma.cuh"
#include "kernels/nf4_linear/nf4_linear_tiles.cuh"
#include "kernels/nf4_linear/nf4_linear_wgmma.cuh"

namespace
{
enum { THREADS = 256, LAG = 2 /* steps from the end of a stage to its refill */, CODE_BYTES = FEATURES * TERMS / 2 };

template <int TOKENS> struct plan {
    enum { PER_SM = TOKENS == 256 ? 1 : 2 /* CTAs per SM */, STAGES = TOKENS == 64 ? 8 : 4 };
};

template <int TOKENS> struct alignas(1024) shared {
    enum { STAGES = plan<TOKENS>::STAGES };
    union {
        struct {
            bf16 x[STAGES][TOKENS * TERMS];
            uint8_t codes[STAGES][CODE_BYTES];
        };
        float sums[TOKENS][PITCH]; /* uses the memory of the stages when all products are done */
    };
    float scales[THREADS / 32][2][RUN]; /* of each warp, for both halves of a step; see weights */
    alignas(64) float level[16];
    float map[256];
    /* mbarriers; the comment at the top of the file says who arrives, and what each completed phase means */
    uint64_t full[STAGES], empty[STAGES];
};

#ifdef PB_SM90_CODE
/* Starts the TMA loads of a step: codes, and the tokens or this CTA's half of them. */
template <int TOKENS, bool DX>
__device__ inline void start_loads(shared<TOKENS> &sm, const CUtensorMap *x, const CUtensorMap *codes, const task &t,
                                   const part &own, int stage, int step)
{
    uint64_t *full = &sm.full[stage];
    barrier_expect(full, TOKENS * TERMS * (int)sizeof(bf16) + CODE_BYTES);
    load_tokens<TOKENS>(sm.x[stage], full, x, t, own, step);
    if (DX) tma_load(sm.codes[stage], codes, full, own.feature0 / 2, 0, step * TERMS, 0);
    else tma_load(sm.codes[stage], codes, full, step * TERMS / 2, 0, own.feature0, 0);
}

/* Returns the level of a code in bits 2 to 5 of `bits`. */
__device__ inline float level_of(uint32_t table, uint32_t bits)
{
    float level;
    asm("ld.shared.f32 %0, [%1];" : "=f"(level) : "r"(table | (bits & 0x3c)));
    return level;
}
__device__ inline uint32_t rotated_right(uint32_t word, int by) { return __funnelshift_r(word, word, (uint32_t)by); }
/* Decodes the codes that begin at bits `low` and `high` of `word`, to the low and the high half of the result. */
__device__ inline uint32_t decode(uint32_t table, uint32_t word, int low, float scale_low, int high, float scale_high)
{
    return pack_bf16(__fmul_rn(level_of(table, rotated_right(word, low - 2)), scale_low),
                     __fmul_rn(level_of(table, rotated_right(word, high - 2)), scale_high));
}

/* Reads and decodes the A fragments of a warp; 32 terms, half of a step, at a time. Forward. */
template <int TOKENS, bool DX> struct weights {
    uint32_t table, codes; /* addresses in shared memory; codes: of row g, its first 32 terms, in stage 0 */
    int shift;             /* bit at which the lane's byte of each word begins */
    const float *scales;   /* of row g */
    int feature;           /* of row g of the fragments; row g+8 has feature + 8 */
    int run;               /* the run whose scale this lane loads: half lane / 16 of row lane % 16 of the warp */
    enum { SCALES = 1, NEXT_RUN = 0 };
    struct half {
        uint4 codes[2]; /* rows g and g+8 */
        float scale[2];
    };
    __device__ weights(const shared<TOKENS> &sm, int group)
    {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4, row = warp * 16 + lane / 4;
        feature = group * 64 + row;
        table = smem_address(sm.level);
        codes = smem_address(sm.codes[0]) + (uint32_t)(feature * 32 + (row / 4 % 2 * 16));
        shift = lane % 4 * 8;
        scales = sm.scales[group * 4 + warp][0] + lane / 4;
        run = group * 128 + (warp * 16 + lane % 16) * 2 + lane / 16;
    }
    __device__ half load(int stage, int h) const
    {
        const uint32_t at = (codes ^ (uint32_t)h * 16) + (uint32_t)stage * CODE_BYTES;
        return {{load_shared(at), load_shared(at + 8 * 32)}, {scales[h * RUN], scales[h * RUN + 8]}};
    }
    __device__ void decode_to(uint32_t (&a)[2][4], const half &in) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t word[4] = {in.codes[r].x, in.codes[r].y, in.codes[r].z, in.codes[r].w};
#pragma unroll
            for (int i = 0; i < 4; i++) /* the high nibble of a byte is the earlier element */
                a[i / 2][i % 2 * 2 + r] = decode(table, word[i], shift + 4, in.scale[r], shift, in.scale[r]);
        }
    }
    __device__ static uint4 load_shared(uint32_t at)
    {
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(at)
                     : "memory");
        return v;
    }
};

/* dx. Warps 0 and 1 of a group share the features 0..31 of the group, warps 2 and 3 the features 32..63. */
template <int TOKENS> struct weights<TOKENS, true> {
    uint32_t table;
    const uint8_t *codes; /* the row of codes that the lane passes to ldmatrix, in stage 0 */
    int shift;            /* bit at which the warp's byte of each two bytes begins */
    const float *scales;  /* of term 2t */
    int feature;          /* of row g of the fragments; row g+8 has feature + 1 */
    int run;              /* the first run whose scale this lane loads: term `lane`, features of the warp */
    enum { SCALES = 2, NEXT_RUN = 2 * RUN };
    struct half {
        uint32_t codes[4]; /* of terms 8i + 2t (low half) and 8i + 2t + 1 (high half) */
        float2 scale[4];   /* of these two terms */
    };
    __device__ weights(const shared<TOKENS> &sm, int group)
    {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
        feature = group * 64 + warp / 2 * 32 + lane / 4 * 4 + warp % 2 * 2;
        table = smem_address(sm.level);
        codes = sm.codes[0] + lane * 64 + (((group * 2 + warp / 2) ^ (lane / 2 % 4)) * 16);
        shift = warp % 2 * 8;
        scales = sm.scales[group * 4 + warp][0] + lane % 4 * 2;
        run = group * 128 + lane * 2 + warp / 2;
    }
    __device__ half load(int stage, int h) const
    {
        half v;
        pb_ldmatrix_trans(v.codes, reinterpret_cast<const bf16 *>(codes + stage * CODE_BYTES + h * 32 * 64));
#pragma unroll
        for (int i = 0; i < 4; i++) v.scale[i] = *reinterpret_cast<const float2 *>(scales + h * RUN + i * 8);
        return v;
    }
    __device__ void decode_to(uint32_t (&a)[2][4], const half &in) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) { /* the high nibble of a byte is the first feature */
                const int at = shift + 4 - 4 * r;
                a[i / 2][i % 2 * 2 + r] = decode(table, in.codes[i], at, in.scale[i].x, at + 16, in.scale[i].y);
            }
    }
};

/* What a lane has loaded for its runs of a step: scales, or their codes and the scales of those. */
template <int N> struct raw_scales {
    float scale[N];
    uint32_t code[N];
};
template <int TOKENS, bool DX, int N>
__device__ inline void load_scales(raw_scales<N> &raw, const weights<TOKENS, DX> &w, const task &t, int feature0,
                                   int step)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const size_t j = run_at<DX>(t, feature0, step, w.run + i * w.NEXT_RUN) >> t.w.shift;
        if (t.w.s.absmax) raw.scale[i] = t.w.s.absmax[j];
        else raw.code[i] = t.w.s.absmax_q[j], raw.scale[i] = t.w.s.absmax2[j / 256];
    }
}
/* Computes the scales as pb_nf4_scale_at does and stores them to this warp's part of shared memory. */
template <int TOKENS, int N>
__device__ inline void store_scales(shared<TOKENS> &sm, const raw_scales<N> &raw, const task &t, float offset)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    __syncwarp(); /* all lanes have read the scales of the previous step */
#pragma unroll
    for (int i = 0; i < N; i++) {
        float scale = raw.scale[i];
        if (!t.w.s.absmax) scale = __fadd_rn(__fmul_rn(sm.map[raw.code[i]], scale), offset);
        if (N == 1) sm.scales[warp][lane / 16][lane % 16] = scale;
        else sm.scales[warp][i][lane] = scale;
    }
    __syncwarp();
}

/* cluster_arrive on a condition, without a branch: after a branch ptxas would not let the products of one half run
 * while the other half is decoded. */
__device__ inline void cluster_arrive_if(bool yes, uint64_t *own, int rank)
{
    asm volatile("{ .reg .pred p; .reg .b32 at; setp.ne.b32 p, %2, 0;\n"
                 "@p mapa.shared::cluster.u32 at, %0, %1;\n"
                 "@p mbarrier.arrive.shared::cluster.b64 _, [at]; }" ::"r"(smem_address(own)),
                 "r"(rank), "r"((int)yes)
                 : "memory");
}

/* Computes this CTA's share of the sums and leaves it in shared memory as [token][feature]. */
template <int TOKENS, bool DX>
__device__ void multiply(shared<TOKENS> &sm, const CUtensorMap *map, const CUtensorMap *codes, const task &t,
                         const part &own)
{
    constexpr int STAGES = plan<TOKENS>::STAGES;
    constexpr uint32_t X_STAGE = TOKENS * TERMS * sizeof(bf16);
    const int lane = (int)threadIdx.x % 32, steps = own.to - own.from;
    const weights<TOKENS, DX> w(sm, warpgroup());
    const operand_desc x = k_major_desc(sm.x[0]);
    const float offset = t.w.s.absmax ? 0 : *t.w.s.offset;
    raw_scales<w.SCALES> raw;
    float c[TOKENS / 8][4] = {};
    uint32_t a[2][2][4]; /* [half of the step][16 terms][fragment] */
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES && i < steps; i++) start_loads<TOKENS, DX>(sm, map, codes, t, own, i, own.from + i);
    load_scales(raw, w, t, own.feature0, own.from);
    for (int i = 0; i < steps; i++) {
        const int stage = i % STAGES, last = (i + STAGES - 1) % STAGES, refill = i + STAGES - LAG;
        if (threadIdx.x == 0 && i >= LAG && refill < steps) {
            barrier_wait(&sm.empty[refill % STAGES], (i - LAG) / STAGES & 1);
            start_loads<TOKENS, DX>(sm, map, codes, t, own, refill % STAGES, own.from + refill);
        }
        store_scales(sm, raw, t, offset);
        if (i + 1 < steps) load_scales(raw, w, t, own.feature0, own.from + i + 1);
        barrier_wait(&sm.full[stage], i / STAGES & 1);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const typename weights<TOKENS, DX>::half in = w.load(stage, h);
            wgmma_wait<1>(); /* the products of half h of the previous step are done */
            wgmma_fence_operand(a[h]);
            if (h == 1) { /* all products of the previous step are done */
                __syncwarp();
                cluster_arrive_if(i > 0 && lane < t.pair, &sm.empty[last], own.share * t.pair + lane);
            }
            w.decode_to(a[h], in);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 2; k++)
                wgmma<0>(c, a[h][k], advance_desc(x, (uint32_t)stage * X_STAGE + (2 * h + k) * 32));
            wgmma_commit();
        }
    }
    wgmma_wait<0>();
    wgmma_fence_operand(c);
    __syncthreads(); /* sums overwrite the stages, which both warpgroups read */
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float *sums = &sm.sums[8 * j + lane % 4 * 2 + e][w.feature];
            if (DX) *reinterpret_cast<float2 *>(sums) = make_float2(c[j][e], c[j][e + 2]);
            else sums[0] = c[j][e], sums[8] = c[j][e + 2];
        }
}
#endif

/* Grid: x = clusters * splits * pair, y = tiles of tokens. */
template <int TOKENS, bool DX>
__global__ __launch_bounds__(THREADS, plan<TOKENS>::PER_SM) void decoded(const __grid_constant__ CUtensorMap x,
                                                                         const __grid_constant__ CUtensorMap codes,
                                                                         const __grid_constant__ task t)
{
#ifdef PB_SM90_CODE
    extern __shared__ unsigned char smem[];
    shared<TOKENS> &sm = *reinterpret_cast<shared<TOKENS> *>(smem + (1024 - smem_address(smem) % 1024) % 1024);
    const part own = part_of<TOKENS>(t);
    if (!t.w.s.absmax) sm.map[threadIdx.x] = t.w.s.code[threadIdx.x];
    if (threadIdx.x < 16) sm.level[threadIdx.x] = t.w.level[threadIdx.x];
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&x);
        tensor_map_prefetch(&codes);
        for (int s = 0; s < plan<TOKENS>::STAGES; s++) {
            barrier_init(&sm.full[s], 1);
            barrier_init(&sm.empty[s], THREADS / 32 * t.pair);
        }
        barrier_inits_done();
    }
    if (t.pair > 1) cluster_sync(); /* CTAs of the cluster arrive at this CTA's mbarriers */
    else __syncthreads();
    multiply<TOKENS, DX>(sm, &x, &codes, t, own);
    finish<TOKENS, THREADS / 32>(sm.sums, t, own);
#endif
}

template <int TOKENS, bool DX> pb_status launch(pb_ctx *ctx, const void *x, task t)
{
    constexpr size_t bytes = sizeof(shared<TOKENS>) + 1024; /* 1024: dynamic shared memory may start unaligned */
    const tiles n = {(t.features + FEATURES - 1) / FEATURES, (t.tokens + TOKENS - 1) / TOKENS};
    CUtensorMap map, codes;
    divide(&t, n, pb_cuda_device_of(ctx)->sms,
           {.per_sm = plan<TOKENS>::PER_SM, .start = TOKENS == 256 ? 4 : 8, .odd = true});
    PB_TRY(tensor_map(&map, x, (size_t)t.terms, 1, t.tokens, 1, t.terms, TOKENS / t.pair));
    if (DX) PB_TRY(tensor_map_bytes(&codes, t.w.q, t.terms, t.features / 2, TERMS, FEATURES / 2));
    else PB_TRY(tensor_map_bytes(&codes, t.w.q, t.features, t.terms / 2, FEATURES, TERMS / 2));
    return launch_clusters(ctx, "nf4_linear registers", decoded<TOKENS, DX>, t, n, THREADS, bytes, map, codes, t);
}

template <bool DX> pb_status by_tokens(pb_ctx *ctx, const void *x, const task &t)
{
    if (!t.tokens) return PB_OK;
    if (t.tokens <= 64) return launch<64, DX>(ctx, x, t);
    if (t.tokens <= 128) return launch<128, DX>(ctx, x, t);
    return launch<256, DX>(ctx, x, t);
}
} // namespace

pb_status pb_nf4_linear_registers_fwd(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_fwd_args *a = static_cast<const pb_nf4_linear_fwd_args *>(args);
    return by_tokens<false>(ctx, a->x, fwd_task(a));
}

pb_status pb_nf4_linear_registers_dx(pb_ctx *ctx, const void *args)
{
    const pb_nf4_linear_dx_args *a = static_cast<const pb_nf4_linear_dx_args *>(args);
    return by_tokens<true>(ctx, a->dy, dx_task(a));
}
