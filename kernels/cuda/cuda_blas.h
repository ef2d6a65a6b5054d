/* cuda_blas.h - matrix products on the GPU for CUDA launchers: NVIDIA's cuBLASLt, and a plain tiled kernel that takes
 * every type and alignment. Both take a pb_gemm (cpu/gemm.h) that holds device pointers. */
#ifndef PB_CUDA_BLAS_H
#define PB_CUDA_BLAS_H
#include "kernels/engine/ctx.h"
#include "kernels/cpu/gemm.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The cuBLASLt handle, its workspace and the algorithms selected so far. The CUDA backend creates and frees it. */
typedef struct pb_cuda_blas pb_cuda_blas;
pb_status pb_cuda_blas_open(pb_cuda_blas **out);
void pb_cuda_blas_close(pb_cuda_blas *b); /* b may be NULL */
size_t pb_cuda_blas_version(void);        /* 10000 * major + 100 * minor + patch */
pb_cuda_blas *pb_cuda_blas_of(const pb_ctx *ctx);

/* Enqueues C = alpha A B (+ C) (+ bias) on ctx's stream, with cuBLASLt where it takes the arguments and otherwise with
 * pb_cuda_gemm_simt. A and B are both f32 (computed in true f32, not TF32) or both bf16 with f32 sums; a bf16 C is
 * rounded once. cuBLASLt adds only a bias of C's type, so for a bf16 C the bias is first rounded to bf16, into `room`
 * (pb_cuda_bias_room(g) bytes of device memory; NULL if that is 0). Ignores g->workspace and g->serial.
 * Deterministic: one algorithm per shape, and none that uses atomics. */
pb_status pb_cuda_gemm(pb_ctx *ctx, const pb_gemm *g, void *room);
/* Like pb_cuda_gemm, for a batch of products of equal shape in one call; g->bias must be NULL. */
pb_status pb_cuda_gemm_batch(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch);
/* A matrix that is added to a product, times a factor: C = alpha A B + beta E. E has the type, the rows and the batch
 * steps of C; it may be C itself, and must not overlap it otherwise. p NULL: nothing is added. g->accumulate must be
 * false. */
typedef struct pb_cuda_addend {
    const void *p;
    float beta;
} pb_cuda_addend;
pb_status pb_cuda_gemm_add(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch, const pb_cuda_addend *e);
size_t pb_cuda_bias_room(const pb_gemm *g);

/* Computes the same products as pb_cuda_gemm with a tiled kernel that uses FMA instructions only. It takes any mixture
 * of types and any alignment; B may be NF4. Sums are f32: runs of 256 terms are summed separately and then added. */
pb_status pb_cuda_gemm_simt(pb_ctx *ctx, const pb_gemm *g);
pb_status pb_cuda_gemm_simt_batch(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch); /* B must not be NF4 */
pb_status pb_cuda_gemm_simt_add(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch, const pb_cuda_addend *e);

#ifdef __cplusplus
}
#endif
#endif
