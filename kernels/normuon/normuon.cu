/* normuon.cu - the NorMuon ops on a GPU. All are limited by memory bandwidth.
 *
 * momentum and apply divide the pieces into chunks; persistent grid: each CTA takes every n-th chunk. rows takes two
 * launches: a warp sums a row and updates its v, then a CTA for each block adds the sums of its rows and writes f. No
 * op changes what decides whether a step is skipped, so every CTA decides for itself. */
#include <math.h>

#include "kernels/cuda/cuda_list.cuh"
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/normuon/normuon.h"

namespace
{
enum { THREADS = 256, CHUNK = 16 * THREADS, BLOCKS = 4 /* CTAs per SM */, WARPS = THREADS / 32 };
#define NORMUON_EPS 1e-8 /* PB_NORMUON_EPS of normuon_rule.h, which is for the host */

/* Returns to all threads of the CTA whether the step is skipped. */
__device__ inline bool skips(const pb_normuon_when &w)
{
    bool skip = (w.loss && !isfinite(*w.loss)) || (w.guard && *w.guard != 0);
    for (int i = (int)threadIdx.x; i < w.nclip; i += THREADS) skip = skip || w.clip[i].skip != 0;
    return __syncthreads_or(skip);
}

__device__ inline float scale_of(const pb_normuon_when &w, int clip)
{
    if (clip < 0) return w.loss_scale ? (float)(1 / (double)w.loss_scale[0]) : 1;
    return w.scale_gradients ? w.clip[clip].scale : 1;
}

/* Elements begin .. end-1 of piece `piece`. */
struct chunk {
    int piece; /* -1: none is left */
    size_t begin, end;
};
__device__ inline chunk chunk_of(const pb_normuon_piece *list, int n, uint32_t number, pb_list_cursor *cursor)
{
    uint32_t within = 0;
    chunk c = {};
    c.piece =
        pb_list_find(cursor, n, number, &within, [&](int k) { return (uint32_t)((list[k].n + CHUNK - 1) / CHUNK); });
    if (c.piece < 0) return c;
    const size_t all = list[c.piece].n;
    c.begin = (size_t)within * CHUNK;
    c.end = all - c.begin < CHUNK ? all : c.begin + CHUNK;
    return c;
}

__device__ inline bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* M = mu M + s G: momentum and apply compute the same bits. */
__device__ inline float advance(float m, float grad, float mu, float scale)
{
    return __fmaf_rn(m, mu, __fmul_rn(grad, scale));
}

/* ---- momentum --------------------------------------------------------------------------------------------------- */

template <class T, int V>
__device__ inline void advance_all(const pb_normuon_momentum_args &a, const pb_normuon_piece &p, const chunk &c)
{
    const float scale = scale_of(a.when, p.clip);
    T *const out = static_cast<T *>(p.u);
#pragma unroll 4
    for (size_t i = c.begin + (size_t)threadIdx.x * V; i < c.end; i += THREADS * V) {
        float g[V], m[V], u[V];
        pb_load_vec<float, V>(p.grad + i, g);
        pb_load_vec<float, V>(p.m + i, m);
#pragma unroll
        for (int k = 0; k < V; k++) {
            m[k] = advance(m[k], g[k], a.mu, scale);
            u[k] = a.nesterov ? advance(m[k], g[k], a.mu, scale) : m[k];
        }
        if (a.keep) pb_store_vec<float, V>(p.m + i, m);
        pb_store_vec<T, V>(out + i, u);
    }
}

template <class T> __global__ void __launch_bounds__(THREADS, BLOCKS) momentum(pb_normuon_momentum_args a)
{
    const bool skip = skips(a.when);
    pb_list_cursor cursor = {};
    for (uint32_t number = blockIdx.x;; number += gridDim.x) {
        const chunk c = chunk_of(a.list, a.n, number, &cursor);
        if (c.piece < 0) return;
        const pb_normuon_piece p = a.list[c.piece];
        T *const u = static_cast<T *>(p.u);
        if (skip) {
            for (size_t i = c.begin + threadIdx.x; i < c.end; i += THREADS) u[i] = pb_from_f32<T>(0);
            continue;
        }
        if (p.n % 4 == 0 && aligned(p.grad) && aligned(p.m) && (uintptr_t)p.u % (4 * sizeof(T)) == 0)
            advance_all<T, 4>(a, p, c);
        else advance_all<T, 1>(a, p, c);
    }
}

/* ---- check ------------------------------------------------------------------------------------------------------ */

__global__ void clear(float *flag) { *flag = 0; }

/* x - x is 0 for finite x, else NaN. CTAs that find such an element write the same value. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) check(const T *x, size_t n, float *flag)
{
    float sum = 0;
#pragma unroll 4
    for (size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * V; i < n; i += (size_t)gridDim.x * THREADS * V) {
        float v[V];
        pb_load_vec<T, V>(x + i, v);
#pragma unroll
        for (int k = 0; k < V; k++) sum += v[k] - v[k];
    }
    if (__syncthreads_or(!(sum == 0)) && threadIdx.x == 0) *flag = 1;
}

template <class T> pb_status launch_check(pb_ctx *ctx, const pb_normuon_check_args *a)
{
    const T *x = static_cast<const T *>(a->x);
    const bool vectors = pb_vectors_fit<T>(x, a->n, 0);
    const size_t need = pb_ceil_div(a->n, THREADS * (vectors ? pb_lanes<T> : 1));
    const size_t most = 2 * BLOCKS * (size_t)pb_cuda_device_of(ctx)->sms;
    const unsigned blocks = (unsigned)(need < most ? need : most);
    clear<<<1, 1, 0, pb_cuda_stream(ctx)>>>(a->flag);
    PB_TRY(pb_cuda_launched(ctx, "normuon_check clear"));
    if (!blocks) return PB_OK;
    if (vectors) check<T, pb_lanes<T>><<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(x, a->n, a->flag);
    else check<T, 1><<<blocks, THREADS, 0, pb_cuda_stream(ctx)>>>(x, a->n, a->flag);
    return pb_cuda_launched(ctx, "normuon_check");
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* row_sums writes one for each row of the list: the sum of squares, and h. */
struct row_sum {
    double squares, h;
};

/* Returns the sum of squares of n elements to all lanes of the warp: in f32 within a vector, then in double. */
template <class T, int V> __device__ inline double squares_of(const T *x, int n)
{
    double sum = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x % 32 * V; i < n; i += 32 * V) {
        float v[V], part = 0;
        pb_load_vec<T, V>(x + i, v);
#pragma unroll
        for (int k = 0; k < V; k++) part = fmaf(v[k], v[k], part);
        sum += (double)part;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    return sum;
}

template <class T> __global__ void __launch_bounds__(THREADS) row_sums(pb_normuon_rows_args a, row_sum *sums)
{
    if (skips(a.when)) return;
    pb_list_cursor cursor = {};
    for (uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;; row += gridDim.x * WARPS) {
        uint32_t i = 0;
        const int block = pb_list_find(&cursor, a.n, row, &i, [&](int k) { return (uint32_t)a.list[k].rows; });
        if (block < 0) return;
        const pb_normuon_block b = a.list[block];
        const T *u = static_cast<const T *>(b.u) + (size_t)i * b.cols;
        const bool vectors = aligned(b.u) && b.cols % pb_lanes<T> == 0;
        const double s = vectors ? squares_of<T, pb_lanes<T>>(u, b.cols) : squares_of<T, 1>(u, b.cols);
        if (threadIdx.x % 32 != 0) continue;
        const double old = (double)b.v[i], v = old + (1 - (double)a.beta2) * (s / b.cols - old);
        b.v[i] = (float)v;
        sums[row] = {s, 1 / (sqrt(v) + NORMUON_EPS)};
    }
}

/* Adds two values over the CTA, in a fixed order; the result is for all threads. */
__device__ inline double2 block_sum(double2 x, double2 *room)
{
    room[threadIdx.x] = x;
    for (int d = THREADS / 2; d > 0; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x >= d) continue;
        room[threadIdx.x].x += room[threadIdx.x + d].x;
        room[threadIdx.x].y += room[threadIdx.x + d].y;
    }
    __syncthreads();
    return room[0];
}

