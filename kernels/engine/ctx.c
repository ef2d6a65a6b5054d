/* ctx.c - opens a backend, and calls its functions: it counts these calls, and refuses those that a recorded graph
 * cannot contain. */
#include "kernels/engine/ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/where.h"
#include "profiles/ranges.h"

static const pb_backend *const backends[PB_NBACKENDS] = {
    [PB_CPU] = &pb_backend_cpu,
    [PB_CUDA] = &pb_backend_cuda,
};

typedef struct block {
    struct block *next;
    void *p;
    size_t bytes;            /* used in ctx->allocations only */
    pb_memory_source source; /* used in ctx->allocations only; zeros: the backend */
} block;

const char *pb_backend_name(pb_backend_id id) { return backends[id]->name; }

pb_status pb_backend_find(const char *name, pb_backend_id *out)
{
    for (int i = 0; i < PB_NBACKENDS; i++)
        if (strcmp(name, backends[i]->name) == 0) {
            *out = (pb_backend_id)i;
            return PB_OK;
        }
    return pb_fail(PB_EINVAL, "device '%s' is not one of cpu, cuda", name);
}

pb_status pb_device_find(const char *text, pb_backend_id *id, int *number)
{
    const char *colon = strchr(text, ':');
    char name[16], *end = NULL;
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    PB_TRY(pb_backend_find(name, id));
    *number = 0;
    if (!colon) return PB_OK;
    const long v = colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
    if (*id == PB_CPU || v < 0 || v > 99999 || *end)
        return pb_fail(PB_EINVAL, "device '%.60s' is not one of cpu, cuda, cuda:N with a number N", text);
    *number = (int)v;
    return PB_OK;
}

/* Reads PB_DEBUG, words separated by commas. */
static pb_status read_debug(const char *text, unsigned *out)
{
    for (*out = 0; text && *text; text += *text == ',') {
        const size_t n = strcspn(text, ",");
        if (n == 4 && strncmp(text, "sync", n) == 0) *out |= PB_DEBUG_SYNC;
        else if (n == 5 && strncmp(text, "trace", n) == 0) *out |= PB_DEBUG_TRACE;
        else return pb_fail(PB_EINVAL, "PB_DEBUG: '%.*s' is not one of sync, trace", n < 60 ? (int)n : 60, text);
        text += n;
    }
    return PB_OK;
}

pb_status pb_ctx_open(pb_ctx *ctx, pb_backend_id id, int device)
{
    unsigned debug;
    *ctx = (pb_ctx){0};
    PB_TRY(read_debug(getenv("PB_DEBUG"), &debug));
    *ctx = (pb_ctx){.be = backends[id], .id = id, .debug = debug};
    pb_ranges_start();
    const pb_status s = ctx->be->open(ctx, device);
    if (s != PB_OK) *ctx = (pb_ctx){0};
    return s;
}

/* Names are compared as text: the same literal may have several addresses. */
void pb_tally_add(pb_tally *t, const char *op, const char *impl)
{
    int i = 0;
    if (!t) return;
    while (i < t->n && (strcmp(t->name[i].op, op) != 0 || strcmp(t->name[i].impl, impl) != 0)) i++;
    if (i == PB_TALLY_MOST) {
        t->lost++;
        return;
    }
    if (i == t->n) t->name[t->n++] = (struct pb_tally_name){.op = op, .impl = impl};
    t->name[i].count++;
}

void pb_ctx_release_scratch(pb_ctx *ctx)
{
    for (block *b = ctx->scratch_blocks, *next; b; b = next) {
        next = b->next;
        pb_release(ctx, b->p);
        free(b);
    }
    ctx->scratch = ctx->scratch_blocks = NULL;
    ctx->scratch_bytes = 0;
}

