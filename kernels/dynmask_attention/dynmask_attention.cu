/* dynmask_attention.cu - dynamic-mask attention on the GPU without tensor cores, in f32 arithmetic throughout.
 *
 * A warp computes one query of one head, or the gradients of one key; its lanes have the elements lane, lane + 32, ...
 * of a head, so D is at most 256. Only pairs of a query and a key that it attends to are touched: what a query does not
 * attend to can be NaN. There are no atomics: dk, dv and dbias of a key are sums of one warp over the queries, in
 * order. Limit: the sum across the lanes for each pair. It is the implementation that faster ones are compared with. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/dynmask_attention/dynmask_attention.h"
#include "kernels/dynmask_attention/dynmask_attention_impls.cuh"

namespace
{
constexpr int THREADS = 128, WARPS = THREADS / 32, MOST = 256;
constexpr unsigned ALL = 0xffffffffu;

template <class T, int R> __device__ inline void load_head(float (&x)[R], const void *p, size_t at, int D)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int d = threadIdx.x % 32 + 32 * r;
        x[r] = d < D ? pb_to_f32(((const T *)p)[at + d]) : 0;
    }
}

template <class T, int R> __device__ inline void store_head(void *p, size_t at, const float (&x)[R], float scale, int D)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int d = threadIdx.x % 32 + 32 * r;
        if (d < D) ((T *)p)[at + d] = pb_from_f32<T>(x[r] * scale);
    }
}

template <int R> __device__ inline float dot(const float (&x)[R], const float (&y)[R])
{
    float sum = 0;
#pragma unroll
    for (int r = 0; r < R; r++) sum = fmaf(x[r], y[r], sum);
    return pb_warp_sum(sum);
}

template <int R> __device__ inline void add(float (&sum)[R], float weight, const float (&x)[R])
{
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] = fmaf(weight, x[r], sum[r]);
}

/* The query of this warp: warps are numbered by batch row, head and query. */
struct query {
    int b, h, i, kv, position;
    size_t head, row; /* b K + kv; the query's index in lse */
};
template <class A> __device__ inline query query_of(const A &a, size_t n)
{
    query q;
    q.i = (int)(n % a.S), q.h = (int)(n / a.S % a.H), q.b = (int)(n / a.S / a.H);
    q.kv = q.h / (a.H / a.K), q.position = q.i + a.S_kv - a.S;
    q.head = (size_t)q.b * a.K + q.kv, q.row = n;
    return q;
}

template <class A> __device__ inline size_t token_at(const A &a, const query &q, size_t ld)
{
    return ((size_t)q.b * a.S + q.i) * ld + (size_t)q.h * a.D;
}
template <class A> __device__ inline size_t key_at(const A &a, const query &q, int j, size_t ld)
{
    return ((size_t)q.b * a.S_kv + j) * ld + (size_t)q.kv * a.D;
}

/* Calls visit(key, bias) for each key that the query attends to, in the order of the list. The lanes look at 32
 * slots. */
template <class A, class F> __device__ inline void for_keys(const A &a, const query &q, F visit)
{
    const int32_t *list = a.list + q.head * a.L, *until = a.until + q.head * a.L;
    const float *bias = a.bias + q.head * a.S_kv;
    for (int l0 = 0; l0 < a.L; l0 += 32) {
        const int l = l0 + threadIdx.x % 32, j = l < a.L ? list[l] : -1;
        const bool in = j >= 0 && j < a.S_kv && j <= q.position && q.position < until[l];
        const float mine = in ? bias[j] : -INFINITY;
        for (unsigned left = __ballot_sync(ALL, in && mine != -INFINITY); left; left &= left - 1) {
            const int from = __ffs((int)left) - 1;
            visit(__shfl_sync(ALL, j, from), __shfl_sync(ALL, mine, from));
        }
    }
}

template <class T, int R> __global__ __launch_bounds__(THREADS) void fwd_kernel(const pb_dynmask_attention_fwd_args a)
{
    const size_t n = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (n >= (size_t)a.B * a.H * a.S) return;
    const query q = query_of(a, n);
    float x[R], y[R], o[R] = {}, top = -INFINITY, sum = 0;
    load_head<T>(x, a.q, token_at(a, q, a.ldq), a.D);
    for_keys(a, q, [&](int j, float bias) {
        load_head<T>(y, a.k, key_at(a, q, j, a.ldk), a.D);
        const float s = a.scale * dot(x, y) + bias, above = s > top || s != s ? s : top;
        const float shrink = expf(top - above), p = expf(s - above);
        load_head<T>(y, a.v, key_at(a, q, j, a.ldv), a.D);
#pragma unroll
        for (int r = 0; r < R; r++) o[r] = fmaf(p, y[r], o[r] * shrink);
        sum = sum * shrink + p, top = above;
    });
    store_head<T>(a.o, token_at(a, q, a.ldo), o, sum == 0 ? 0 : 1 / sum, a.D);
    if (threadIdx.x % 32 == 0) a.lse[q.row] = sum == 0 ? -INFINITY : top + logf(sum);
}