/* Writes f. A CTA for each block. */
__global__ void __launch_bounds__(THREADS) factors(pb_normuon_rows_args a, const row_sum *sums)
{
    __shared__ double2 room[THREADS];
    if (skips(a.when)) return;
    double before = 0; /* rows of the blocks before this one: exact in double */
    for (int i = (int)threadIdx.x; i < (int)blockIdx.x; i += THREADS) before += a.list[i].rows;
    const size_t first = (size_t)block_sum(make_double2(before, 0), room).x;
    const pb_normuon_block b = a.list[blockIdx.x];
    double2 norm = make_double2(0, 0);
    for (int i = (int)threadIdx.x; i < b.rows; i += THREADS) {
        const row_sum s = sums[first + i];
        norm.x += s.squares, norm.y += s.squares * s.h * s.h;
    }
    __syncthreads(); /* all threads have read room[0] */
    norm = block_sum(norm, room);
    const double after = sqrt(norm.y), rescale = sqrt(norm.x) / (after > NORMUON_EPS ? after : NORMUON_EPS);
    for (int i = (int)threadIdx.x; i < b.rows; i += THREADS) b.factor[i] = (float)(sums[first + i].h * rescale);
}

template <class T> pb_status launch_rows(pb_ctx *ctx, const pb_normuon_rows_args *a)
{
    row_sum *const sums = static_cast<row_sum *>(ctx->scratch);
    const size_t need = pb_ceil_div(a->rows, WARPS), most = 2 * BLOCKS * (size_t)pb_cuda_device_of(ctx)->sms;
    if (!a->n || !need) return PB_OK;
    row_sums<T><<<(unsigned)(need < most ? need : most), THREADS, 0, pb_cuda_stream(ctx)>>>(*a, sums);
    PB_TRY(pb_cuda_launched(ctx, "normuon_rows row_sums"));
    factors<<<(unsigned)a->n, THREADS, 0, pb_cuda_stream(ctx)>>>(*a, sums);
    return pb_cuda_launched(ctx, "normuon_rows factors");
}

