/* xent.cu - masked cross-entropy on a GPU: one CTA or one cluster of CTAs per row, then one CTA for the loss. Two
 * kernel launches per pass.
 *
 * Both implementations compute maximum and sum of exponentials in one pass (online softmax): each thread rescales its
 * sum when its maximum grows. The threads' sums are added in a fixed order, in double. For a row of V logits of size e:
 *     resident  backward. The row is divided among the 1, 2, 4 or 8 CTAs of a cluster, which keep their parts in
 *               shared memory between the two passes. Memory traffic: 2Ve bytes. Needs sm_90 and Ve <= 8 * SLICE. A
 *               part has at most SLICE bytes, so that two CTAs share an SM: one reads while the other writes.
 *     rows      one CTA per row. Forward: Ve bytes. Backward: the row is read a second time; the read hits L2 if L2 can
 *               hold the rows of all resident CTAs: 2Ve to 3Ve bytes.
 * In bf16, the exponential of a logit is the fast one (relative error 2^-22); in f32 it is expf. */
#include <float.h>
#include <math.h>

#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/xent/xent.h"

enum { THREADS = 512, LOADS = 4, SLICE = 96 * 1024, CLUSTER = 8 };

template <class T> struct xent {
    const T *logits;
    const int32_t *target;
    const float *mask, *inv_count, *loss_scale; /* loss_scale NULL: 1 */
    T *dlogits;                                 /* NULL: forward only */
    float *nll;
    int V;
};

/* Maximum and sum of exp(x - max) over some logits. The empty sum is {-FLT_MAX, 0} and not {-Inf, 0}, so that a logit
 * of -Inf adds exp(-Inf) = 0. NaN propagates to sum. */
struct row_sum {
    float max;
    double sum;
};

__device__ static inline float exp_of(float x, float) { return expf(x); }
__device__ static inline float exp_of(float x, __nv_bfloat16) { return pb_exp2_fast(x * 1.4426950408889634f); }

/* Adds N logits to a thread's maximum and sum. */
template <class T, int N> __device__ static inline void add_logits(const float (&x)[N], float &max, float &sum)
{
    float m = x[0], e[N];
#pragma unroll
    for (int i = 1; i < N; i++) m = fmaxf(m, x[i]);
    if (m > max) {
        sum *= exp_of(max - m, T());
        max = m;
    }
#pragma unroll
    for (int i = 0; i < N; i++) e[i] = exp_of(x[i] - max, T());
#pragma unroll
    for (int d = 1; d < N; d *= 2)
#pragma unroll
        for (int i = 0; i + d < N; i += 2 * d) e[i] += e[i + d];
    sum += e[0];
}

__device__ static inline double warp_sum(double x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Merges the sums of 32 lanes; every lane gets the result. */
__device__ static inline row_sum warp_merge(row_sum s)
{
    const float max = pb_warp_max(s.max);
    return {max, warp_sum(s.sum * (double)expf(s.max - max))};
}

/* Merges the sums of a CTA's threads; every thread gets the result. room: [THREADS/32] of shared memory; it may be
 * overwritten only after another barrier. */
__device__ static inline row_sum block_merge(float max, float sum, row_sum *room)
{
    const row_sum w = warp_merge({max, (double)sum});
    const int lane = threadIdx.x % 32;
    if (lane == 0) room[threadIdx.x / 32] = w;
    __syncthreads();
    const row_sum none = {-FLT_MAX, 0};
    return warp_merge(lane < THREADS / 32 ? room[lane] : none);
}

/* The inputs of a row other than its logits. If `trivial`, its nll and all elements of its gradient are `value` (0 for
 * a masked token, NaN for an invalid target). k: factor of the gradient. */
struct row_case {
    bool trivial;
    float value, k;
    int target;
};
template <class T> __device__ static inline row_case row_case_of(const xent<T> &a, size_t row)
{
    const float mask = a.mask[row];
    if (mask == 0) return {true, 0, 0, 0};
    const int target = a.target[row];
    if (target < 0 || target >= a.V) return {true, NAN, 0, 0};
    return {false, 0, mask * a.inv_count[0] * (a.loss_scale ? a.loss_scale[0] : 1), target};
}

__device__ static inline float nll_of(row_sum s, float target) { return (float)((double)s.max - target + log(s.sum)); }

/* The gradient of a row is scale * exp(x - max), except at the target, where it is `at_target`. */
struct row_gradient {
    float max, scale, at_target;
    size_t target;
};
__device__ static inline row_gradient row_gradient_of(row_sum s, const row_case &r, float target)
{
    const float rest = (float)(r.k * (expf(target - s.max) / s.sum - 1));
    return {s.max, (float)(r.k / s.sum), rest, (size_t)r.target};
}
/* Replaces N logits in v by their gradients; `first` is the index of v[0] in the row. */
template <class T, int N> __device__ static inline void gradient(float (&v)[N], size_t first, const row_gradient &g)
{
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = exp_of(v[i] - g.max, T()) * g.scale;
    if (g.target - first < N) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (g.target - first == i) v[i] = g.at_target;
    }
}

