/* nf4_linear_wgmma.cuh - the NF4 linear layer with wgmma on sm_90a: each pass is one launch (nf4_linear_wgmma.cu). */
#ifndef PB_NF4_LINEAR_WGMMA_CUH
#define PB_NF4_LINEAR_WGMMA_CUH
#include "kernels/nf4_linear/nf4_linear.h"

/* These take bf16, K a multiple of 32, N a multiple of 8 and 16-byte aligned tensors. Double-quantised scales must be
 * 4-byte aligned, and their number a multiple of 4. */
bool pb_nf4_linear_wgmma_takes_fwd(const void *args);
bool pb_nf4_linear_wgmma_takes_dx(const void *args);
pb_status pb_nf4_linear_wgmma_fwd(pb_ctx *ctx, const void *args);
pb_status pb_nf4_linear_wgmma_dx(pb_ctx *ctx, const void *args);
#endif
