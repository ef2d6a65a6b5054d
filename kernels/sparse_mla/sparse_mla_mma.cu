/* sparse_mla_mma.cu - MLA forward with mma.sync on sm_80 and later, bf16.
 *
 * A CTA computes up to 64 heads of one token. They attend to the same rows of kv, so a gathered row is read once for
 * all of them. Rows pass through shared memory in tiles of 32 with two stages. Scores pass through shared memory as
 * f32, weights as bf16; q stays there for the whole loop. A masked slot is a row of zeros with weight 0. */
#include "kernels/sparse_mla/mla_tiles.cuh"

namespace
{
template <int G, int DP> struct fwd_smem {
    static constexpr int SCORE_LD = MLA_KEYS + 4;
    bf16 q[16 * G * mla_ld<DP>], kv[2][MLA_KEYS * mla_ld<DP>], weight[16 * G * MLA_P_LD];
    float score[16 * G * SCORE_LD], keep[16 * G];
    int row[2][MLA_KEYS];
};

/* Computes the scores of a tile times scale2 = scale * log2(e), so that a weight is 2^score; -inf for masked slots. */
template <int G, int DP> __device__ inline void score_tile(fwd_smem<G, DP> &sm, int stage, float scale2)
{
    constexpr int LD = mla_ld<DP>, SLD = fwd_smem<G, DP>::SCORE_LD;
    const int group = threadIdx.x / 32 % G, lane = pb_mma_lane();
    for (int tile = threadIdx.x / 32 / G; tile < MLA_KEYS / 8; tile += 8 / G) {
        float c[4];
        mla_dot<DP>(c, sm.q + group * 16 * LD, LD, sm.kv[stage] + tile * 8 * LD, LD);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = group * 16 + lane / 4 + e / 2 * 8, slot = tile * 8 + lane % 4 * 2 + e % 2;
            sm.score[row * SLD + slot] = sm.row[stage][slot] >= 0 ? c[e] * scale2 : -INFINITY;
        }
    }
}

/* State of the online softmax of one row, with scores in base 2: running maximum, and sum of 2^(score - maximum). The
 * 16/G threads of the row hold equal copies. */
