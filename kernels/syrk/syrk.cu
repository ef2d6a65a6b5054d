/* syrk.cu - the symmetric product on a GPU. The kernel for sm_90a is in syrk_wgmma.cu. The other two implementations
 * compute the whole product, with cuBLASLt or FMA instructions, and then copy the lower triangle over the upper one, so
 * that C is exactly symmetric. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/cuda_blas.h"
#include "kernels/syrk/syrk_cuda.h"

namespace
{
enum { SIDE = 32, ROWS = 8 }; /* a CTA of SIDE x ROWS threads copies a square of SIDE x SIDE elements */

/* Copies the square in row `row` and column `col` of squares, row >= col, to its mirror image. Grid: x = squares on and
 * below the diagonal, y = matrices. */
template <class T> __global__ void __launch_bounds__(SIDE *ROWS) mirror(T *c, int M)
{
    __shared__ T square[SIDE][SIDE + 1];
    const int x = (int)blockIdx.x;
    int row = (int)((sqrtf(8.0f * (float)x + 1) - 1) / 2);
    while (row * (row + 1) / 2 > x) row--;
    while ((row + 1) * (row + 2) / 2 <= x) row++;
    const int col = x - row * (row + 1) / 2;
    T *const matrix = c + (size_t)blockIdx.y * M * M;
    for (int k = (int)threadIdx.y; k < SIDE; k += ROWS) {
        const int i = row * SIDE + k, j = col * SIDE + (int)threadIdx.x;
        if (i < M && j < i) square[k][threadIdx.x] = matrix[(size_t)i * M + j];
    }
    __syncthreads();
    for (int k = (int)threadIdx.y; k < SIDE; k += ROWS) {
        const int i = row * SIDE + (int)threadIdx.x, j = col * SIDE + k;
        if (i < M && j < i) matrix[(size_t)j * M + i] = square[threadIdx.x][k];
    }
}

template <class T> pb_status mirror_all(pb_ctx *ctx, const pb_syrk_product_args *a)
{
    const unsigned side = (unsigned)(a->M + SIDE - 1) / SIDE;
    const dim3 grid(side * (side + 1) / 2, (unsigned)a->n), block(SIDE, ROWS);
    mirror<<<grid, block, 0, pb_cuda_stream(ctx)>>>(static_cast<T *>(a->c), a->M);
    return pb_cuda_launched(ctx, "syrk mirror");
}

typedef pb_status product_fn(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch, const pb_cuda_addend *add);

pb_status whole(pb_ctx *ctx, const pb_syrk_product_args *a, product_fn *product)
{
    const size_t M = (size_t)a->M, K = (size_t)a->K, ld = a->trans ? M : K;
    const pb_mat x = {.p = a->x, .ld = ld, .dtype = a->dtype, .trans = a->trans};
    pb_gemm g = {.M = a->M, .N = a->M, .K = a->K, .a = x, .b = x};
    g.b.trans = !a->trans;
    g.c = a->c, g.ldc = M, g.c_dtype = a->c_dtype, g.alpha = a->alpha;
    const pb_gemm_batch batch = {a->n, M * K, M * K, M * M};
    const pb_cuda_addend add = {a->add, a->beta};
    if (!a->n || !a->M) return PB_OK;
    PB_TRY(product(ctx, &g, &batch, &add));
    return PB_CUDA_BY_DTYPE(a->c_dtype, mirror_all, ctx, a);
}

pb_status run_cublaslt(pb_ctx *ctx, const void *args)
{
    return whole(ctx, static_cast<const pb_syrk_product_args *>(args), pb_cuda_gemm_add);
}
pb_status run_simt(pb_ctx *ctx, const void *args)
{
    return whole(ctx, static_cast<const pb_syrk_product_args *>(args), pb_cuda_gemm_simt_add);
}
} // namespace

pb_status pb_syrk_cuda(pb_ctx *ctx, const pb_syrk_product_args *a)
{
    const bool wgmma = pb_cuda_has_sm90() && pb_syrk_wgmma_takes(a);
    return wgmma ? pb_syrk_wgmma(ctx, a) : run_cublaslt(ctx, a);
}
pb_status pb_syrk_cuda_simt(pb_ctx *ctx, const pb_syrk_product_args *a) { return run_simt(ctx, a); }

extern "C" const pb_impl pb_syrk_product_cuda[] = {
    {.name = "wgmma", .run = pb_syrk_wgmma, .accepts = pb_syrk_wgmma_takes, .available = pb_cuda_has_sm90},
    {.name = "cublaslt", .run = run_cublaslt},
    {.name = "simt", .run = run_simt},
    {0}};