/* Loads LOADS units, THREADS apart, from unit k on, all in flight together; units >= n are not loaded. */
template <class raw> __device__ static inline void load_units(raw (&in)[LOADS], const raw *x, size_t k, size_t n)
{
#pragma unroll
    for (int u = 0; u < LOADS; u++)
        if (k + u * THREADS < n) in[u] = x[k + u * THREADS];
}
/* Fills n units of the gradient with one value. */
template <class unit> __device__ static inline void fill(typename unit::raw *dx, size_t n, float value)
{
    float v[unit::n];
#pragma unroll
    for (int i = 0; i < unit::n; i++) v[i] = value;
    for (size_t k = threadIdx.x; k < n; k += THREADS) dx[k] = unit::pack(v);
}

/* ---- implementation rows: one CTA per row ----------------------------------------------------------------------- */

/* dlogits may be logits: the thread that overwrites an element is the only one that reads it. The target's logit is
 * read by all threads, before the barrier in block_merge. */
template <class T, bool VEC, bool GRAD> __global__ void __launch_bounds__(THREADS) xent_rows(xent<T> a)
{
    typedef pb_unit<T, VEC> unit;
    typedef typename unit::raw raw;
    __shared__ row_sum room[THREADS / 32];
    const size_t row = blockIdx.x, units = a.V / unit::n;
    const raw *x = (const raw *)(a.logits + row * a.V);
    raw *dx = (raw *)(a.dlogits + row * a.V);
    const row_case r = row_case_of(a, row);
    float v[unit::n];
    if (r.trivial) {
        if (threadIdx.x == 0) a.nll[row] = r.value;
        if (GRAD) fill<unit>(dx, units, r.value);
        return;
    }
    const float at_target = pb_to_f32(a.logits[row * a.V + r.target]);
    float max = -FLT_MAX, sum = 0;
    for (size_t k = threadIdx.x; k < units; k += LOADS * THREADS) {
        raw in[LOADS];
        load_units(in, x, k, units);
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            if (k + u * THREADS >= units) break;
            unit::unpack(in[u], v);
            add_logits<T>(v, max, sum);
        }
    }
    const row_sum s = block_merge(max, sum, room);
    if (threadIdx.x == 0) a.nll[row] = nll_of(s, at_target);
    if constexpr (!GRAD) return;
    const row_gradient g = row_gradient_of(s, r, at_target);
    for (size_t k = threadIdx.x; k < units; k += LOADS * THREADS) {
        raw in[LOADS];
        load_units(in, x, k, units);
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            const size_t i = k + u * THREADS;
            if (i >= units) break;
            unit::unpack(in[u], v);
            gradient<T>(v, i * unit::n, g);
            dx[i] = unit::pack(v);
        }
    }
}

/* ---- implementation resident: a cluster of CTAs keeps a row in shared memory ------------------------------------ */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTERS 0 /* no cluster instructions before sm_90; pb_cuda_has_sm90 prevents a launch of the kernel there */
#else
#define CLUSTERS 1
#endif