/* dq, and delta [B,H,S] for the kernel of the keys. */
template <class T, int R>
__global__ __launch_bounds__(THREADS) void dq_kernel(const pb_dynmask_attention_bwd_args a, float *delta)
{
    const size_t n = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (n >= (size_t)a.B * a.H * a.S) return;
    const query q = query_of(a, n);
    const float lse = a.lse[q.row];
    float x[R], g[R], y[R], dq[R] = {};
    load_head<T>(x, a.q, token_at(a, q, a.ldq), a.D);
    load_head<T>(g, a.dO, token_at(a, q, a.lddo), a.D);
    load_head<T>(y, a.o, token_at(a, q, a.ldo), a.D);
    const float d = dot(g, y);
    for_keys(a, q, [&](int j, float bias) {
        load_head<T>(y, a.v, key_at(a, q, j, a.ldv), a.D);
        const float dp = dot(g, y);
        load_head<T>(y, a.k, key_at(a, q, j, a.ldk), a.D);
        add(dq, expf(a.scale * dot(x, y) + bias - lse) * (dp - d), y);
    });
    store_head<T>(a.dq, token_at(a, q, a.lddq), dq, a.scale, a.D);
    if (threadIdx.x % 32 == 0) delta[q.row] = d;
}

/* Writes 0 to the gradients of all keys, those that no list names included: one warp for each key and kv head. */
template <class T> __global__ __launch_bounds__(THREADS) void clear_kernel(const pb_dynmask_attention_bwd_args a)
{
    const size_t n = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (n >= (size_t)a.B * a.K * a.S_kv) return;
    const size_t head = n / a.S_kv, token = head / a.K * a.S_kv + n % a.S_kv, at = head % a.K * a.D;
    for (int d = threadIdx.x % 32; d < a.D; d += 32) {
        if (a.wide) {
            ((float *)a.dk)[token * a.lddk + at + d] = 0;
            ((float *)a.dv)[token * a.lddv + at + d] = 0;
            continue;
        }
        ((T *)a.dk)[token * a.lddk + at + d] = pb_from_f32<T>(0);
        ((T *)a.dv)[token * a.lddv + at + d] = pb_from_f32<T>(0);
    }
    if (threadIdx.x % 32 == 0) a.dbias[n] = 0;
}

/* dk, dv and dbias of the key of one slot: sums over the query heads of the group and their queries. */
template <class T, int R>
__global__ __launch_bounds__(THREADS) void dkv_kernel(const pb_dynmask_attention_bwd_args a, const float *delta)
{
    const size_t n = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (n >= (size_t)a.B * a.K * a.L) return;
    const int group = a.H / a.K, j = a.list[n], offset = a.S_kv - a.S;
    query q = {};
    q.head = n / a.L, q.b = (int)(q.head / a.K), q.kv = (int)(q.head % a.K);
    if (j < 0 || j >= a.S_kv) return;
    const int first = max(j - offset, 0), end = (int)min((int64_t)a.until[n] - offset, (int64_t)a.S);
    float k[R], v[R], x[R], g[R], dk[R] = {}, dv[R] = {}, dbias = 0;
    if (first >= end || a.bias[q.head * a.S_kv + j] == -INFINITY) return; /* no query attends to it: keeps the zeros */
    const float bias = a.bias[q.head * a.S_kv + j];
    load_head<T>(k, a.k, key_at(a, q, j, a.ldk), a.D);
    load_head<T>(v, a.v, key_at(a, q, j, a.ldv), a.D);
    q.i = first;
    for (q.h = q.kv * group; q.h < (q.kv + 1) * group; q.h++) {
        const T *row = (const T *)a.q + token_at(a, q, a.ldq), *go = (const T *)a.dO + token_at(a, q, a.lddo);
        const size_t at = ((size_t)q.b * a.H + q.h) * a.S; /* index of the head's first query in lse and delta */
        for (int i = first; i < end; i++, row += a.ldq, go += a.lddo) {
            load_head<T>(x, row, 0, a.D);
            load_head<T>(g, go, 0, a.D);
            const float p = expf(a.scale * dot(x, k) + bias - a.lse[at + i]), ds = p * (dot(g, v) - delta[at + i]);
            add(dk, ds, x), add(dv, p, g);
            dbias += ds;
        }
    }
    if (a.wide) {
        store_head<float>(a.dk, key_at(a, q, j, a.lddk), dk, a.scale, a.D);
        store_head<float>(a.dv, key_at(a, q, j, a.lddv), dv, 1, a.D);
    } else {
        store_head<T>(a.dk, key_at(a, q, j, a.lddk), dk, a.scale, a.D);
        store_head<T>(a.dv, key_at(a, q, j, a.lddv), dv, 1, a.D);
    }
    if (threadIdx.x % 32 == 0) a.dbias[q.head * a.S_kv + j] = dbias;
}

