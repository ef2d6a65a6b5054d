/* comm.cuh - the local kernels of collectives, which nccl.cu enqueues on a communicator's stream. */
#ifndef PB_COMM_CUH
#define PB_COMM_CUH
#include "kernels/comm/comm.h"
#include "kernels/cuda/cuda.cuh"

/* y[i] = x[0][i] + x[1][i] + ... (or max) over `blocks` blocks of `count` elements of f32 or bf16, in this order, in
 * f32. */
pb_status pb_comm_cuda_add(pb_ctx *ctx, cudaStream_t stream, const void *x, void *y, int blocks, size_t count,
                           pb_dtype t, pb_comm_op op);
/* y[i] = x[i] != 0 as 0 or 1; f32 and i32. */
pb_status pb_comm_cuda_flags(pb_ctx *ctx, cudaStream_t stream, const void *x, pb_dtype xt, void *y, pb_dtype yt,
                             size_t count);
#endif
