/* attention_impls.cuh - the CUDA implementations of attention, each in its own file; attention.cu lists them. */
#ifndef PB_ATTENTION_IMPLS_CUH
#define PB_ATTENTION_IMPLS_CUH
#include "kernels/attention/attention.h"
#include "kernels/core/cuda.cuh"

/* Any shape, stride and alignment, f32 or bf16. */
pb_status pb_attention_fwd_simt(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_simt(pb_ctx *ctx, const void *args);
/* bf16, D a multiple of 8 up to 128, everything 16-byte aligned, scale > 0. */
pb_status pb_attention_fwd_mma(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_mma(pb_ctx *ctx, const void *args);
/* The same with D 64 or 128, on sm_90. */
pb_status pb_attention_fwd_wgmma(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_wgmma(pb_ctx *ctx, const void *args);
pb_status pb_attention_bwd_wgmma_ordered(pb_ctx *ctx, const void *args);
size_t pb_attention_bwd_wgmma_workspace(const void *args);

/* Enqueues delta[b,h,i] = sum_d do_i o_i: one launch, either dtype, any D. */
pb_status pb_attention_delta_cuda(pb_ctx *ctx, const pb_attention_bwd_args *a, float *delta);

/* Lets a kernel have `bytes` of dynamic shared memory, which more than 48 KB must ask for. */
template <class K> static inline pb_status pb_attention_smem(K *kernel, size_t bytes)
{
    PB_CUDA_TRY(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PB_OK;
}
#endif
