/* newton_schulz.cu - the Newton-Schulz iteration on a GPU, for a batch of matrices in each launch. A and B are
 * symmetric products (syrk_cuda.h); a X + B X is one product that adds a X in f32, without rounding it before, so X is
 * read and written once per step. The two implementations differ in the products only: "batched" takes the fastest,
 * "simt" those of FMA instructions.
 *
 * A large batch is divided into parts, whose scratch memory is smaller. The norms stay on the device: every CTA that
 * scales a part of a matrix adds its partial sums again, in order. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/cuda_blas.h"
#include "kernels/newton_schulz/ns_products.h"
#include "kernels/syrk/syrk_cuda.h"

namespace
{
enum { THREADS = 256, SLICES = 32 /* partial sums of a matrix */ };
static const size_t part_bytes = (size_t)256 << 20; /* of X in a part of the batch, unless one matrix is larger */

typedef pb_status symmetric_fn(pb_ctx *ctx, const pb_syrk_product_args *a);
typedef pb_status product_fn(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch, const pb_cuda_addend *add);
struct products {
    symmetric_fn *symmetric;
    product_fn *general;
};

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* Writes the sum of squares of slice blockIdx.x of matrix blockIdx.y, in double: squares of finite values may exceed
 * f32. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) slice_sums(const T *x, size_t n, double *sums)
{
    __shared__ double room[THREADS];
    const T *matrix = x + (size_t)blockIdx.y * n;
    double sum = 0;
    for (size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * V; i < n; i += (size_t)SLICES * THREADS * V) {
        float v[V];
        pb_load_vec<T, V>(matrix + i, v);
#pragma unroll
        for (int k = 0; k < V; k++) sum += (double)v[k] * (double)v[k];
    }
    room[threadIdx.x] = sum;
    for (int d = THREADS / 2; d > 0; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < d) room[threadIdx.x] += room[threadIdx.x + d];
    }
    if (threadIdx.x == 0) sums[blockIdx.y * SLICES + blockIdx.x] = room[0];
}

/* Writes X_0. to may be x. Grid: x = parts of a matrix, y = matrices. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    normalise(const T *x, T *to, size_t n, const double *sums, double s, double eps)
{
    double all = 0;
    for (int i = 0; i < SLICES; i++) all += sums[blockIdx.y * SLICES + i];
    const double divisor = s * sqrt(all) + eps, factor = divisor > 0 || isnan(divisor) ? 1 / divisor : 0;
    const size_t first = (size_t)blockIdx.y * n;
    for (size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * V; i < n; i += (size_t)gridDim.x * THREADS * V) {
        float v[V];
        pb_load_vec<T, V>(x + first + i, v);
#pragma unroll
        for (int k = 0; k < V; k++) v[k] = (float)(factor * (double)v[k]);
        pb_store_vec<T, V>(to + first + i, v);
    }
}

/* Adds a to the diagonals of the matrices z [n,m,m]. Grid: y = matrices. */
__global__ void __launch_bounds__(THREADS) add_diagonal(float *z, int m, float a)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i < m) z[((size_t)blockIdx.y * m + i) * m + i] += a;
}

__global__ void __launch_bounds__(THREADS) round_all(const float *x, __nv_bfloat16 *y, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS)
        y[i] = pb_from_f32<__nv_bfloat16>(x[i]);
}

/* ---- scratch memory --------------------------------------------------------------------------------------------- */

/* Byte offsets of the scratch for up to `most` matrices. x: the second of two buffers that hold X_k in turn (y is the
 * first); sums: partial norms; small: matrices [m,m], see ns_products.h. */
struct room {
    size_t x, sums, small[5], bytes;
    int most;
};

room room_of(const pb_newton_schulz_run_args *a)
{
    room r = {};
    const bool gram = pb_ns_on_gram(a);
    const size_t m = (size_t)pb_ns_small(a), one = (size_t)a->R * (size_t)a->C * pb_dtype_size(a->dtype);
    const size_t fit = one < part_bytes ? part_bytes / one : 1, n = (size_t)a->n, parts = (n + fit - 1) / fit;
    r.most = parts ? (int)((n + parts - 1) / parts) : 0;
    r.x = pb_ns_place(&r.bytes, (size_t)r.most * one);
    r.sums = pb_ns_place(&r.bytes, (size_t)r.most * SLICES * sizeof(double));
    for (int i = 0; i < (gram ? 5 : 2); i++)
        r.small[i] = pb_ns_place(&r.bytes, (size_t)r.most * m * m * pb_dtype_size(gram ? PB_F32 : a->dtype));
    return r;
}