void pb_ctx_close(pb_ctx *ctx)
{
    pb_ctx_release_scratch(ctx);
    for (block *b = ctx->allocations, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    ctx->be->close(ctx);
    *ctx = (pb_ctx){0};
}

static pb_status not_recording(const pb_ctx *ctx, const char *what)
{
    if (!ctx->recording) return PB_OK;
    return pb_fail(PB_EUNSUPPORTED, "%s cannot be recorded into a graph", what);
}

pb_status pb_alloc(pb_ctx *ctx, size_t bytes, void **out) { return pb_alloc_from(ctx, NULL, bytes, out); }

pb_status pb_alloc_from(pb_ctx *ctx, const pb_memory_source *source, size_t bytes, void **out)
{
    PB_TRY(not_recording(ctx, "an allocation"));
    block *b = malloc(sizeof *b);
    if (!b) return pb_fail(PB_ENOMEM, "no memory for the list of allocations");
    const pb_status s = source ? source->alloc(source->self, bytes, out) : ctx->be->alloc(ctx, bytes, out);
    if (s != PB_OK) {
        free(b);
        return s;
    }
    *b = (block){ctx->allocations, *out, bytes, source ? *source : (pb_memory_source){0}};
    ctx->allocations = b;
    ctx->held += bytes;
    if (ctx->held > ctx->held_peak) ctx->held_peak = ctx->held;
    ctx->counts.allocs++;
    return PB_OK;
}

/* Removes p from the list of allocations; returns its source. */
static pb_memory_source forget(pb_ctx *ctx, const void *p)
{
    block *before = NULL, *b = ctx->allocations;
    for (; b && b->p != p; b = b->next) before = b;
    if (!b) return (pb_memory_source){0};
    const pb_memory_source source = b->source;
    if (before) before->next = b->next;
    else ctx->allocations = b->next;
    ctx->held -= b->bytes;
    free(b);
    return source;
}

void pb_release(pb_ctx *ctx, void *p)
{
    if (!p) return;
    const pb_memory_source source = forget(ctx, p);
    if (source.release) source.release(source.self, p);
    else ctx->be->release(ctx, p);
}

void pb_held_reset(pb_ctx *ctx) { ctx->held_peak = ctx->held; }
size_t pb_plan_peak(const pb_ctx *ctx) { return ctx->held_peak; }

pb_status pb_device_used(pb_ctx *ctx, size_t *bytes)
{
    if (!ctx->be->used)
        return pb_fail(PB_EUNSUPPORTED, "%s: this backend does not report the device memory in use", ctx->be->name);
    return ctx->be->used(ctx, bytes);
}

pb_status pb_backend_facts(pb_backend_id id, int device, pb_device_facts *out)
{
    if (!backends[id]->facts)
        return pb_fail(PB_EUNSUPPORTED, "%s: this backend does not describe its device", backends[id]->name);
    return backends[id]->facts(device, out);
}

pb_status pb_ctx_reserve(pb_ctx *ctx, size_t bytes)
{
    if (ctx->asking && bytes > ctx->scratch_asked) ctx->scratch_asked = bytes;
    if (ctx->asking || bytes <= ctx->scratch_bytes) return PB_OK;
    if (ctx->recording)
        return pb_fail(PB_EUNSUPPORTED,
                       "an op needs %zu bytes of scratch memory, but %zu are reserved: run it once before recording",
                       bytes, ctx->scratch_bytes);
    block *b = malloc(sizeof *b);
    if (!b) return pb_fail(PB_ENOMEM, "no memory for the list of scratch blocks");
    pb_status s = pb_alloc(ctx, bytes, &b->p);
    if (s != PB_OK) {
        free(b);
        return s;
    }
    b->next = ctx->scratch_blocks;
    ctx->scratch_blocks = b;
    ctx->scratch = b->p;
    ctx->scratch_bytes = bytes;
    return PB_OK;
}

pb_status pb_ctx_reserve_once(pb_ctx *ctx, pb_status (*fn)(pb_ctx *ctx, void *self), void *self)
{
    const bool planning = ctx->planning;
    ctx->scratch_asked = 0;
    ctx->planning = ctx->asking = true;
    const pb_status s = fn(ctx, self);
    ctx->planning = planning;
    ctx->asking = false;
    return s == PB_OK ? pb_ctx_reserve(ctx, ctx->scratch_asked) : s;
}

/* A host sync of a GPU with collectives may wait for other ranks, so the monitor must know of it. */
static void wait_begins(const pb_ctx *ctx)
{
    if (ctx->collectives) pb_where_device(true);
}

static pb_status wait_ends(const pb_ctx *ctx, pb_status s)
{
    if (ctx->collectives && s == PB_OK)
        pb_where_device(false); /* after a failure it stays, for the monitor's message */
    return s;
}

pb_status pb_upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    PB_TRY(not_recording(ctx, "a copy from the host"));
    ctx->counts.host_syncs += bytes > 0;
    wait_begins(ctx);
    return wait_ends(ctx, ctx->be->upload(ctx, dev, host, bytes));
}

