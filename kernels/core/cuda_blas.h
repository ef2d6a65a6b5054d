/* cuda_blas.h - matrix products for CUDA launchers: the vendor's cuBLASLt with a workspace of ctx's own, and one plain
 * kernel that takes everything. Both take the description of gemm.h, on device pointers. */
#ifndef PB_CUDA_BLAS_H
#define PB_CUDA_BLAS_H
#include "kernels/core/ctx.h"
#include "kernels/core/gemm.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The library's handle, its workspace and the algorithms chosen so far. Made and freed by the backend. */
typedef struct pb_cuda_blas pb_cuda_blas;
pb_status pb_cuda_blas_open(pb_cuda_blas **out);
void pb_cuda_blas_close(pb_cuda_blas *b); /* NULL is fine */
size_t pb_cuda_blas_version(void);        /* 10000 * major + 100 * minor + patch */
pb_cuda_blas *pb_cuda_blas_of(const pb_ctx *ctx);

/* Enqueues C = alpha A B (+ C) (+ bias) on ctx's stream. A and B are both f32, computed in true f32, or both bf16 with
 * sums in f32; a bf16 C is rounded once. The library adds a bias of C's type only: with a bf16 C and a bias, `room` is
 * pb_cuda_bias_room bytes of device memory where the bias is rounded to bf16 first; else it may be NULL. `workspace`
 * and `serial` of g are not read. Deterministic: one algorithm a shape, none with atomics. What the library does not
 * take goes to pb_cuda_gemm_simt. */
pb_status pb_cuda_gemm(pb_ctx *ctx, const pb_gemm *g, void *room);
/* A batch of them in one call; without a bias. */
pb_status pb_cuda_gemm_batch(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch);
size_t pb_cuda_bias_room(const pb_gemm *g);

/* The same by a tiled kernel on the ordinary arithmetic units: any types and mixture of them, any alignment, B also in
 * NF4. Sums are f32 in pieces of 256. */
pb_status pb_cuda_gemm_simt(pb_ctx *ctx, const pb_gemm *g);
pb_status pb_cuda_gemm_simt_batch(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch); /* B not in NF4 */

#ifdef __cplusplus
}
#endif
#endif
