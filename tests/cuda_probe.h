/* cuda_probe.h - what tests enqueue on a GPU context's stream beside ops: a delay, copies, and a forbidden wait. */
#ifndef PB_TESTS_CUDA_PROBE_H
#define PB_TESTS_CUDA_PROBE_H
#include "kernels/core/ctx.h"
#ifdef __cplusplus
extern "C" {
#endif
pb_status probe_spin(pb_ctx *ctx, double seconds); /* occupies ctx's stream for so long */
pb_status probe_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes);
pb_status probe_fill(pb_ctx *ctx, void *p, int byte, size_t bytes);
/* Waits for ctx's stream behind the back of ctx: inside a capture this makes the capture invalid. */
pb_status probe_wait(pb_ctx *ctx);
/* A kernel that traps: the context of this process is broken from then on. */
pb_status probe_trap(pb_ctx *ctx);
#ifdef __cplusplus
}
#endif
#endif
