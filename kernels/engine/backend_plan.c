/* backend_plan.c - the plan backend: it returns addresses without memory, so that the memory that a run needs can be
 * computed without a device. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/ctx.h"
#include "kernels/engine/gpu_check.h"

typedef struct plan_state {
    uintptr_t next; /* address of the next allocation */
} plan_state;

/* No user program can access addresses from 2^63 on, so an op that computes by mistake faults at once. Nothing is
 * mapped: a plan may be larger than the memory limit of this process. */
static const uintptr_t first_address = (uintptr_t)1 << 63;

static void plan_close(pb_ctx *ctx) { free(ctx->priv); }

static pb_status plan_alloc(pb_ctx *ctx, size_t bytes, void **out)
{
    enum { ALIGN = 256 };
    plan_state *s = ctx->priv;
    if (bytes > UINTPTR_MAX - s->next - 2 * ALIGN)
        return pb_fail(PB_ENOMEM, "plan: an allocation of %zu bytes exceeds the address space", bytes);
    _Static_assert(sizeof *out == sizeof s->next, "a pointer and uintptr_t have the same size");
    memcpy(out, &s->next, sizeof *out);
    s->next += (bytes / ALIGN + 1) * ALIGN;
    return PB_OK;
}

static void plan_release(pb_ctx *ctx, void *p) { (void)ctx, (void)p; }

static pb_status plan_upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    (void)ctx, (void)dev, (void)host, (void)bytes;
    return PB_OK;
}

static pb_status plan_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes)
{
    (void)ctx, (void)dev;
    if (bytes) memset(host, 0, bytes);
    return PB_OK;
}

static pb_status plan_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes)
{
    (void)ctx, (void)to, (void)from, (void)bytes;
    return PB_OK;
}

static pb_status plan_zero(pb_ctx *ctx, void *dev, size_t bytes)
{
    (void)ctx, (void)dev, (void)bytes;
    return PB_OK;
}

static pb_status plan_nothing(pb_ctx *ctx)
{
    (void)ctx;
    return PB_OK;
}

static pb_status plan_mark(pb_ctx *ctx, int slot)
{
    (void)ctx, (void)slot;
    return PB_OK;
}

static pb_status plan_delay(pb_ctx *ctx, double seconds)
{
    (void)ctx, (void)seconds;
    return PB_OK;
}

static pb_status plan_between(pb_ctx *ctx, int from, int to, double *seconds)
{
    (void)ctx, (void)from, (void)to;
    *seconds = 0;
    return PB_OK;
}

static pb_status plan_record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    (void)ctx, (void)fn, (void)self, (void)out;
    return pb_fail(PB_EUNSUPPORTED, "the plan backend cannot record a graph");
}

static pb_status plan_replay(pb_ctx *ctx, pb_graph *graph)
{
    (void)ctx, (void)graph;
    return pb_fail(PB_EUNSUPPORTED, "the plan backend cannot replay a graph");
}

static size_t plan_nodes(const pb_graph *graph)
{
    (void)graph;
    return 0;
}

static void plan_graph_free(pb_graph *graph) { (void)graph; }

/* A plan backend runs a step without computing, to find how much memory it needs on a device. It has the name of that
 * device's backend, so that messages and rows name the device. */
#define PLAN(word)                                                                                                     \
    {                                                                                                                  \
        .name = word, .close = plan_close, .alloc = plan_alloc, .release = plan_release, .upload = plan_upload,        \
        .upload_staged = plan_upload, .download = plan_download, .copy = plan_copy, .zero = plan_zero,                 \
        .sync = plan_nothing, .mark = plan_mark, .between = plan_between, .flush_cache = plan_nothing,                 \
        .delay = plan_delay, .record = plan_record, .replay = plan_replay, .graph_nodes = plan_nodes,                  \
        .graph_free = plan_graph_free,                                                                                 \
    }
static const pb_backend plans[PB_NBACKENDS] = {[PB_CPU] = PLAN("cpu"), [PB_CUDA] = PLAN("cuda")};

pb_status pb_ctx_open_plan(pb_ctx *ctx, pb_backend_id id)
{
    int capability;
    PB_TRY(pb_gpu_assumed(&capability)); /* so that a wrong PB_CAPABILITY is reported before anything else */
    plan_state *s = calloc(1, sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "no memory for the state of the plan backend");
    s->next = first_address;
    *ctx = (pb_ctx){.be = &plans[id], .id = id, .planning = true, .priv = s};
    return PB_OK;
}
