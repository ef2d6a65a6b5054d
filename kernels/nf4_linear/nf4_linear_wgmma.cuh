/* nf4_linear_wgmma.cuh - both passes as one launch on the tensor cores of sm_90a, in nf4_linear_wgmma.cu. */
#ifndef PB_NF4_LINEAR_WGMMA_CUH
#define PB_NF4_LINEAR_WGMMA_CUH
#include "kernels/nf4_linear/nf4_linear.h"

/* bf16, K a multiple of 32, N of 8, everything aligned to 16 bytes, double-quantised scales to 4, their number too. */
bool pb_nf4_linear_wgmma_takes_fwd(const void *args);
bool pb_nf4_linear_wgmma_takes_dx(const void *args);
pb_status pb_nf4_linear_wgmma_fwd(pb_ctx *ctx, const void *args);
pb_status pb_nf4_linear_wgmma_dx(pb_ctx *ctx, const void *args);
#endif