size_t rows_workspace(const void *args)
{
    return static_cast<const pb_normuon_rows_args *>(args)->rows * sizeof(row_sum);
}

/* ---- apply ------------------------------------------------------------------------------------------------------ */

/* The coefficients of a piece's update: scale of the gradient, lr r, and 1 - lr wd. */
struct coefs {
    float scale, step, keep;
};

__device__ inline double adjust(pb_normuon_adjust_kind kind, int rows, int cols)
{
    if (kind == PB_NORMUON_SPECTRAL) return sqrt((double)rows / cols);
    return kind == PB_NORMUON_RMS ? 0.2 * sqrt((double)max(rows, cols)) : 1;
}
__device__ inline coefs coefs_of(const pb_normuon_apply_args &a, const pb_normuon_piece &p)
{
    const double lr = (double)a.state->lr * (double)a.rate;
    return {scale_of(a.when, p.clip), (float)(lr * adjust(a.adjust, p.rows, p.cols)),
            (float)(1 - lr * (double)p.decay)};
}

/* V elements of one row at a time. row0 is the row of the chunk's first element, and `col0` its column. */
template <class T, class W, int V>
__device__ inline void update_all(const pb_normuon_apply_args &a, const pb_normuon_piece &p, const chunk &c,
                                  size_t row0, uint32_t col0)
{
    const coefs k = coefs_of(a, p);
    float *const master = p.master ? p.master : static_cast<float *>(p.w);
#pragma unroll 4
    for (uint32_t e = threadIdx.x * V; e < (uint32_t)(c.end - c.begin); e += THREADS * V) {
        const size_t i = c.begin + e;
        const float step = k.step * p.factor[row0 + (col0 + e) / (uint32_t)p.cols];
        float w[V], u[V];
        pb_load_vec<float, V>(master + i, w);
        pb_load_vec<T, V>(static_cast<const T *>(p.u) + i, u);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float keep = a.cautious && !(w[v] * u[v] >= 0) ? 1 : k.keep;
            w[v] = w[v] * keep - u[v] * step;
        }
        pb_store_vec<float, V>(master + i, w);
        if (p.master) pb_store_vec<W, V>(static_cast<W *>(p.w) + i, w);
        if (!a.commit) continue;
        float g[V], m[V];
        pb_load_vec<float, V>(p.grad + i, g);
        pb_load_vec<float, V>(p.m + i, m);
#pragma unroll
        for (int v = 0; v < V; v++) m[v] = advance(m[v], g[v], a.mu, k.scale);
        pb_store_vec<float, V>(p.m + i, m);
    }
}

