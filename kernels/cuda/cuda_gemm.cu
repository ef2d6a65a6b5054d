/* cuda_gemm.cu - C = alpha A B (+ C) (+ bias) with FMA instructions, for any shape, type and alignment.
 *
 * A CTA of 256 threads computes 64 x 64 elements of C, each thread 4 x 4 of them. Shared memory holds 16 terms of the
 * sum at a time as f32: a[16][64] and b[16][64], each row padded by 16 bytes. Limited by shared-memory reads: 8
 * floats for 16 multiply-adds. */
#include <type_traits>

#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/nf4_decode.cuh"

namespace
{
enum { TILE = 64, DEPTH = 16, THREADS = 256, ROW = TILE + 4, PIECE = 256 };

struct operand {
    const void *p;
    size_t ld, step; /* step: elements from one matrix of a batch to the next */
    bool k_is_row;   /* true: element (i,k) is at k*ld + i; false: at i*ld + k */
    pb_nf4_view nf4;
};

struct product {
    operand a, b;
    void *c;
    const void *e; /* beta times e is added; NULL: nothing */
    const float *bias;
    size_t ldc, step_c;
    int M, N, K;
    float alpha, beta;
};

struct nf4; /* tag for the element type NF4 */

template <class T> __device__ float element(const operand &o, const float *, size_t e)
{
    return pb_to_f32(static_cast<const T *>(o.p)[e]);
}
template <> __device__ float element<nf4>(const operand &o, const float *level, size_t e)
{
    return pb_nf4_value_at(o.nf4, level, e);
}

/* Returns the index of the matrix in its batch. A product with NF4 weights is never batched. */
template <class B> __device__ size_t matrix_of() { return std::is_same<B, nf4>::value ? 0 : blockIdx.z; }

/* Loads rows i0 .. i0+TILE-1 and terms k0 .. k0+DEPTH-1 of an operand into tile[k][i]; elements outside the operand
 * become 0. The loads are coalesced. */
template <class T>
__device__ void stage(const operand &o, const float *level, size_t first, int i0, int n, int k0, int K,
                      float (*tile)[ROW])
{
#pragma unroll
    for (int j = 0; j < TILE * DEPTH / THREADS; j++) {
        const int at = (int)threadIdx.x + j * THREADS;
        const int i = o.k_is_row ? at % TILE : at / DEPTH, k = o.k_is_row ? at / TILE : at % DEPTH;
        const size_t row = (size_t)(i0 + i), col = (size_t)(k0 + k);
        const bool inside = i0 + i < n && k0 + k < K;
        const size_t e = first + (o.k_is_row ? col * o.ld + row : row * o.ld + col);
        tile[k][i] = inside ? element<T>(o, level, e) : 0.0f;
    }
}

__device__ void multiply(const float (*a)[ROW], const float (*b)[ROW], int ty, int tx, float (&sum)[4][4])
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        float x[4], y[4];
        pb_load_vec<float, 4>(&a[k][4 * ty], x);
        pb_load_vec<float, 4>(&b[k][4 * tx], y);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
}

template <class C> __device__ void store(const product &g, size_t first, int m, int n, float sum)
{
    if (m >= g.M || n >= g.N) return;
    const size_t at = first + (size_t)m * g.ldc + n;
    float v = g.alpha * sum;
    if (g.bias) v += g.bias[n];
    if (g.e) v += g.beta * pb_to_f32(static_cast<const C *>(g.e)[at]);
    static_cast<C *>(g.c)[at] = pb_from_f32<C>(v);
}

template <class A, class B, class C> __global__ void __launch_bounds__(THREADS) simt(const __grid_constant__ product g)
{
    __shared__ alignas(16) float a[DEPTH][ROW], b[DEPTH][ROW];
    __shared__ float level[16];
    const size_t z = matrix_of<B>();
    const int m0 = (int)blockIdx.x * TILE, n0 = (int)blockIdx.y * TILE;
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    float total[4][4] = {}, sum[4][4] = {};
    if (threadIdx.x < 16) level[threadIdx.x] = g.b.nf4.level[threadIdx.x];
    __syncthreads();
    for (int k0 = 0; k0 < g.K; k0 += DEPTH) {
        stage<A>(g.a, level, z * g.a.step, m0, g.M, k0, g.K, a);
        stage<B>(g.b, level, z * g.b.step, n0, g.N, k0, g.K, b);
        __syncthreads();
        multiply(a, b, ty, tx, sum);
        __syncthreads();
        if ((k0 + DEPTH) % PIECE && k0 + DEPTH < g.K) continue;
#pragma unroll
        for (int i = 0; i < 16; i++) total[i / 4][i % 4] += sum[i / 4][i % 4], sum[i / 4][i % 4] = 0;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) store<C>(g, z * g.step_c, m0 + 4 * ty + i, n0 + 4 * tx + j, total[i][j]);
}

operand operand_of(const pb_mat *m, bool k_is_row, size_t step)
{
    operand o = {m->p, m->ld, step, k_is_row, {}};
    if (m->nf4) o.nf4 = pb_nf4_view_of(m->p, m->nf4);
    return o;
}

template <class A, class B, class C> void launch(const product &g, int batch, cudaStream_t stream)
{
    const dim3 grid((unsigned)(g.M + TILE - 1) / TILE, (unsigned)(g.N + TILE - 1) / TILE, (unsigned)batch);
    simt<A, B, C><<<grid, THREADS, 0, stream>>>(g);
}
template <class A, class B> void launch_c(pb_dtype c, const product &g, int batch, cudaStream_t stream)
{
    if (c == PB_F32) launch<A, B, float>(g, batch, stream);
    else launch<A, B, __nv_bfloat16>(g, batch, stream);
}
template <class A> void launch_b(const pb_mat *b, pb_dtype c, const product &g, int batch, cudaStream_t stream)
{
    if (b->nf4) launch_c<A, nf4>(c, g, batch, stream);
    else if (b->dtype == PB_F32) launch_c<A, float>(c, g, batch, stream);
    else launch_c<A, __nv_bfloat16>(c, g, batch, stream);
}
} // namespace

pb_status pb_cuda_gemm_simt(pb_ctx *ctx, const pb_gemm *g)
{
    const pb_gemm_batch one = {1, 0, 0, 0};
    return pb_cuda_gemm_simt_batch(ctx, g, &one);
}

pb_status pb_cuda_gemm_simt_batch(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch)
{
    const pb_cuda_addend c = {g->accumulate ? g->c : NULL, 1};
    return pb_cuda_gemm_simt_add(ctx, g, batch, &c);
}

pb_status pb_cuda_gemm_simt_add(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch, const pb_cuda_addend *e)
{
    const product p = {operand_of(&g->a, g->a.trans, batch->a),
                       operand_of(&g->b, !g->b.trans, batch->b),
                       g->c,
                       e->p,
                       g->bias,
                       g->ldc,
                       batch->c,
                       g->M,
                       g->N,
                       g->K,
                       g->alpha,
                       e->beta};
    if (g->M == 0 || g->N == 0) return PB_OK;
    if (g->a.dtype == PB_F32) launch_b<float>(&g->b, g->c_dtype, p, batch->n, pb_cuda_stream(ctx));
    else launch_b<__nv_bfloat16>(&g->b, g->c_dtype, p, batch->n, pb_cuda_stream(ctx));
    return pb_cuda_launched(ctx, "gemm_simt");
}
