/* cuda_probe.h - functions by which tests enqueue other work than ops on a GPU context's stream: kernels that spin or
 * trap, copies, and a host sync that the context does not count. */
#ifndef PB_TESTS_CUDA_PROBE_H
#define PB_TESTS_CUDA_PROBE_H
#include "kernels/engine/ctx.h"
#ifdef __cplusplus
extern "C" {
#endif
pb_status probe_spin(pb_ctx *ctx, double seconds); /* keeps ctx's stream busy for `seconds` */
pb_status probe_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes);
pb_status probe_fill(pb_ctx *ctx, void *p, int byte, size_t bytes);
/* Synchronises the stream by a direct CUDA call, which ctx does not count as a host sync. While the stream is being
 * captured, this call makes CUDA invalidate the capture. */
pb_status probe_wait(pb_ctx *ctx);
/* Launches a kernel that traps. The CUDA context of this process cannot be used afterwards. */
pb_status probe_trap(pb_ctx *ctx);
#ifdef __cplusplus
}
#endif
#endif
