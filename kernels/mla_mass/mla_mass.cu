/* mla_mass.cu - the attention mass of listed slots (their weights, summed over the heads) on the GPU.
 *
 * Kernel mma (bf16, D up to 576 and a multiple of 8): a CTA computes one token, up to 64 heads at a time. Their q stays
 * in shared memory, and the rows of the slots pass through it in tiles of 32 with two stages, as in sparse_mla_mma.cu;
 * only scores are computed. Limit: shared memory. Kernel simt (f32 or bf16, any D): a warp computes one slot, four
 * heads at a time. Limit: L1. Both kernels add the heads in a fixed order. */
#include "kernels/sparse_mla/mla_tiles.cuh"
#include "kernels/mla_mass/problem.h"

namespace
{
struct wanted {
    float *mass;
    int from, n;
};

template <int G, int DP> struct mass_smem {
    bf16 q[16 * G * mla_ld<DP>], kv[2][MLA_KEYS * mla_ld<DP>];
    float lse2[16 * G], part[G][MLA_KEYS]; /* lse2: lse * log2(e); +inf: the head adds nothing. part: see weigh_tile */
    int row[2][MLA_KEYS];
};

/* Computes part[group][slot], the mass of a slot summed over the 16 heads of a group. */
template <int G, int DP> __device__ inline void weigh_tile(mass_smem<G, DP> &sm, int stage, float scale2)
{
    constexpr int LD = mla_ld<DP>;
    const int group = threadIdx.x / 32 % G, lane = pb_mma_lane();
    const float lse0 = sm.lse2[group * 16 + lane / 4], lse8 = sm.lse2[group * 16 + lane / 4 + 8];
    for (int tile = threadIdx.x / 32 / G; tile < MLA_KEYS / 8; tile += 8 / G) {
        float c[4];
        mla_dot<DP>(c, sm.q + group * 16 * LD, LD, sm.kv[stage] + tile * 8 * LD, LD);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int slot = tile * 8 + lane % 4 * 2 + e;
            float sum = pb_exp2_fast(fmaf(c[e], scale2, -lse0)) + pb_exp2_fast(fmaf(c[e + 2], scale2, -lse8));
#pragma unroll
            for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
            if (lane < 4) sm.part[group][slot] = sm.row[stage][slot] >= 0 ? sum : 0;
        }
    }
}

template <int G, int DP>
__global__ __launch_bounds__(MLA_THREADS, 1) void mma_kernel(const pb_mla p, const wanted out, int blocks)
{
    extern __shared__ __align__(128) unsigned char smem[];
    mass_smem<G, DP> &sm = *reinterpret_cast<mass_smem<G, DP> *>(smem);
    const size_t token = blockIdx.x;
    const pb_mla_keys keys = pb_mla_mass_keys(&p, (int)(token / p.S), (int)(token % p.S), out.from, out.n);
    float *mass = out.mass + token * out.n;
    for (int block = 0; block < blocks; block++) {
        const mla_cta_work own = mla_heads_of<G>(p, token, block);
        __syncthreads();
        mla_load_rows<DP, 16 * G>(sm.q, (const bf16 *)p.q + own.head * p.D, own.n, p.D);
        if (threadIdx.x < 16 * G) {
            const float lse = (int)threadIdx.x < own.n ? p.lse[own.head + threadIdx.x] : -INFINITY;
            sm.lse2[threadIdx.x] = lse == -INFINITY ? INFINITY : lse * MLA_LOG2E;
        }
        if (keys.n > 0) mla_load_slots<DP>(sm.kv[0], sm.row[0], p, keys, own.b, 0);
        copy_commit();
        for (int w0 = 0, stage = 0; w0 < keys.n; w0 += MLA_KEYS, stage ^= 1) {
            if (w0 + MLA_KEYS < keys.n)
                mla_load_slots<DP>(sm.kv[stage ^ 1], sm.row[stage ^ 1], p, keys, own.b, w0 + MLA_KEYS);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            weigh_tile<G, DP>(sm, stage, p.scale * MLA_LOG2E);
            __syncthreads();
            const int j = w0 + (int)threadIdx.x;
            if (threadIdx.x < MLA_KEYS && j < keys.n) {
                float sum = block ? mass[j] : 0;
#pragma unroll
                for (int g = 0; g < G; g++) sum += sm.part[g][threadIdx.x];
                mass[j] = sum;
            }
        }
        copy_wait<0>();
    }
}

