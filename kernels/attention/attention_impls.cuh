/* attention_impls.cuh - declares the CUDA implementations of attention. Each has its own source file; attention.cu
 * lists them. */
#ifndef PB_ATTENTION_IMPLS_CUH
#define PB_ATTENTION_IMPLS_CUH
#include "kernels/attention/attention.h"
#include "kernels/cuda/cuda.cuh"

/* The implementation simt takes any shape, stride and alignment, f32 or bf16. */
pb_status pb_attention_fwd_simt(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_simt(pb_ctx *ctx, const void *args);
/* The implementation mma takes bf16, D a multiple of 8 up to 128, 16-byte aligned rows and scale > 0. */
pb_status pb_attention_fwd_mma(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_mma(pb_ctx *ctx, const void *args);
/* The implementation wgmma takes what mma takes, but only D 64 or 128, and runs on sm_90 only. */
pb_status pb_attention_fwd_wgmma(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_wgmma(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_wgmma_ordered(pb_ctx *ctx, const void *args);
size_t pb_attention_bwd_wgmma_workspace(const void *args);

/* Enqueues one kernel that computes delta[b,h,i] = sum_d do_i o_i, for either dtype and any D. */
pb_status pb_attention_delta_cuda(pb_ctx *ctx, const pb_attention_bwd_args *a, float *delta);
#endif
