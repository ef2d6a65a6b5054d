/* nf4_linear_wgmma.cuh - declares both passes of nf4_linear on the tensor cores of sm_90a, in two kernels: W decoded to
 * shared memory (nf4_linear_wgmma.cu), and W decoded to registers (nf4_linear_registers.cu). */
#ifndef PB_NF4_LINEAR_WGMMA_CUH
#define PB_NF4_LINEAR_WGMMA_CUH
#include "kernels/nf4_linear/nf4_linear.h"

/* Return true if both kernels take the arguments: bf16, K % 32 == 0, N % 8 == 0, tensors 16-byte aligned. With double
 * quantisation absmax_q must be 4-byte aligned and the number of scales a multiple of 4. */
bool pb_nf4_linear_wgmma_takes_fwd(const void *args);
bool pb_nf4_linear_wgmma_takes_dx(const void *args);
pb_status pb_nf4_linear_wgmma_fwd(pb_ctx *ctx, const void *args);
pb_status pb_nf4_linear_wgmma_dx(pb_ctx *ctx, const void *args);
pb_status pb_nf4_linear_registers_fwd(pb_ctx *ctx, const void *args);
pb_status pb_nf4_linear_registers_dx(pb_ctx *ctx, const void *args);
#endif
