/* ceiling_device.h - the ceilings that a GPU has in other ways than a CPU: matrix products by the vendor's library
 * on data in device memory, and what one launch and one node of a graph cost at least. */
#ifndef PB_CEILING_DEVICE_H
#define PB_CEILING_DEVICE_H
#include "bench/measure/emit.h"
#include "kernels/core/op.h"

/* matmul_rate in bf16, matmul_f32_rate in true f32: 8192^3, random data, by linear_fwd's implementation `cublaslt`. */
pb_status pb_ceiling_matmul(pb_ctx *ctx, const pb_case *c, pb_sink *sink);
pb_status pb_ceiling_matmul_f32(pb_ctx *ctx, const pb_case *c, pb_sink *sink);
/* launch_time and node_time: a kernel on one element through pb_op_run, a thousand in a row, eager and as a graph. */
pb_status pb_ceiling_launch(pb_ctx *ctx, const pb_case *c, pb_sink *sink);
/* l2_reduce_rate: a row of 2 KiB added to 2^20 random ones of 16 MiB by scatter_add, every implementation of it. */
pb_status pb_ceiling_l2_reduce(pb_ctx *ctx, const pb_case *c, pb_sink *sink);
#endif