pb_status pb_upload_staged(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    PB_TRY(not_recording(ctx, "a copy from the host"));
    if (bytes > PB_STAGED_MOST)
        return pb_fail(PB_EINVAL, "%zu bytes are too many for a staged upload of at most %d", bytes, PB_STAGED_MOST);
    return ctx->be->upload_staged(ctx, dev, host, bytes);
}

pb_status pb_download(pb_ctx *ctx, void *host, const void *dev, size_t bytes)
{
    PB_TRY(not_recording(ctx, "a host read"));
    ctx->counts.host_syncs++;
    wait_begins(ctx);
    return wait_ends(ctx, ctx->be->download(ctx, host, dev, bytes));
}

pb_status pb_copy(pb_ctx *ctx, void *to, const void *from, size_t bytes)
{
    PB_TRY(not_recording(ctx, "a copy outside an op"));
    return ctx->be->copy(ctx, to, from, bytes);
}

pb_status pb_zero(pb_ctx *ctx, void *dev, size_t bytes)
{
    PB_TRY(not_recording(ctx, "clearing memory outside an op"));
    return ctx->be->zero(ctx, dev, bytes);
}

pb_status pb_sync(pb_ctx *ctx)
{
    PB_TRY(not_recording(ctx, "a host sync"));
    ctx->counts.host_syncs++;
    wait_begins(ctx);
    return wait_ends(ctx, ctx->be->sync(ctx));
}

pb_status pb_device_check(pb_ctx *ctx)
{
    char first[400];
    snprintf(first, sizeof first, "%s", pb_error());
    if (ctx->be->sync(ctx) == PB_OK) return PB_OK;
    return pb_fail(PB_EDEVICE, "the device is lost: %s", first);
}

pb_status pb_record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    PB_TRY(not_recording(ctx, "a recording"));
    ctx->recording = true;
    pb_status s = ctx->be->record(ctx, fn, self, out);
    ctx->recording = false;
    return s;
}

pb_status pb_replay(pb_ctx *ctx, void *graph)
{
    PB_TRY(not_recording(ctx, "a replay"));
    ctx->counts.kernel_launches++;
    if (!ctx->collectives) return ctx->be->replay(ctx, graph);
    pb_where_collective("graph", pb_where_sequence() + 1); /* the collectives of a graph count as one */
    return wait_ends(ctx, ctx->be->replay(ctx, graph));
}

size_t pb_graph_nodes(pb_ctx *ctx, const pb_graph *graph) { return ctx->be->graph_nodes(graph); }

pb_status pb_graph_resources(pb_ctx *ctx, const pb_graph *graph, pb_kernel_resources *out)
{
    *out = (pb_kernel_resources){0};
    if (!ctx->be->graph_resources) return pb_fail(PB_EUNSUPPORTED, "%s launches no kernels of a GPU", ctx->be->name);
    return ctx->be->graph_resources(graph, out);
}

pb_status pb_graph_trace(pb_ctx *ctx, pb_graph *graph, pb_graph_node_fn node)
{
    PB_TRY(not_recording(ctx, "attaching a profiler"));
    return ctx->be->trace ? ctx->be->trace(ctx, graph, node) : PB_OK;
}

void pb_graph_free(pb_ctx *ctx, pb_graph *graph)
{
    if (graph) ctx->be->graph_free(graph);
}
