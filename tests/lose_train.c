/* lose_train.c - linked into train as train_lost with pb_op_run and pb_download wrapped: the device is lost before the
 * op, or the read by the host, whose number PB_LOSE_OP or PB_LOSE_READ says. */
#include <stdlib.h>

#include "kernels/core/op.h"
#include "tests/lose_device.h"

/* The linker's --wrap gives these names, reserved ones. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
pb_status __real_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
pb_status __real_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);
pb_status __wrap_pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
pb_status __wrap_pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes);

/* Whether this is the call that the variable names; a recording cannot hold the loss, so the next call after it is. */
static bool due(const pb_ctx *ctx, const char *variable, long *calls)
{
    const char *at = getenv(variable);
    if (!at || ctx->planning) return false;
    if (*calls < 0 || ++*calls < atol(at) || ctx->recording) return false;
    *calls = -1; /* once */
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