template <int G, int DP> pb_status launch(pb_ctx *ctx, const pb_mla &p, const wanted &out)
{
    return mla_launch(ctx, "mla_mass mma", mma_kernel<G, DP>, (size_t)p.B * p.S, sizeof(mass_smem<G, DP>), p, out,
                      (p.H + 16 * G - 1) / (16 * G));
}
static_assert(sizeof(mass_smem<1, 576>) <= PB_GPU_LEAST_SHARED, "the kernel with the smallest tile must fit every GPU");

/* Launches with 16, 32 or 64 heads at a time: no more than H needs, and than the GPU has shared memory for. */
template <int DP> pb_status by_heads(pb_ctx *ctx, const pb_mla &p, const wanted &out)
{
    const size_t most = pb_cuda_device_of(ctx)->shared;
    if (p.H <= 16 || most < sizeof(mass_smem<2, DP>)) return launch<1, DP>(ctx, p, out);
    if (p.H <= 32 || most < sizeof(mass_smem<4, DP>)) return launch<2, DP>(ctx, p, out);
    return launch<4, DP>(ctx, p, out);
}

bool mma_takes(const void *args)
{
    const pb_mla p = pb_mla_mass_problem(args);
    return p.dtype == PB_BF16 && p.D % 8 == 0 && p.D <= 576 && mla_aligned(p.q) && mla_aligned(p.kv);
}
wanted wanted_of(const void *args)
{
    const pb_mla_mass_fwd_args *a = (const pb_mla_mass_fwd_args *)args;
    return {a->mass, a->from, a->n};
}
pb_status mma(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_mla_mass_problem(args);
    const wanted out = wanted_of(args);
    return p.D <= 64 ? by_heads<64>(ctx, p, out) : p.D <= 512 ? by_heads<512>(ctx, p, out) : by_heads<576>(ctx, p, out);
}

/* ---- the kernel without tensor cores --------------------------------------------------------------------------- */

template <class T> __global__ __launch_bounds__(MLA_THREADS) void simt_kernel(const pb_mla p, const wanted out)
{
    const size_t token = blockIdx.x;
    const int lane = threadIdx.x % 32;
    const pb_mla_keys keys = pb_mla_mass_keys(&p, (int)(token / p.S), (int)(token % p.S), out.from, out.n);
    for (int j = threadIdx.x / 32; j < keys.n; j += MLA_THREADS / 32) {
        const int r = pb_mla_row(&p, &keys, j);
        const T *kv = (const T *)p.kv + (token / p.S * p.S_kv + max(r, 0)) * p.D;
        float mass = 0;
        for (int h = 0; r >= 0 && h < p.H; h += 4) {
            float s[4] = {};
            const int n = min(4, p.H - h);
            const T *q = (const T *)p.q + (token * p.H + h) * p.D;
            for (int d = lane; d < p.D; d += 32) {
                const float x = pb_to_f32(kv[d]);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (i < n) s[i] = fmaf(x, pb_to_f32(q[(size_t)i * p.D + d]), s[i]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float lse = i < n ? p.lse[token * p.H + h + i] : -INFINITY;
                s[i] = pb_warp_sum(s[i]);
                if (lse != -INFINITY) mass += expf(s[i] * p.scale - lse);
            }
        }
        if (lane == 0) out.mass[token * out.n + j] = mass;
    }
}
template <class T> pb_status simt_as(pb_ctx *ctx, const pb_mla &p, const wanted &out)
{
    simt_kernel<T><<<(unsigned)(p.B * p.S), MLA_THREADS, 0, pb_cuda_stream(ctx)>>>(p, out);
    return pb_cuda_launched(ctx, "mla_mass simt");
}
pb_status simt(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_mla_mass_problem(args);
    return PB_CUDA_BY_DTYPE(p.dtype, simt_as, ctx, p, wanted_of(args));
}
} // namespace

extern "C" {
extern const pb_impl pb_mla_mass_fwd_cuda[] = {
    {.name = "mma", .run = mma, .accepts = mma_takes}, {.name = "simt", .run = simt}, {0}};
}