/* A part of the batch: args of its matrices, and its scratch memory. */
struct work {
    pb_newton_schulz_run_args a;
    room r;
    unsigned char *base;
    products by;
};

void *at(const work &w, size_t offset) { return w.base + offset; }
float *small(const work &w, int i) { return static_cast<float *>(at(w, w.r.small[i])); }
size_t elements(const work &w) { return (size_t)w.a.R * (size_t)w.a.C; }
size_t squares(const work &w) { return (size_t)pb_ns_small(&w.a) * (size_t)pb_ns_small(&w.a); }

/* ---- steps ------------------------------------------------------------------------------------------------------ */

template <class T, int V> pb_status start_vectors(pb_ctx *ctx, const work &w, void *to)
{
    const size_t n = elements(w), parts = (n / V + 4 * THREADS - 1) / (4 * THREADS);
    double *sums = static_cast<double *>(at(w, w.r.sums));
    const T *x = static_cast<const T *>(w.a.x);
    const unsigned matrices = (unsigned)w.a.n, blocks = (unsigned)(parts < 1 ? 1 : parts > 1024 ? 1024 : parts);
    slice_sums<T, V><<<dim3(SLICES, matrices), THREADS, 0, pb_cuda_stream(ctx)>>>(x, n, sums);
    PB_TRY(pb_cuda_launched(ctx, "newton_schulz slice_sums"));
    normalise<T, V><<<dim3(blocks, matrices), THREADS, 0, pb_cuda_stream(ctx)>>>(
        x, static_cast<T *>(to), n, sums, pb_ns_norm_factor(w.a.variant), (double)w.a.eps);
    return pb_cuda_launched(ctx, "newton_schulz normalise");
}

template <class T> pb_status start(pb_ctx *ctx, const work &w, void *to)
{
    const bool vectors = pb_vectors_fit<T>(w.a.x, elements(w), 0) && pb_vectors_fit<T>(to, elements(w), 0);
    return vectors ? start_vectors<T, pb_lanes<T>>(ctx, w, to) : start_vectors<T, 1>(ctx, w, to);
}

pb_status symmetric(pb_ctx *ctx, const work &w, pb_syrk_product_args s)
{
    s.n = w.a.n;
    return w.by.symmetric(ctx, &s);
}

/* to = a from + B from, or from B of a tall matrix; `type` is that of B. */
pb_status apply(pb_ctx *ctx, const work &w, const void *b, pb_dtype type, const void *from, void *to, double a)
{
    const pb_gemm g = pb_ns_apply(&w.a, b, type, from, to, false);
    const size_t own = elements(w), square = squares(w);
    const bool tall = w.a.R > w.a.C;
    const pb_gemm_batch batch = {w.a.n, tall ? own : square, tall ? square : own, own};
    const pb_cuda_addend add = {a != 0 ? from : NULL, (float)a};
    return w.by.general(ctx, &g, &batch, &add);
}

pb_status times(pb_ctx *ctx, const work &w, const float *x1, const float *x2, float *y)
{
    const pb_gemm g = pb_ns_times(&w.a, x1, x2, y, false);
    const size_t square = squares(w);
    const pb_gemm_batch batch = {w.a.n, square, square, square};
    const pb_cuda_addend none = {NULL, 0};
    return w.by.general(ctx, &g, &batch, &none);
}

/* The iteration on X itself. X_0 is where the last X_k is y. */
pb_status iterate(pb_ctx *ctx, const work &w, void *x0)
{
    void *from = x0, *to = x0 == w.a.y ? at(w, w.r.x) : w.a.y;
    for (int k = 0; k < w.a.steps; k++) {
        const pb_ns_factors f = pb_ns_factors_of(w.a.variant, k);
        void *gram = small(w, PB_NS_A), *b = small(w, PB_NS_B);
        PB_TRY(symmetric(ctx, w, pb_ns_gram(&w.a, from, gram, w.a.dtype)));
        PB_TRY(symmetric(ctx, w, pb_ns_square(&w.a, f, gram, b, w.a.dtype)));
        PB_TRY(apply(ctx, w, b, w.a.dtype, from, to, f.a));
        void *const before = from;
        from = to, to = before;
    }
    return PB_OK;
}

/* to = P from, or from P of a tall matrix, with P rounded to the type of X; `room` [n,m,m] is overwritten. */
pb_status apply_gram(pb_ctx *ctx, const work &w, const float *p, float *room, const void *from, void *to)
{
    const size_t n = squares(w) * (size_t)w.a.n, blocks = (n + THREADS - 1) / THREADS;
    if (w.a.dtype == PB_F32) return apply(ctx, w, p, PB_F32, from, to, 0);
    round_all<<<(unsigned)(blocks < 4096 ? blocks : 4096), THREADS, 0, pb_cuda_stream(ctx)>>>(
        p, reinterpret_cast<__nv_bfloat16 *>(room), n);
    PB_TRY(pb_cuda_launched(ctx, "newton_schulz round"));
    return apply(ctx, w, room, PB_BF16, from, to, 0);
}

