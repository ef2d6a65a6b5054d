/* swiglu.cu - the gated activation on a GPU, one kernel launch per pass. A thread computes one vector of columns in
 * ROWS rows. Limited by memory bandwidth. Bytes per element of y of size e: forward 3e; backward 5e, or 6e if it also
 * writes y.
 *
 * In bf16, the fast exponential and division are used: their errors (1e-6) are far below the rounding of the result,
 * and the exact ones would take as long as the memory accesses. */
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/swiglu/swiglu.h"

__device__ static inline float sigmoid(float z, float) { return 1 / (1 + expf(-z)); }
__device__ static inline float sigmoid(float z, __nv_bfloat16) { return __fdividef(1, 1 + __expf(-z)); }

template <class T, bool VEC, int ROWS>
__global__ void __launch_bounds__(256) swiglu_fwd(const T *gu_, T *y_, int rows, int n, unsigned chunks)
{
    typedef pb_unit<T, VEC> unit;
    const typename unit::raw *gu = (const typename unit::raw *)gu_;
    typename unit::raw *y = (typename unit::raw *)y_, gate[ROWS], up[ROWS];
    const int k = blockIdx.x % chunks * blockDim.x + threadIdx.x;
    const size_t first = (size_t)(blockIdx.x / chunks) * ROWS;
    if (k >= n) return;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (first + i < rows) gate[i] = gu[2 * (first + i) * n + k], up[i] = gu[(2 * (first + i) + 1) * n + k];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (first + i >= rows) break;
        float g[unit::n], u[unit::n];
        unit::unpack(gate[i], g), unit::unpack(up[i], u);
#pragma unroll
        for (int j = 0; j < unit::n; j++) g[j] = g[j] * sigmoid(g[j], T()) * u[j];
        y[(first + i) * n + k] = unit::pack(g);
    }
}

/* dgu may be gu, and y may be dy: the thread that overwrites an element is the one that read it. */
template <class T, bool VEC, int ROWS>
__global__ void __launch_bounds__(256)
    swiglu_bwd(const T *dy_, const T *gu_, T *dgu_, T *y_, int rows, int n, unsigned chunks)
{
    typedef pb_unit<T, VEC> unit;
    typedef typename unit::raw raw;
    const raw *dy = (const raw *)dy_, *gu = (const raw *)gu_;
    raw *dgu = (raw *)dgu_, *y = (raw *)y_, gate[ROWS], up[ROWS], grad[ROWS];
    const int k = blockIdx.x % chunks * blockDim.x + threadIdx.x;
    const size_t first = (size_t)(blockIdx.x / chunks) * ROWS;
    if (k >= n) return;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (first + i < rows) {
            gate[i] = gu[2 * (first + i) * n + k], up[i] = gu[(2 * (first + i) + 1) * n + k];
            grad[i] = dy[(first + i) * n + k];
        }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (first + i >= rows) break;
        float g[unit::n], u[unit::n], d[unit::n], act[unit::n];
        unit::unpack(gate[i], g), unit::unpack(up[i], u), unit::unpack(grad[i], d);
#pragma unroll
        for (int j = 0; j < unit::n; j++) {
            const float s = sigmoid(g[j], T()), silu = g[j] * s;
            act[j] = silu * u[j];
            g[j] = d[j] * u[j] * s * (1 + g[j] * (1 - s));
            u[j] = d[j] * silu;
        }
        dgu[2 * (first + i) * n + k] = unit::pack(g);
        dgu[(2 * (first + i) + 1) * n + k] = unit::pack(u);
        if (y) y[(first + i) * n + k] = unit::pack(act);
    }
}

/* Returns true if the grid has at least four CTAs per SM when each thread computes `each` rows. */
static bool enough(pb_ctx *ctx, pb_tiles tiles, int rows, int each)
{
    return (size_t)tiles.chunks * (rows / each) >= 4 * (size_t)pb_cuda_device_of(ctx)->sms;
}

template <class T, bool VEC> static pb_status fwd_units(pb_ctx *ctx, const pb_swiglu_fwd_args *a)
{
    const int n = a->I / pb_unit<T, VEC>::n;
    const pb_tiles tiles = pb_tiles_of(n);
    const bool many = enough(ctx, tiles, a->T, 4);
    const unsigned grid = tiles.chunks * (unsigned)pb_ceil_div(a->T, many ? 4 : 1);
    const auto kernel = many ? swiglu_fwd<T, VEC, 4> : swiglu_fwd<T, VEC, 1>;
    kernel<<<grid, tiles.threads, 0, pb_cuda_stream(ctx)>>>((const T *)a->gu, (T *)a->y, a->T, n, tiles.chunks);
    return pb_cuda_launched(ctx, "swiglu_fwd");
}

template <class T, bool VEC> static pb_status bwd_units(pb_ctx *ctx, const pb_swiglu_bwd_args *a)
{
    const int n = a->I / pb_unit<T, VEC>::n;
    const pb_tiles tiles = pb_tiles_of(n);
    const bool many = enough(ctx, tiles, a->T, 2);
    const unsigned grid = tiles.chunks * (unsigned)pb_ceil_div(a->T, many ? 2 : 1);
    const auto kernel = many ? swiglu_bwd<T, VEC, 2> : swiglu_bwd<T, VEC, 1>;
    kernel<<<grid, tiles.threads, 0, pb_cuda_stream(ctx)>>>((const T *)a->dy, (const T *)a->gu, (T *)a->dgu, (T *)a->y,
                                                            a->T, n, tiles.chunks);
    return pb_cuda_launched(ctx, "swiglu_bwd");
}

template <class T> static pb_status fwd(pb_ctx *ctx, const pb_swiglu_fwd_args *a)
{
    const bool vec = pb_vectors_fit<T>(a->gu, a->I, a->I) && pb_aligned16(a->y);
    if (a->T == 0) return PB_OK;
    return vec ? fwd_units<T, true>(ctx, a) : fwd_units<T, false>(ctx, a);
}

template <class T> static pb_status bwd(pb_ctx *ctx, const pb_swiglu_bwd_args *a)
{
    const bool vec =
        pb_vectors_fit<T>(a->gu, a->I, a->I) && pb_aligned16(a->dy) && pb_aligned16(a->dgu) && pb_aligned16(a->y);
    if (a->T == 0) return PB_OK;
    return vec ? bwd_units<T, true>(ctx, a) : bwd_units<T, false>(ctx, a);
}

static pb_status run_fwd(pb_ctx *ctx, const void *args)
{
    const pb_swiglu_fwd_args *a = (const pb_swiglu_fwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, fwd, ctx, a);
}

static pb_status run_bwd(pb_ctx *ctx, const void *args)
{
    const pb_swiglu_bwd_args *a = (const pb_swiglu_bwd_args *)args;
    return PB_CUDA_BY_DTYPE(a->dtype, bwd, ctx, a);
}

extern "C" const pb_impl pb_swiglu_fwd_cuda[] = {{.name = "units", .run = run_fwd}, {0}};
extern "C" const pb_impl pb_swiglu_bwd_cuda[] = {{.name = "units", .run = run_bwd}, {0}};
