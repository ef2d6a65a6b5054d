/* ceiling_device.h - ceilings that are measured differently on a GPU: matrix products by cuBLASLt, the cost of one
 * kernel launch and one graph node, and reductions in L2. */
#ifndef PB_CEILING_DEVICE_H
#define PB_CEILING_DEVICE_H
#include "bench/suites/suite_env.h"
#include "kernels/engine/op.h"

/* Emit matmul_rate in bf16 and matmul_f32_rate in true f32 (no TF32): 8192^3, random data, op linear_fwd with
 * implementation `cublaslt`. */
pb_status pb_ceiling_matmul(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
pb_status pb_ceiling_matmul_f32(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
/* Emits kernel_launch_time and node_time: the time per kernel of a thousand one-element kernels run through
 * pb_op_run(), eager and as a graph. */
pb_status pb_ceiling_kernel_launch(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
/* Emits l2_reduce_rate: a row of 2 KiB is added 2^20 times to random rows of a 16 MiB array, with each implementation
 * of op scatter_add. */
pb_status pb_ceiling_l2_reduce(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
#endif