__device__ static inline void cluster_arrive(void)
{
#if CLUSTERS
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ static inline void cluster_wait(void)
{
#if CLUSTERS
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
/* Reads *p from the shared memory of CTA `rank` of the cluster. */
__device__ static inline row_sum cluster_read(const row_sum *p, int rank)
{
    row_sum s = *p;
#if CLUSTERS
    uint32_t at = (uint32_t)__cvta_generic_to_shared(p);
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(s.max) : "r"(at) : "memory");
    asm volatile("ld.shared::cluster.f64 %0, [%1+8];" : "=d"(s.sum) : "r"(at) : "memory");
#endif
    return s;
}

/* The shared memory holds the sums of the warps, the sum of the CTA, then the CTA's part of the row. The row is divided
 * into `ctas` consecutive parts. A thread writes only the elements that it read itself; threads exchange only sums. */
enum { ROOM = THREADS / 32 + 1 };

template <class T, bool VEC> __global__ void __launch_bounds__(THREADS, 2) xent_resident(xent<T> a, int ctas)
{
    typedef pb_unit<T, VEC> unit;
    typedef typename unit::raw raw;
    extern __shared__ uint4 shared[];
    row_sum *room = (row_sum *)shared;
    raw *part = (raw *)(room + ROOM);
    const size_t row = blockIdx.x / ctas, rank = blockIdx.x % ctas, units = a.V / unit::n;
    const size_t first = units * rank / ctas, n = units * (rank + 1) / ctas - first;
    const raw *x = (const raw *)(a.logits + row * a.V) + first;
    raw *dx = (raw *)(a.dlogits + row * a.V) + first;
    const row_case r = row_case_of(a, row);
    float v[unit::n];
    if (r.trivial) { /* all CTAs of the cluster take this branch together */
        if (rank == 0 && threadIdx.x == 0) a.nll[row] = r.value;
        fill<unit>(dx, n, r.value);
        return;
    }
    const float at_target = pb_to_f32(a.logits[row * a.V + r.target]); /* before a thread overwrites it */
    float max = -FLT_MAX, sum = 0;
    for (size_t k = threadIdx.x; k < n; k += LOADS * THREADS) {
        raw in[LOADS];
        load_units(in, x, k, n);
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            if (k + u * THREADS >= n) break;
            part[k + u * THREADS] = in[u];
            unit::unpack(in[u], v);
            add_logits<T>(v, max, sum);
        }
    }
    row_sum s = block_merge(max, sum, room);
    if (threadIdx.x == 0) room[ROOM - 1] = s;
    cluster_arrive();
    cluster_wait();
    const int lane = threadIdx.x % 32;
    const row_sum none = {-FLT_MAX, 0};
    s = warp_merge(lane < ctas ? cluster_read(room + ROOM - 1, lane) : none);
    cluster_arrive(); /* a CTA must not exit while others read its sum: see the wait below */
    if (rank == 0 && threadIdx.x == 0) a.nll[row] = nll_of(s, at_target);
    const row_gradient g = row_gradient_of(s, r, at_target);
    for (size_t k = threadIdx.x; k < n; k += THREADS) {
        unit::unpack(part[k], v);
        gradient<T>(v, (first + k) * unit::n, g);
        dx[k] = unit::pack(v);
    }
    cluster_wait();
}

/* ---- the loss from the rows' nll -------------------------------------------------------------------------------- */

__global__ static void __launch_bounds__(1024)
    xent_loss(const float *mask, const float *nll, const float *inv_count, float *loss, float *total, bool add, int T)
{
    __shared__ double room[32];
    double sum = 0;
    for (int t = threadIdx.x; t < T; t += 1024)
        if (mask[t] != 0) sum += (double)mask[t] * nll[t];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(room[threadIdx.x]);
    if (threadIdx.x != 0) return;
    const float mean = (float)(sum * inv_count[0]);
    loss[0] = mean;
    if (total) total[0] = (add ? total[0] : 0) + mean;
}

static pb_status loss(pb_ctx *ctx, const pb_xent_bwd_args *a)
{
    xent_loss<<<1, 1024, 0, pb_cuda_stream(ctx)>>>(a->mask, a->nll, a->inv_count, a->loss, a->total, a->add, a->T);
    return pb_cuda_launched(ctx, "xent_loss");
}

/* ---- host functions that launch the kernels --------------------------------------------------------------------- */

template <class T> static xent<T> rows_of(const pb_xent_bwd_args *a)
{
    return {(const T *)a->logits, a->target, a->mask, a->inv_count, a->loss_scale, (T *)a->dlogits, a->nll, a->V};
}

template <class T> static bool vectors_fit(const pb_xent_bwd_args *a)
{
    return pb_vectors_fit<T>(a->logits, a->V, a->V) && pb_aligned16(a->dlogits);
}

