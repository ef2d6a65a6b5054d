/* lose_device.h - simulates the loss of a device while a program uses it. */
#ifndef PB_TESTS_LOSE_DEVICE_H
#define PB_TESTS_LOSE_DEVICE_H
#include "kernels/engine/ctx.h"

/* Makes the device unusable for the rest of the process: every later call that gives ctx's device work, or synchronises
 * with it, fails. On a GPU a kernel traps, which breaks the CUDA context; on the CPU the backend is replaced by one
 * that refuses every call. */
pb_status lose_device(pb_ctx *ctx);
#endif
