/* residual.cu - the residual stream times a learned vector on a GPU. A thread has a vector of columns, of 16 bytes or
 * of one element where rows are not aligned. Limited by memory bandwidth.
 *
 * Backward: the rows are divided into runs. A CTA sums ds over a run and writes it to a row of the scratch memory, and
 * the kernel norm_dw_add adds the runs in order. */
#include "kernels/residual/residual.h"
#include "kernels/rmsnorm/rmsnorm_rows.cuh"

enum { RESIDUAL_BLOCK = 128, RESIDUAL_RUN = 16, RESIDUAL_RUNS = 512 };

/* Number of runs of at least RESIDUAL_RUN rows, at most RESIDUAL_RUNS. */
static int runs_of(int rows)
{
    const int runs = rows / RESIDUAL_RUN;
    return runs < 1 ? 1 : runs > RESIDUAL_RUNS ? RESIDUAL_RUNS : runs;
}

/* V elements of type T in f32. V is pb_lanes<T> or 1. */
template <class T, int V> __device__ static inline void load(const T *p, float (&v)[V])
{
    if constexpr (V == 1) v[0] = pb_to_f32(*p);
    else pb_unpack(pb_load16(p), v);
}
template <class T, int V> __device__ static inline void store(T *p, const float (&v)[V])
{
    if constexpr (V == 1) *p = pb_from_f32<T>(v[0]);
    else pb_store16(p, pb_pack(v));
}
template <int V> __device__ static inline void factors(const float *s, float (&v)[V])
{
    if constexpr (V == 1) v[0] = *s;
    else pb_load_f32(s, v);
}

/* Grid: x covers the columns, V for each thread; the CTAs along y share the rows. */
template <class T, int V>
__global__ void __launch_bounds__(RESIDUAL_BLOCK) residual_product(const T *x, const float *s, T *y, int rows, int D)
{
    const int d = (int)(blockIdx.x * RESIDUAL_BLOCK + threadIdx.x) * V;
    if (d >= D) return;
    float f[V], v[V];
    factors(s + d, f);
    for (size_t r = blockIdx.y; r < (size_t)rows; r += gridDim.y) {
        load(x + r * D + d, v);
#pragma unroll
        for (int u = 0; u < V; u++) v[u] *= f[u];
        store(y + r * D + d, v);
    }
}

/* Row blockIdx.y of `part` [runs,D] gets the sum of ds over its run; part NULL: no sums. dx may be dy. */
template <class T, int V>
__global__ void __launch_bounds__(RESIDUAL_BLOCK)
    residual_back(const T *dy, const T *x, const float *s, T *dx, float *part, int rows, int D)
{
    const int d = (int)(blockIdx.x * RESIDUAL_BLOCK + threadIdx.x) * V;
    const size_t first = (size_t)rows * blockIdx.y / gridDim.y, end = (size_t)rows * (blockIdx.y + 1) / gridDim.y;
    if (d >= D) return;
    float f[V], g[V], v[V], sum[V] = {};
    factors(s + d, f);
    for (size_t r = first; r < end; r++) {
        load(dy + r * D + d, g);
        if (part) {
            load(x + r * D + d, v);
#pragma unroll
            for (int u = 0; u < V; u++) sum[u] += g[u] * v[u];
        }
#pragma unroll
        for (int u = 0; u < V; u++) g[u] *= f[u];
        store(dx + r * D + d, g);
    }
#pragma unroll
    for (int u = 0; part && u < V; u++) part[(size_t)blockIdx.y * D + d + u] = sum[u];
}

template <int V> static dim3 grid_of(int D, int runs)
{
    return dim3((unsigned)pb_ceil_div(D, RESIDUAL_BLOCK * V), (unsigned)runs);
}

template <class T> static pb_status fwd(pb_ctx *ctx, const pb_residual_fwd_args *a)
{
    const T *x = (const T *)a->x;
    T *y = (T *)a->y;
    const bool fit = pb_vectors_fit<T>(x, a->D, a->D) && pb_vectors_fit<T>(y, a->D, a->D) && pb_aligned16(a->s);
    constexpr int V = pb_lanes<T>;
    const int runs = a->T < 65535 ? a->T : 65535; /* the limit of a grid's second dimension */
    if (a->T == 0) return PB_OK;
    if (fit)
        residual_product<T, V>
            <<<grid_of<V>(a->D, runs), RESIDUAL_BLOCK, 0, pb_cuda_stream(ctx)>>>(x, a->s, y, a->T, a->D);
    else
        residual_product<T, 1>
            <<<grid_of<1>(a->D, runs), RESIDUAL_BLOCK, 0, pb_cuda_stream(ctx)>>>(x, a->s, y, a->T, a->D);
    return pb_cuda_launched(ctx, "residual_fwd");
}

template <class T> static pb_status bwd(pb_ctx *ctx, const pb_residual_bwd_args *a)
{
    const T *dy = (const T *)a->dy, *x = (const T *)a->x;
    T *dx = (T *)a->dx;
    float *part = a->ds ? (float *)ctx->scratch : NULL;
    const bool fit = pb_vectors_fit<T>(dy, a->D, a->D) && pb_vectors_fit<T>(dx, a->D, a->D) && pb_aligned16(a->s) &&
                     (!a->ds || pb_vectors_fit<T>(x, a->D, a->D));
    constexpr int V = pb_lanes<T>;
    const int runs = runs_of(a->T);
    if (a->T > 0) {
        if (fit)
            residual_back<T, V>
                <<<grid_of<V>(a->D, runs), RESIDUAL_BLOCK, 0, pb_cuda_stream(ctx)>>>(dy, x, a->s, dx, part, a->T, a->D);
        else
            residual_back<T, 1>
                <<<grid_of<1>(a->D, runs), RESIDUAL_BLOCK, 0, pb_cuda_stream(ctx)>>>(dy, x, a->s, dx, part, a->T, a->D);
        PB_TRY(pb_cuda_launched(ctx, "residual_bwd"));
    }
    if (!a->ds) return PB_OK;
    norm_dw_add<<<(unsigned)pb_ceil_div(a->D, NORM_COLUMNS), dim3(NORM_COLUMNS, 32), 0, pb_cuda_stream(ctx)>>>(
        part, a->ds, a->T > 0 ? runs : 0, a->D, a->accumulate);
    return pb_cuda_launched(ctx, "residual_bwd");
}

static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_residual_fwd_args *a = (const pb_residual_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, fwd, ctx, a);
}

static pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_residual_bwd_args *a = (const pb_residual_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, bwd, ctx, a);
}

static size_t bwd_workspace(const void *args)
{
    const pb_residual_bwd_args *a = (const pb_residual_bwd_args *)args;
    return a->ds ? (size_t)runs_of(a->T) * a->D * sizeof(float) : 0;
}

extern "C" const pb_impl pb_residual_fwd_cuda[] = {{.name = "vectors", .run = run_fwd}, {0}};
extern "C" const pb_impl pb_residual_bwd_cuda[] = {{.name = "vectors", .run = run_bwd, .workspace = bwd_workspace},
                                                   {0}};
