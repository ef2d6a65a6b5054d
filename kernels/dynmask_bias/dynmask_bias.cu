/* dynmask_bias.cu - the bias of dynamic-mask attention on the GPU, in f32 arithmetic. Every sum has one fixed order,
 * and no kernel uses atomics. Limit: reading the values once for each kv head, from L2. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/dynmask_bias/dynmask_bias.h"
#include "kernels/dynmask_bias/plan.h"

namespace
{
constexpr int THREADS = 256, WARPS = THREADS / 32;

__device__ inline float softplus(float u) { return u > 20 ? u : log1pf(expf(u)); }
__device__ inline float slope(float u) { return u > 20 ? 1 : 1 / (1 + expf(-u)); }

/* One warp for each kv head of a token. */
template <class T> __global__ __launch_bounds__(THREADS) void fwd_kernel(const pb_dynmask_bias_fwd_args p)
{
    const size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / 32, n = (size_t)p.K * p.D;
    if (i >= (size_t)p.B * p.S * p.K) return;
    const size_t k = i % p.K, t = i / p.K, at = (t / p.S * p.K + k) * p.S + t % p.S;
    const T *v = (const T *)p.v + t * p.ldv, *w = (const T *)p.w + k * n;
    float u = 0;
    for (size_t e = threadIdx.x % 32; e < n; e += 32) u = fmaf(pb_to_f32(v[e]), pb_to_f32(w[e]), u);
    u = pb_warp_sum(u) + (p.dt ? p.dt[k] : 0);
    if (threadIdx.x % 32) return;
    const float x = p.a[k] * softplus(u);
    p.u[at] = u;
    p.bias[at] = p.exponential ? expf(x) : x;
}

/* Returns du of kv head k of token t, and sets *da to its term of da. */
__device__ inline float du_of(const pb_dynmask_bias_bwd_args &p, size_t t, size_t k, float *da)
{
    const size_t at = (t / p.S * p.K + k) * p.S + t % p.S;
    const float u = p.u[at], z = softplus(u), g = p.dbias[at] * (p.exponential ? expf(p.a[k] * z) : 1);
    *da = g * z;
    return g * p.a[k] * slope(u);
}

/* One CTA for each token: stores du [T,K], and adds its terms to dv. */
template <class T> __global__ __launch_bounds__(THREADS) void dv_kernel(const pb_dynmask_bias_bwd_args p, float *du)
{
    const size_t t = blockIdx.x, n = (size_t)p.K * p.D;
    float da;
    du += t * p.K;
    for (int k = threadIdx.x; k < p.K; k += THREADS) du[k] = du_of(p, t, k, &da);
    __syncthreads();
    for (size_t e = threadIdx.x; e < n; e += THREADS) {
        T *to = (T *)p.dv + t * p.lddv + e;
        float sum = pb_to_f32(*to);
        for (int k = 0; k < p.K; k++) sum = fmaf(du[k], pb_to_f32(((const T *)p.w)[k * n + e]), sum);
        *to = pb_from_f32<T>(sum);
    }
}

/* Sums of dw over the tokens of a part: one thread for each element of a row of w; blockIdx.y: kv head, z: part. */
template <class T>
__global__ __launch_bounds__(THREADS) void dw_kernel(const pb_dynmask_bias_bwd_args p, const float *du, float *sums)
{
    const size_t e = (size_t)blockIdx.x * THREADS + threadIdx.x, n = (size_t)p.K * p.D, k = blockIdx.y;
    const size_t tokens = (size_t)p.B * p.S;
    const int parts = gridDim.z, part = blockIdx.z;
    float sum = 0;
    if (e >= n) return;
    for (size_t t = tokens * part / parts; t < tokens * (part + 1) / parts; t++)
        sum = fmaf(du[t * p.K + k], pb_to_f32(((const T *)p.v)[t * p.ldv + e]), sum);
    sums[(part * p.K + k) * n + e] = sum;
}

__global__ __launch_bounds__(THREADS) void finish_kernel(const pb_dynmask_bias_bwd_args p, const float *sums, int parts)
{
    const size_t e = (size_t)blockIdx.x * THREADS + threadIdx.x, n = (size_t)p.K * p.K * p.D;
    if (e >= n) return;
    float sum = p.accumulate ? p.dw[e] : 0;
    for (int i = 0; i < parts; i++) sum += sums[i * n + e];
    p.dw[e] = sum;
}

/* ddt and da: one CTA for each kv head. */
__global__ __launch_bounds__(THREADS) void head_kernel(const pb_dynmask_bias_bwd_args p)
{
    __shared__ float room[WARPS];
    const size_t k = blockIdx.x, tokens = (size_t)p.B * p.S;
    float da = 0, ddt = 0, term;
    for (size_t t = threadIdx.x; t < tokens; t += THREADS) ddt += du_of(p, t, k, &term), da += term;
    da = pb_block_sum<THREADS>(da, room);
    ddt = pb_block_sum<THREADS>(ddt, room);
    if (threadIdx.x) return;
    p.da[k] = (p.accumulate ? p.da[k] : 0) + da;
    if (p.ddt) p.ddt[k] = (p.accumulate ? p.ddt[k] : 0) + ddt;
}

template <class T> pb_status fwd_run(pb_ctx *ctx, const pb_dynmask_bias_fwd_args &p)
{
    const size_t warps = (size_t)p.B * p.S * p.K;
    fwd_kernel<T><<<(unsigned)((warps + WARPS - 1) / WARPS), THREADS, 0, pb_cuda_stream(ctx)>>>(p);
    return pb_cuda_launched(ctx, "dynmask_bias_fwd");
}
pb_status fwd(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_bias_fwd_args &p = *(const pb_dynmask_bias_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(p.dtype, fwd_run, ctx, p);
}

template <class T> pb_status bwd_run(pb_ctx *ctx, const pb_dynmask_bias_bwd_args &p)
{
    const size_t tokens = (size_t)p.B * p.S, n = (size_t)p.K * p.D;
    const int parts = pb_dw_parts(tokens);
    float *sums = (float *)ctx->scratch, *du = sums + parts * p.K * n;
    const dim3 grid((unsigned)((n + THREADS - 1) / THREADS), p.K, parts);
    dv_kernel<T><<<(unsigned)tokens, THREADS, 0, pb_cuda_stream(ctx)>>>(p, du);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_bias_dv"));
    if (!p.dw) return PB_OK;
    dw_kernel<T><<<grid, THREADS, 0, pb_cuda_stream(ctx)>>>(p, du, sums);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_bias_dw"));
    finish_kernel<<<(unsigned)((p.K * n + THREADS - 1) / THREADS), THREADS, 0, pb_cuda_stream(ctx)>>>(p, sums, parts);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_bias_finish"));
    head_kernel<<<p.K, THREADS, 0, pb_cuda_stream(ctx)>>>(p);
    return pb_cuda_launched(ctx, "dynmask_bias_heads");
}
pb_status bwd(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_bias_bwd_args &p = *(const pb_dynmask_bias_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(p.dtype, bwd_run, ctx, p);
}

size_t bwd_workspace(const void *args)
{
    const pb_dynmask_bias_bwd_args *p = (const pb_dynmask_bias_bwd_args *)args;
    return pb_dynmask_bias_sums((size_t)p->B * p->S, p->K, p->D) * sizeof(float);
}
} // namespace

extern "C" {
extern const pb_impl pb_dynmask_bias_fwd_cuda[] = {{.name = "simt", .run = fwd}, {0}};
extern const pb_impl pb_dynmask_bias_bwd_cuda[] = {{.name = "simt", .run = bwd, .workspace = bwd_workspace}, {0}};
}
