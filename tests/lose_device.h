/* lose_device.h - takes a device away while a program uses it. */
#ifndef PB_TESTS_LOSE_DEVICE_H
#define PB_TESTS_LOSE_DEVICE_H
#include "kernels/core/ctx.h"

/* From here on every call that waits for ctx's device, or gives it work, fails, and nothing brings it back. On a GPU a
 * kernel traps, which breaks the process's context; on the CPU the backend is replaced by one that refuses. */
pb_status lose_device(pb_ctx *ctx);
#endif