template <class T, class W>
__device__ inline void update_chunk(const pb_normuon_apply_args &a, const pb_normuon_piece &p, const chunk &c)
{
    const size_t at = p.first + c.begin, row0 = at / (size_t)p.cols;
    const uint32_t col0 = (uint32_t)(at - row0 * (size_t)p.cols);
    const bool whole = p.cols % 4 == 0 && at % 4 == 0 && p.n % 4 == 0; /* four elements from a multiple of 4: one row */
    const bool fits = aligned(p.master) && aligned(p.w) && aligned(p.grad) && aligned(p.m) && aligned(p.u);
    if (whole && fits) update_all<T, W, 4>(a, p, c, row0, col0);
    else update_all<T, W, 1>(a, p, c, row0, col0);
}

template <class T> __global__ void __launch_bounds__(THREADS, BLOCKS) apply(pb_normuon_apply_args a)
{
    if (skips(a.when)) return;
    pb_list_cursor cursor = {};
    for (uint32_t number = blockIdx.x;; number += gridDim.x) {
        const chunk c = chunk_of(a.list, a.n, number, &cursor);
        if (c.piece < 0) return;
        const pb_normuon_piece p = a.list[c.piece];
        if (p.wdtype == PB_F32) update_chunk<T, float>(a, p, c);
        else update_chunk<T, __nv_bfloat16>(a, p, c);
    }
}

/* ---- host functions that launch the kernels --------------------------------------------------------------------- */

unsigned persistent(const pb_ctx *ctx) { return BLOCKS * (unsigned)pb_cuda_device_of(ctx)->sms; }

template <class T> pb_status launch_momentum(pb_ctx *ctx, const pb_normuon_momentum_args *a)
{
    if (a->n) momentum<T><<<persistent(ctx), THREADS, 0, pb_cuda_stream(ctx)>>>(*a);
    return a->n ? pb_cuda_launched(ctx, "normuon_momentum") : PB_OK;
}
template <class T> pb_status launch_apply(pb_ctx *ctx, const pb_normuon_apply_args *a)
{
    if (a->n) apply<T><<<persistent(ctx), THREADS, 0, pb_cuda_stream(ctx)>>>(*a);
    return a->n ? pb_cuda_launched(ctx, "normuon_apply") : PB_OK;
}

pb_status run_momentum(pb_ctx *ctx, const void *args)
{
    const pb_normuon_momentum_args *a = static_cast<const pb_normuon_momentum_args *>(args);
    return PB_CUDA_BY_DTYPE(a->dtype, launch_momentum, ctx, a);
}
pb_status run_check(pb_ctx *ctx, const void *args)
{
    const pb_normuon_check_args *a = static_cast<const pb_normuon_check_args *>(args);
    return PB_CUDA_BY_DTYPE(a->dtype, launch_check, ctx, a);
}
pb_status run_rows(pb_ctx *ctx, const void *args)
{
    const pb_normuon_rows_args *a = static_cast<const pb_normuon_rows_args *>(args);
    return PB_CUDA_BY_DTYPE(a->dtype, launch_rows, ctx, a);
}
pb_status run_apply(pb_ctx *ctx, const void *args)
{
    const pb_normuon_apply_args *a = static_cast<const pb_normuon_apply_args *>(args);
    return PB_CUDA_BY_DTYPE(a->dtype, launch_apply, ctx, a);
}
} // namespace

extern "C" {
const pb_impl pb_normuon_momentum_cuda[] = {{.name = "chunks", .run = run_momentum}, {0}};
const pb_impl pb_normuon_check_cuda[] = {{.name = "flag", .run = run_check}, {0}};
const pb_impl pb_normuon_rows_cuda[] = {{.name = "warps", .run = run_rows, .workspace = rows_workspace}, {0}};
const pb_impl pb_normuon_apply_cuda[] = {{.name = "chunks", .run = run_apply}, {0}};
}
