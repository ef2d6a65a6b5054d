/* dynmask_attention_impls.cuh - declares the CUDA implementations of dynmask_attention. Each has its own source files;
 * dynmask_attention.cu lists them. */
#ifndef PB_DYNMASK_ATTENTION_IMPLS_CUH
#define PB_DYNMASK_ATTENTION_IMPLS_CUH
#include "kernels/cuda/cuda.cuh"
#include "kernels/dynmask_attention/dynmask_attention.h"

/* The implementation wgmma takes bf16, D 64 or 128 and 16-byte aligned rows, and runs on sm_90 only. */
pb_status pb_dynmask_attention_fwd_wgmma(pb_ctx *ctx, const void *args);
pb_status pb_dynmask_attention_bwd_wgmma(pb_ctx *ctx, const void *args);
size_t pb_dynmask_attention_fwd_wgmma_workspace(const void *args);
size_t pb_dynmask_attention_bwd_wgmma_workspace(const void *args);
/* dq of the backward pass, which calls it after it has prepared its workspace. */
pb_status pb_dynmask_attention_dq_wgmma(pb_ctx *ctx, const pb_dynmask_attention_bwd_args *a);
#endif