/* Z = b G + c G^2 + a I */
pb_status polynomial(pb_ctx *ctx, const work &w, const float *g, float *z, pb_ns_factors f)
{
    const int m = pb_ns_small(&w.a);
    PB_TRY(symmetric(ctx, w, pb_ns_square(&w.a, f, g, z, PB_F32)));
    const dim3 grid((unsigned)(m + THREADS - 1) / THREADS, (unsigned)w.a.n);
    add_diagonal<<<grid, THREADS, 0, pb_cuda_stream(ctx)>>>(z, m, (float)f.a);
    return pb_cuda_launched(ctx, "newton_schulz add_diagonal");
}

/* The iteration on the Gram matrix. P is in small[PB_NS_P] or small[PB_NS_Q], in turn; after the first step it is Z. */
pb_status iterate_gram(pb_ctx *ctx, const work &w, void *x0)
{
    void *x = x0, *other = x0 == w.a.y ? at(w, w.r.x) : w.a.y;
    float *g = small(w, PB_NS_G), *t = small(w, PB_NS_T), *p = NULL;
    for (int k = 0; k < w.a.steps; k++) {
        if (k == PB_NS_RESTART) {
            PB_TRY(apply_gram(ctx, w, p, t, x, other));
            void *const before = x;
            x = other, other = before, p = NULL;
        }
        float *const next = p == small(w, PB_NS_P) ? small(w, PB_NS_Q) : small(w, PB_NS_P);
        float *const z = p ? small(w, PB_NS_Z) : next;
        if (!p) PB_TRY(symmetric(ctx, w, pb_ns_gram(&w.a, x, g, PB_F32)));
        PB_TRY(polynomial(ctx, w, g, z, pb_ns_factors_of(w.a.variant, k)));
        if (p) PB_TRY(times(ctx, w, p, z, next));
        p = next;
        if (k == w.a.steps - 1 || k + 1 == PB_NS_RESTART) continue; /* G is not used again */
        PB_TRY(times(ctx, w, z, g, t));
        PB_TRY(times(ctx, w, t, z, g));
    }
    return apply_gram(ctx, w, p, t, x, w.a.y);
}

/* True if X_0 belongs in y, so that the last of the matrices X_k, which alternate, is in y. */
bool starts_in_y(const pb_newton_schulz_run_args *a)
{
    const int writes = pb_ns_on_gram(a) ? (a->steps > PB_NS_RESTART ? 2 : 1) : a->steps;
    return writes % 2 == 0;
}

pb_status run_with(pb_ctx *ctx, const pb_newton_schulz_run_args *a, products by)
{
    const size_t one = (size_t)a->R * (size_t)a->C * pb_dtype_size(a->dtype);
    work w = {*a, room_of(a), static_cast<unsigned char *>(ctx->scratch), by};
    for (int first = 0; first < a->n; first += w.r.most) {
        w.a.x = static_cast<const unsigned char *>(a->x) + (size_t)first * one;
        w.a.y = static_cast<unsigned char *>(a->y) + (size_t)first * one;
        w.a.n = a->n - first < w.r.most ? a->n - first : w.r.most;
        void *x0 = starts_in_y(a) ? w.a.y : at(w, w.r.x);
        PB_TRY(PB_CUDA_BY_DTYPE(a->dtype, start, ctx, w, x0));
        PB_TRY(pb_ns_on_gram(a) ? iterate_gram(ctx, w, x0) : iterate(ctx, w, x0));
    }
    return PB_OK;
}

pb_status run_batched(pb_ctx *ctx, const void *args)
{
    return run_with(ctx, static_cast<const pb_newton_schulz_run_args *>(args), {pb_syrk_cuda, pb_cuda_gemm_add});
}
pb_status run_simt(pb_ctx *ctx, const void *args)
{
    return run_with(ctx, static_cast<const pb_newton_schulz_run_args *>(args),
                    {pb_syrk_cuda_simt, pb_cuda_gemm_simt_add});
}
size_t run_workspace(const void *args) { return room_of(static_cast<const pb_newton_schulz_run_args *>(args)).bytes; }
} // namespace

extern "C" const pb_impl pb_newton_schulz_run_cuda[] = {
    {.name = "batched", .run = run_batched, .workspace = run_workspace},
    {.name = "simt", .run = run_simt, .workspace = run_workspace},
    {0}};
