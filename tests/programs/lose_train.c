/* lose_train.c - simulates the loss of the device in the program train_lost: train, linked with wrappers of pb_op_run
 * and pb_download. The device is lost before the op whose number is in the variable PB_LOSE_OP, or before the download
 * whose number is in PB_LOSE_READ. */
#include <stdlib.h>

#include "kernels/engine/op.h"
#include "tests/lose_device.h"

/* The linker's --wrap option prescribes these reserved names. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
pb_status __real_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
pb_status __real_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
pb_status __wrap_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
pb_status __wrap_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);

/* Returns true for the call whose number is in the environment variable. The device cannot be lost while a graph is
 * recorded; then the next call after the recording returns true. */
static bool due(const pb_ctx *ctx, const char *variable, long *calls)
{
    const char *at = getenv(variable);
    if (!at || ctx->planning) return false;
    if (*calls < 0 || ++*calls < atol(at) || ctx->recording) return false;
    *calls = -1; /* only once */
    return true;
}

pb_status __wrap_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args)
{
    static long calls;
    if (due(ctx, "PB_LOSE_OP", &calls)) PB_TRY(lose_device(ctx));
    return __real_pb_op_run(ctx, op, args);
}

pb_status __wrap_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes)
{
    static long calls;
    if (due(ctx, "PB_LOSE_READ", &calls)) PB_TRY(lose_device(ctx));
    return __real_pb_download(ctx, host, dev, bytes);
}
/* NOLINTEND(bugprone-reserved-identifier) */
