/* lose_device.c - simulates the loss of a device (lose_device.h): on a GPU by a kernel that traps, on the CPU by a
 * backend whose calls all fail. */
#include "tests/lose_device.h"

#include "tests/cuda_probe.h"

static pb_status gone(void) { return pb_fail(PB_EDEVICE, "taken away on purpose"); }

static pb_status alloc(pb_ctx *ctx, size_t bytes, void **out)
{
    (void)ctx, (void)bytes, (void)out;
    return gone();
}
static pb_status upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    (void)ctx, (void)dev, (void)host, (void)bytes;
    return gone();
}
static pb_status download(pb_ctx *ctx, void *host, const void *dev, size_t bytes)
{
    (void)ctx, (void)host, (void)dev, (void)bytes;
    return gone();
}
static pb_status copy(pb_ctx *ctx, void *to, const void *from, size_t bytes)
{
    (void)ctx, (void)to, (void)from, (void)bytes;
    return gone();
}
static pb_status sync(pb_ctx *ctx)
{
    (void)ctx;
    return gone();
}
static pb_status record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    (void)ctx, (void)fn, (void)self, (void)out;
    return gone();
}
static pb_status replay(pb_ctx *ctx, pb_graph *graph)
{
    (void)ctx, (void)graph;
    return gone();
}

pb_status lose_device(pb_ctx *ctx)
{
    static pb_backend lost;
    if (ctx->id == PB_CUDA) return probe_trap(ctx);
    lost = *ctx->be;
    lost.alloc = alloc, lost.upload = lost.upload_staged = upload, lost.download = download, lost.copy = copy;
    lost.sync = sync, lost.record = record, lost.replay = replay;
    ctx->be = &lost;
    return PB_OK;
}