struct softmax_row {
    float top, sum;
};
template <int G, int DP> __device__ inline void weigh_tile(fwd_smem<G, DP> &sm, softmax_row &st)
{
    constexpr int SHARE = 16 / G, N = MLA_KEYS / SHARE;
    const int row = threadIdx.x / SHARE, part = threadIdx.x % SHARE;
    const float *s = sm.score + row * fwd_smem<G, DP>::SCORE_LD;
    float top = st.top, sum = 0;
#pragma unroll
    for (int k = 0; k < N; k++) top = fmaxf(top, s[part + k * SHARE]);
#pragma unroll
    for (int d = SHARE / 2; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    const float base = top == -INFINITY ? 0 : top; /* no key and no sink yet: weights are 0, not NaN */
    const float keep = pb_exp2_fast(st.top - base);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float w = pb_exp2_fast(s[part + k * SHARE] - base);
        sm.weight[row * MLA_P_LD + part + k * SHARE] = __float2bfloat16_rn(w);
        sum += w;
    }
#pragma unroll
    for (int d = SHARE / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    st.top = top, st.sum = st.sum * keep + sum;
    if (part == 0) sm.keep[row] = keep;
}

template <int G, int DP, int VP>
__global__ __launch_bounds__(MLA_THREADS, 1) void fwd_kernel(const pb_mla p, int blocks)
{
    extern __shared__ __align__(128) unsigned char smem[];
    constexpr int NT = VP / (8 / G) / 8, SHARE = 16 / G;
    fwd_smem<G, DP> &sm = *reinterpret_cast<fwd_smem<G, DP> *>(smem);
    const mla_cta_work own = mla_heads_of<G>(p, blockIdx.x / blocks, (int)(blockIdx.x % blocks));
    const pb_mla_keys keys = pb_mla_keys_of(&p, own.b, own.i);
    const int row = threadIdx.x / 32 % G * 16 + pb_mma_lane() / 4, col = (int)threadIdx.x / 32 / G * NT * 8;
    const int mine = threadIdx.x / SHARE; /* the row whose softmax this thread and SHARE - 1 others compute */
    const float sink = mine < own.n ? p.sink[own.h + mine] * MLA_LOG2E : 0;
    softmax_row st = {sink, sink == -INFINITY ? 0.0f : 1.0f}; /* the sink is the initial maximum, with weight 1 */
    float o[NT][4];
#pragma unroll
    for (int n = 0; n < NT; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
    mla_load_rows<DP, 16 * G>(sm.q, (const bf16 *)p.q + own.head * p.D, own.n, p.D);
    if (keys.n > 0) mla_load_slots<DP>(sm.kv[0], sm.row[0], p, keys, own.b, 0);
    copy_commit();
    for (int w0 = 0, stage = 0; w0 < keys.n; w0 += MLA_KEYS, stage ^= 1) {
        if (w0 + MLA_KEYS < keys.n)
            mla_load_slots<DP>(sm.kv[stage ^ 1], sm.row[stage ^ 1], p, keys, own.b, w0 + MLA_KEYS);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        score_tile<G, DP>(sm, stage, p.scale * MLA_LOG2E);
        __syncthreads();
        weigh_tile<G, DP>(sm, st);
        __syncthreads();
        const float keep0 = sm.keep[row], keep8 = sm.keep[row + 8];
#pragma unroll
        for (int n = 0; n < NT; n++) o[n][0] *= keep0, o[n][1] *= keep0, o[n][2] *= keep8, o[n][3] *= keep8;
        mla_add_weighted<NT>(o, sm.weight + (row - pb_mma_lane() / 4) * MLA_P_LD, sm.kv[stage] + col, mla_ld<DP>);
        __syncthreads();
    }
    copy_wait<0>();
    if (threadIdx.x % SHARE == 0) {
        sm.keep[mine] = st.sum == 0 ? 0 : 1 / st.sum;
        if (mine < own.n) p.lse[own.head + mine] = st.sum == 0 ? -INFINITY : st.top * MLA_LN2 + logf(st.sum);
    }
    __syncthreads();
    mla_store<NT>(o, sm.keep[row], sm.keep[row + 8], (bf16 *)p.o + own.head * p.V, row, own.n, col, p.V);
}

template <int G, int DP, int VP> pb_status launch(pb_ctx *ctx, const pb_mla &p)
{
    const int blocks = (p.H + 16 * G - 1) / (16 * G);
    return mla_launch(ctx, "mla_fwd mma", fwd_kernel<G, DP, VP>, (size_t)p.B * p.S * blocks, sizeof(fwd_smem<G, DP>), p,
                      blocks);
}

static_assert(sizeof(fwd_smem<2, 64>) <= PB_GPU_LEAST_SHARED && sizeof(fwd_smem<1, 576>) <= PB_GPU_LEAST_SHARED,
              "the kernels with the smallest tiles must fit every GPU");

/* Launches with 16, 32 or 64 heads per CTA: no more than H needs, and than the GPU has shared memory for. */
template <int DP> pb_status by_heads(pb_ctx *ctx, const pb_mla &p)
{
    const size_t most = pb_cuda_device_of(ctx)->shared;
    if (p.H <= 16 || most < sizeof(fwd_smem<2, DP>)) return launch<1, DP, 512>(ctx, p);
    if (p.H <= 32 || most < sizeof(fwd_smem<4, DP>)) return launch<2, DP, 512>(ctx, p);
    return launch<4, DP, 512>(ctx, p);
}
} // namespace

bool pb_mla_mma_takes(const pb_mla *p)
{
    return p->dtype == PB_BF16 && p->D % 8 == 0 && p->V % 8 == 0 && p->D <= 576 && p->V <= 512 && mla_aligned(p->q) &&
           mla_aligned(p->kv) && mla_aligned(p->o) &&
           (!p->backward || (mla_aligned(p->dO) && mla_aligned(p->dq) && mla_aligned(p->dkv) &&
                             pb_mla_bwd_mma_shared(p) <= pb_cuda_shared()));
}

pb_status pb_mla_fwd_mma(pb_ctx *ctx, const pb_mla *p)
{
    return p->D <= 64 ? launch<2, 64, 64>(ctx, *p) : p->D <= 512 ? by_heads<512>(ctx, *p) : by_heads<576>(ctx, *p);
}