unsigned ctas(size_t warps) { return (unsigned)((warps + WARPS - 1) / WARPS); }

template <class T, int R> pb_status fwd_launch(pb_ctx *ctx, const pb_dynmask_attention_fwd_args &a)
{
    fwd_kernel<T, R><<<ctas((size_t)a.B * a.H * a.S), THREADS, 0, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "dynmask_attention_fwd");
}

template <class T, int R> pb_status bwd_launch(pb_ctx *ctx, const pb_dynmask_attention_bwd_args &a)
{
    float *delta = (float *)ctx->scratch;
    dq_kernel<T, R><<<ctas((size_t)a.B * a.H * a.S), THREADS, 0, pb_cuda_stream(ctx)>>>(a, delta);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_attention_dq"));
    clear_kernel<T><<<ctas((size_t)a.B * a.K * a.S_kv), THREADS, 0, pb_cuda_stream(ctx)>>>(a);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_attention_clear"));
    dkv_kernel<T, R><<<ctas((size_t)a.B * a.K * a.L), THREADS, 0, pb_cuda_stream(ctx)>>>(a, delta);
    return pb_cuda_launched(ctx, "dynmask_attention_dkv");
}

/* Lanes have 2, 4 or 8 elements of a head. */
template <class T> pb_status fwd_run(pb_ctx *ctx, const pb_dynmask_attention_fwd_args &a)
{
    return a.D <= 64 ? fwd_launch<T, 2>(ctx, a) : a.D <= 128 ? fwd_launch<T, 4>(ctx, a) : fwd_launch<T, 8>(ctx, a);
}
template <class T> pb_status bwd_run(pb_ctx *ctx, const pb_dynmask_attention_bwd_args &a)
{
    return a.D <= 64 ? bwd_launch<T, 2>(ctx, a) : a.D <= 128 ? bwd_launch<T, 4>(ctx, a) : bwd_launch<T, 8>(ctx, a);
}

pb_status fwd(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_fwd_args &a = *(const pb_dynmask_attention_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a.dtype, fwd_run, ctx, a);
}
pb_status bwd(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_bwd_args &a = *(const pb_dynmask_attention_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a.dtype, bwd_run, ctx, a);
}

bool fwd_accepts(const void *args) { return ((const pb_dynmask_attention_fwd_args *)args)->D <= MOST; }
bool bwd_accepts(const void *args) { return ((const pb_dynmask_attention_bwd_args *)args)->D <= MOST; }
size_t bwd_workspace(const void *args)
{
    const pb_dynmask_attention_bwd_args *a = (const pb_dynmask_attention_bwd_args *)args;
    return (size_t)a->B * a->H * a->S * sizeof(float);
}

/* ---- which arguments the tensor-core kernels take ---------------------------------------------------------------- */

bool aligned(const void *p, size_t ld) { return (uintptr_t)p % 16 == 0 && ld % 8 == 0; }
template <class A> bool wgmma_takes(const A &a)
{
    return a.dtype == PB_BF16 && (a.D == 64 || a.D == 128) && a.scale > 0 && aligned(a.q, a.ldq) &&
           aligned(a.k, a.ldk) && aligned(a.v, a.ldv) && aligned(a.o, a.ldo);
}
bool wgmma_takes_fwd(const void *args) { return wgmma_takes(*(const pb_dynmask_attention_fwd_args *)args); }
bool wgmma_takes_bwd(const void *args)
{
    const pb_dynmask_attention_bwd_args &a = *(const pb_dynmask_attention_bwd_args *)args;
    return !a.wide && wgmma_takes(a) && aligned(a.dO, a.lddo) && aligned(a.dq, a.lddq) && aligned(a.dk, a.lddk) &&
           aligned(a.dv, a.lddv);
}
} // namespace

extern "C" {
extern const pb_impl pb_dynmask_attention_fwd_cuda[] = {
    {.name = "wgmma",
     .run = pb_dynmask_attention_fwd_wgmma,
     .accepts = wgmma_takes_fwd,
     .workspace = pb_dynmask_attention_fwd_wgmma_workspace,
     .available = pb_cuda_has_sm90},
    {.name = "simt", .run = fwd, .accepts = fwd_accepts},
    {0},
};
extern const pb_impl pb_dynmask_attention_bwd_cuda[] = {
    {.name = "wgmma",
     .run = pb_dynmask_attention_bwd_wgmma,
     .accepts = wgmma_takes_bwd,
     .workspace = pb_dynmask_attention_bwd_wgmma_workspace,
     .available = pb_cuda_has_sm90},
    {.name = "simt", .run = bwd, .accepts = bwd_accepts, .workspace = bwd_workspace},
    {0},
};
}