template <class T, bool GRAD> static pb_status launch_rows(pb_ctx *ctx, const pb_xent_bwd_args *a)
{
    const auto kernel = vectors_fit<T>(a) ? xent_rows<T, true, GRAD> : xent_rows<T, false, GRAD>;
    if (a->T == 0) return PB_OK;
    kernel<<<(unsigned)a->T, THREADS, 0, pb_cuda_stream(ctx)>>>(rows_of<T>(a));
    return pb_cuda_launched(ctx, "xent_rows");
}

/* Returns the fewest CTAs whose shared memory holds a row; 0: a row does not fit. */
static int blocks_for(const pb_xent_bwd_args *a)
{
    const size_t bytes = a->V * pb_dtype_size(a->dtype);
    for (int c = 1; c <= CLUSTER; c *= 2)
        if (bytes <= (size_t)c * SLICE) return c;
    return 0;
}

/* Returns the number of CTAs per row: blocks_for(), doubled while the grid would have at most one CTA per SM. */
static int blocks_of(const pb_ctx *ctx, const pb_xent_bwd_args *a)
{
    int c = blocks_for(a);
    while (c < CLUSTER && (size_t)a->T * c <= (size_t)pb_cuda_device_of(ctx)->sms) c *= 2;
    return c;
}

template <class T> static pb_status launch_resident(pb_ctx *ctx, const pb_xent_bwd_args *a)
{
    const bool vec = vectors_fit<T>(a);
    const auto kernel = vec ? xent_resident<T, true> : xent_resident<T, false>;
    const int ctas = blocks_of(ctx, a);
    const size_t unit = vec ? 16 : sizeof(T), units = a->V * sizeof(T) / unit;
    const size_t bytes = ROOM * sizeof(row_sum) + pb_ceil_div(units, ctas) * unit;
    cudaLaunchAttribute cluster[1];
    cudaLaunchConfig_t config = {};
    if (a->T == 0) return PB_OK;
    cluster[0].id = cudaLaunchAttributeClusterDimension;
    cluster[0].val.clusterDim.x = (unsigned)ctas;
    cluster[0].val.clusterDim.y = cluster[0].val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)a->T * ctas);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = pb_cuda_stream(ctx);
    config.attrs = cluster;
    config.numAttrs = 1;
    PB_TRY(pb_cuda_allow_shared(kernel, SLICE + ROOM * sizeof(row_sum)));
    PB_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, rows_of<T>(a), ctas));
    return pb_cuda_launched(ctx, "xent_resident");
}

static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_xent_fwd_args *f = (const pb_xent_fwd_args *)args;
    const pb_xent_bwd_args a = {.logits = f->logits,
                                .target = f->target,
                                .mask = f->mask,
                                .inv_count = f->inv_count,
                                .dlogits = NULL,
                                .nll = f->nll,
                                .loss = f->loss,
                                .T = f->T,
                                .V = f->V,
                                .dtype = f->dtype};
    if (a.dtype == PB_F32) PB_TRY((launch_rows<float, false>(ctx, &a)));
    else PB_TRY((launch_rows<__nv_bfloat16, false>(ctx, &a)));
    return loss(ctx, &a);
}

static pb_status run_bwd_rows(pb_ctx *ctx, const void *args)
{
    const pb_xent_bwd_args *a = (const pb_xent_bwd_args *)args;
    if (a->dtype == PB_F32) PB_TRY((launch_rows<float, true>(ctx, a)));
    else PB_TRY((launch_rows<__nv_bfloat16, true>(ctx, a)));
    return loss(ctx, a);
}

static pb_status run_bwd_resident(pb_ctx *ctx, const void *args)
{
    const pb_xent_bwd_args *a = (const pb_xent_bwd_args *)args;
    PB_TRY(PB_CUDA_BY_DTYPE(a->dtype, launch_resident, ctx, a));
    return loss(ctx, a);
}

static bool fits_cluster(const void *args) { return blocks_for((const pb_xent_bwd_args *)args) > 0; }

extern "C" const pb_impl pb_xent_fwd_cuda[] = {{.name = "rows", .run = run_fwd}, {0}};
extern "C" const pb_impl pb_xent_bwd_cuda[] = {
    {.name = "resident", .run = run_bwd_resident, .accepts = fits_cluster, .available = pb_cuda_has_sm90},
    {.name = "rows", .run = run_bwd_rows},
    {0},
};
