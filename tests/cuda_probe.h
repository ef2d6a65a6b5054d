/* cuda_probe.h - what tests enqueue on a GPU context's stream besides ops: a delay, copies, a hidden host sync, a
 * trap. */
#ifndef PB_TESTS_CUDA_PROBE_H
#define PB_TESTS_CUDA_PROBE_H
#include "kernels/engine/ctx.h"
#ifdef __cplusplus
extern "C" {
#endif
pb_status probe_spin(pb_ctx *ctx, double seconds); /* keeps ctx's stream busy for `seconds` */
pb_status probe_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes);
pb_status probe_fill(pb_ctx *ctx, void *p, int byte, size_t bytes);
/* Synchronises the stream without ctx noticing it. Inside a capture, CUDA then invalidates the capture. */
pb_status probe_wait(pb_ctx *ctx);
/* Launches a kernel that traps. The CUDA context of this process cannot be used afterwards. */
pb_status probe_trap(pb_ctx *ctx);
#ifdef __cplusplus
}
#endif
#endif
