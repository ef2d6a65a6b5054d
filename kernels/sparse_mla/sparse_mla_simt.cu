/* sparse_mla_simt.cu - MLA without tensor cores: any shape with D up to 1024, f32 or bf16, f32 arithmetic; also delta
 * and dsink for all implementations.
 *
 * Kernels for the forward pass and dq: a CTA of four warps computes one head of one token, 128 slots at a time; a warp
 * computes a score, a thread has columns of the output. Kernel for dkv: a CTA of ROWS warps has ROWS rows of kv and
 * loops over all queries in order. It counts how often each of its rows is in each query's list, so it needs no atomics
 * on values and the result is deterministic. Limit: the rows are read from L2 once per head. */
#include "kernels/sparse_mla/mla_impls.cuh"

namespace
{
constexpr int THREADS = 128, SLOTS = 128, ROWS = 4, MOST = 1024;

/* The work of a CTA: head h of token (b,i). */
struct cta_work {
    int b, i, h;
    size_t head; /* its index in lse */
};
__device__ inline cta_work work_of_cta(const pb_mla &p)
{
    const size_t token = blockIdx.x / p.H;
    return {(int)(token / p.S), (int)(token % p.S), (int)(blockIdx.x % p.H), blockIdx.x};
}

/* Returns x . y over n columns in every lane of the warp. */
template <class T> __device__ inline float dot_row(const float *x, const T *y, int n)
{
    float sum = 0;
    for (int d = threadIdx.x % 32; d < n; d += 32) sum = fmaf(x[d], pb_to_f32(y[d]), sum);
    return pb_warp_sum(sum);
}

template <class T> __device__ inline void load_row(float *to, const void *from, size_t at, int n)
{
    for (int d = threadIdx.x; d < n; d += blockDim.x) to[d] = pb_to_f32(((const T *)from)[at + d]);
}

/* Computes to[d] = to[d] * keep + sum_k weight[k] kv[row[k]][d] over n slots k; masked slots are skipped. */
template <class T>
__device__ inline void add_weighted_slots(float *to, float keep, const float *weight, const int *row, int n,
                                          const T *kv, int D, int columns)
{
    for (int d = threadIdx.x; d < columns; d += THREADS) {
        float sum = to[d] * keep;
        for (int k = 0; k < n; k++)
            if (row[k] >= 0) sum = fmaf(weight[k], pb_to_f32(kv[(size_t)row[k] * D + d]), sum);
        to[d] = sum;
    }
}

template <class T> __global__ __launch_bounds__(THREADS, 1) void fwd_kernel(const pb_mla p)
{
    __shared__ float q[MOST], o[MOST], weight[SLOTS];
    __shared__ int row[SLOTS];
    const cta_work own = work_of_cta(p);
    const pb_mla_keys keys = pb_mla_keys_of(&p, own.b, own.i);
    const T *kv = (const T *)p.kv + (size_t)own.b * p.S_kv * p.D;
    float top = p.sink[own.h], sum = top == -INFINITY ? 0 : 1; /* the sink is the initial maximum */
    load_row<T>(q, p.q, own.head * p.D, p.D);
    for (int d = threadIdx.x; d < p.V; d += THREADS) o[d] = 0;
    for (int w0 = 0; w0 < keys.n; w0 += SLOTS) {
        const int n = min(SLOTS, keys.n - w0);
        __syncthreads();
        row[threadIdx.x] = threadIdx.x < n ? pb_mla_row(&p, &keys, w0 + threadIdx.x) : -1;
        __syncthreads();
        for (int k = threadIdx.x / 32; k < SLOTS; k += THREADS / 32) {
            const float s = row[k] >= 0 ? dot_row(q, kv + (size_t)row[k] * p.D, p.D) * p.scale : -INFINITY;
            if (threadIdx.x % 32 == 0) weight[k] = s;
        }
        __syncthreads();
        float most = top, total = 0;
        for (int k = 0; k < n; k++) most = fmaxf(most, weight[k]);
        const float base = most == -INFINITY ? 0 : most, keep = expf(top - base);
        __syncthreads();
        weight[threadIdx.x] = expf(weight[threadIdx.x] - base);
        __syncthreads();
        for (int k = 0; k < n; k++) total += weight[k];
        top = most, sum = sum * keep + total;
        add_weighted_slots(o, keep, weight, row, n, kv, p.D, p.V);
    }
    for (int d = threadIdx.x; d < p.V; d += THREADS)
        ((T *)p.o)[own.head * p.V + d] = pb_from_f32<T>(sum == 0 ? 0 : o[d] / sum);
    if (threadIdx.x == 0) p.lse[own.head] = sum == 0 ? -INFINITY : top + logf(sum);
}

template <class T> __global__ __launch_bounds__(THREADS, 1) void dq_kernel(const pb_mla p, const float *delta)
{
    __shared__ float q[MOST], dO[MOST], dq[MOST], weight[SLOTS];
    __shared__ int row[SLOTS];
    const cta_work own = work_of_cta(p);
    const pb_mla_keys keys = pb_mla_keys_of(&p, own.b, own.i);
    const T *kv = (const T *)p.kv + (size_t)own.b * p.S_kv * p.D;
    const float lse = p.lse[own.head], del = delta[own.head];
    load_row<T>(q, p.q, own.head * p.D, p.D);
    load_row<T>(dO, p.dO, own.head * p.V, p.V);
    for (int d = threadIdx.x; d < p.D; d += THREADS) dq[d] = 0;
    for (int w0 = 0; w0 < keys.n; w0 += SLOTS) {
        const int n = min(SLOTS, keys.n - w0);
        __syncthreads();
        row[threadIdx.x] = threadIdx.x < n ? pb_mla_row(&p, &keys, w0 + threadIdx.x) : -1;
        __syncthreads();
        for (int k = threadIdx.x / 32; k < n; k += THREADS / 32) {
            if (row[k] < 0) continue;
            const T *x = kv + (size_t)row[k] * p.D;
            const float s = dot_row(q, x, p.D) * p.scale, dp = dot_row(dO, x, p.V);
            if (threadIdx.x % 32 == 0) weight[k] = p.scale * expf(s - lse) * (dp - del);
        }
        __syncthreads();
        add_weighted_slots(dq, 1, weight, row, n, kv, p.D, p.D);
    }
    for (int d = threadIdx.x; d < p.D; d += THREADS) ((T *)p.dq)[own.head * p.D + d] = pb_from_f32<T>(dq[d]);
}

/* Sets count[k] to how often row r0 + k, k < ROWS, is in the key list of query i of batch row b. Returns, in every
 * thread, true if any of these rows is in the list. */
__device__ inline bool count_rows(int *count, const pb_mla &p, int b, int i, int r0)
{
    const pb_mla_keys keys = pb_mla_keys_of(&p, b, i);
    bool any = false;
    __syncthreads();
    if (threadIdx.x < ROWS) {
        const int at = r0 + threadIdx.x - keys.first;
        count[threadIdx.x] = !keys.list && at >= 0 && at < keys.n ? 1 : 0;
        any = count[threadIdx.x] != 0;
    }
    __syncthreads();
    for (int w = threadIdx.x; keys.list && w < keys.n; w += blockDim.x) {
        const int row = pb_mla_row(&p, &keys, w);
        if (row < r0 || row >= r0 + ROWS) continue; /* true of -1 too */
        atomicAdd(&count[row - r0], 1);
        any = true;
    }
    return __syncthreads_or(any);
}

template <class T> __global__ __launch_bounds__(32 * ROWS, 1) void dkv_kernel(const pb_mla p, const float *delta)
{
    __shared__ float q[MOST], dO[MOST], weight[ROWS], ds[ROWS];
    __shared__ double dkv[ROWS][MOST]; /* sums over all heads of all queries */
    __shared__ int count[ROWS];
    const int tiles = (p.S_kv + ROWS - 1) / ROWS, b = blockIdx.x / tiles, r0 = (int)(blockIdx.x % tiles) * ROWS;
    const int mine = threadIdx.x / 32;
    const T *kv = (const T *)p.kv + ((size_t)b * p.S_kv + r0) * p.D;
    for (int e = threadIdx.x; e < ROWS * p.D; e += 32 * ROWS) dkv[e / p.D][e % p.D] = 0;
    for (int i = 0; i < p.S; i++) {
        if (!count_rows(count, p, b, i, r0)) continue;
        for (int h = 0; h < p.H; h++) {
            const size_t head = ((size_t)b * p.S + i) * p.H + h;
            __syncthreads();
            load_row<T>(q, p.q, head * p.D, p.D);
            load_row<T>(dO, p.dO, head * p.V, p.V);
            __syncthreads();
            if (count[mine]) { /* the row is in the list, so it exists */
                const T *x = kv + (size_t)mine * p.D;
                const float s = dot_row(q, x, p.D) * p.scale, dp = dot_row(dO, x, p.V);
                const float all = (float)count[mine] * expf(s - p.lse[head]);
                if (threadIdx.x % 32 == 0) weight[mine] = all, ds[mine] = p.scale * all * (dp - delta[head]);
            }
            __syncthreads();
            for (int d = threadIdx.x; d < p.D; d += 32 * ROWS)
                for (int r = 0; r < ROWS; r++)
                    if (count[r]) dkv[r][d] += (double)(ds[r] * q[d] + (d < p.V ? weight[r] * dO[d] : 0));
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < ROWS * p.D; e += 32 * ROWS)
        if (r0 + e / p.D < p.S_kv) {
            const size_t to = ((size_t)b * p.S_kv + r0) * p.D + e;
            const float sum = (float)dkv[e / p.D][e % p.D];
            if (p.wide) ((float *)p.dkv)[to] = sum;
            else ((T *)p.dkv)[to] = pb_from_f32<T>(sum);
        }
}

/* ---- delta and dsink, for the backward pass of every implementation ------------------------------------------- */

/* One warp per head computes delta and the head's term of dsink. Sums are double, because most of the sum over all
 * tokens cancels. With bf16, N = 8 products, each exact in f32, are first added in f32. N: elements per load. */
template <class T, int N>
__global__ __launch_bounds__(256, 1) void delta_kernel(const pb_mla p, float *delta, double *share)
{
    const size_t head = (size_t)blockIdx.x * 8 + threadIdx.x / 32, heads = (size_t)p.B * p.S * p.H;
    if (head >= heads) return;
    const T *x = (const T *)p.dO + head * p.V, *y = (const T *)p.o + head * p.V;
    double sum = 0;
#pragma unroll 2
    for (int d = threadIdx.x % 32 * N; d < p.V; d += 32 * N) {
        float a[N], b[N], part = 0;
        pb_load_vec<T, N>(x + d, a);
        pb_load_vec<T, N>(y + d, b);
#pragma unroll
        for (int e = 0; e < N; e++) part = fmaf(a[e], b[e], part);
        sum += N > 1 ? (double)part : (double)a[0] * (double)b[0];
    }
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32) return;
    const float sink = p.sink[head % p.H];
    delta[head] = (float)sum;
    share[head] = sink == -INFINITY ? 0 : -sum * exp((double)sink - (double)p.lse[head]);
}

/* One CTA per head sums the terms of dsink: thread t adds tokens t, t + 256, ...; then the threads are added in a fixed
 * order. */
__global__ __launch_bounds__(256, 1) void dsink_kernel(const pb_mla p, const double *share)
{
    __shared__ double part[256];
    double sum = 0;
    for (size_t t = threadIdx.x; t < (size_t)p.B * p.S; t += 256) sum += share[t * p.H + blockIdx.x];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int n = 128; n > 0; n /= 2) {
        if (threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
        __syncthreads();
    }
    if (threadIdx.x == 0) p.dsink[blockIdx.x] = (float)part[0];
}

template <class T> pb_status dsink_run(pb_ctx *ctx, const pb_mla &p, float *delta, double *share)
{
    const unsigned blocks = (unsigned)((pb_mla_heads(&p) + 7) / 8);
    const bool wide = sizeof(T) == 2 && pb_vectors_fit<T>(p.dO, p.V, p.V) && pb_vectors_fit<T>(p.o, p.V, p.V);
    if (wide) delta_kernel<T, 8><<<blocks, 256, 0, pb_cuda_stream(ctx)>>>(p, delta, share);
    else delta_kernel<T, 1><<<blocks, 256, 0, pb_cuda_stream(ctx)>>>(p, delta, share);
    PB_TRY(pb_cuda_launched(ctx, "mla_bwd delta"));
    dsink_kernel<<<(unsigned)p.H, 256, 0, pb_cuda_stream(ctx)>>>(p, share);
    return pb_cuda_launched(ctx, "mla_bwd dsink");
}

template <class T> pb_status fwd_run(pb_ctx *ctx, const pb_mla &p)
{
    fwd_kernel<T><<<(unsigned)pb_mla_heads(&p), THREADS, 0, pb_cuda_stream(ctx)>>>(p);
    return pb_cuda_launched(ctx, "mla_fwd simt");
}

template <class T> pb_status bwd_run(pb_ctx *ctx, const pb_mla &p)
{
    float *delta = (float *)ctx->scratch;
    PB_TRY(pb_mla_dsink_cuda(ctx, &p, delta));
    dq_kernel<T><<<(unsigned)pb_mla_heads(&p), THREADS, 0, pb_cuda_stream(ctx)>>>(p, delta);
    PB_TRY(pb_cuda_launched(ctx, "mla_bwd simt, dq"));
    const unsigned tiles = (unsigned)((p.S_kv + ROWS - 1) / ROWS * p.B);
    dkv_kernel<T><<<tiles, 32 * ROWS, 0, pb_cuda_stream(ctx)>>>(p, delta);
    return pb_cuda_launched(ctx, "mla_bwd simt, dkv");
}
} // namespace

pb_status pb_mla_dsink_cuda(pb_ctx *ctx, const pb_mla *p, float *delta)
{
    double *share = (double *)(delta + pb_mla_deltas(p));
    return PB_CUDA_BY_DTYPE(p->dtype, dsink_run, ctx, *p, delta, share);
}

bool pb_mla_simt_takes(const pb_mla *p) { return p->D <= MOST; }
size_t pb_mla_bwd_simt_workspace(const pb_mla *p) { return pb_mla_dsink_room(p); }

pb_status pb_mla_fwd_simt(pb_ctx *ctx, const pb_mla *p) { return PB_CUDA_BY_DTYPE(p->dtype, fwd_run, ctx, *p); }
pb_status pb_mla_bwd_simt(pb_ctx *ctx, const pb_mla *p) { return PB_CUDA_BY_DTYPE(p->dtype, bwd_run, ctx, *p); }
