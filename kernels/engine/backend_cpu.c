/* backend_cpu.c - the CPU as a device: work runs at once, and a graph is a list of op calls. */
#define _DEFAULT_SOURCE
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/engine/clock.h"
#include "kernels/engine/recording.h"
#include "profiles/ranges.h"

typedef struct cpu_state {
    double at[PB_MARK_SLOTS]; /* seconds */
    unsigned char *flush;
} cpu_state;

/* Bytes that flush_cache reads and writes: more than the share of the last-level cache that one process usually
 * gets. */
static const size_t flush_bytes = (size_t)64 << 20;
static const size_t huge_page = (size_t)2 << 20;

typedef struct node {
    const pb_op *op; /* NULL: no op, but a timestamp or a delay */
    const pb_impl *impl;
    void *args;
    int slot;             /* of the timestamp; -1: a delay */
    double delay;         /* seconds */
    pb_range_stack place; /* the ranges that were open when it was recorded, and the layer */
    int64_t layer;
} node;

struct pb_graph {
    node *nodes;
    size_t n, room;
};

static pb_status cpu_open(pb_ctx *ctx, int device)
{
    if (device != 0) return pb_fail(PB_EDEVICE, "cpu: device %d does not exist, the only device is 0", device);
    ctx->priv = calloc(1, sizeof(cpu_state));
    return ctx->priv ? PB_OK : pb_fail(PB_ENOMEM, "cpu: no memory for the state of the backend");
}

static void cpu_release(pb_ctx *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static void cpu_close(pb_ctx *ctx)
{
    cpu_state *s = ctx->priv;
    if (s) free(s->flush);
    free(s);
}

static pb_status cpu_alloc(pb_ctx *ctx, size_t bytes, void **out)
{
    size_t align = bytes >= 2 * huge_page ? huge_page : 256;
    (void)ctx;
    if (bytes > SIZE_MAX - align) return pb_fail(PB_ENOMEM, "cpu: out of memory: %zu bytes requested", bytes);
    *out = aligned_alloc(align, (bytes + align - 1) / align * align + (bytes ? 0 : align));
    if (!*out) return pb_fail(PB_ENOMEM, "cpu: out of memory: %zu bytes requested", bytes);
    /* Huge pages for large arenas: a training step touches gigabytes, and with 4 KB pages nearly every cache line would
     * miss the TLB. If madvise fails, the memory is only slower. */
    if (align == huge_page) (void)madvise(*out, bytes, MADV_HUGEPAGE);
    return PB_OK;
}

static pb_status cpu_copy(pb_ctx *ctx, void *to, const void *from, size_t n)
{
    (void)ctx;
    if (n) memcpy(to, from, n);
    return PB_OK;
}

/* Copies with all threads, in chunks of 4 MiB: one core alone does not reach the memory bandwidth. */
static pb_status cpu_copy_within(pb_ctx *ctx, void *to, const void *from, size_t n)
{
    const size_t part = (size_t)4 << 20;
    (void)ctx;
#pragma omp parallel for schedule(static) if (n > part)
    for (size_t i = 0; i < n; i += part) memcpy((char *)to + i, (const char *)from + i, n - i < part ? n - i : part);
    return PB_OK;
}

/* Zeroes with all threads, in chunks of 4 MiB. New memory gets its pages here, which costs more than writing it: a
 * model's gigabytes take a single thread seconds. */
static pb_status cpu_zero(pb_ctx *ctx, void *p, size_t n)
{
    const size_t part = (size_t)4 << 20;
    (void)ctx;
#pragma omp parallel for schedule(static) if (n > part)
    for (size_t i = 0; i < n; i += part) memset((char *)p + i, 0, n - i < part ? n - i : part);
    return PB_OK;
}

static pb_status cpu_sync(pb_ctx *ctx)
{
    (void)ctx;
    return PB_OK;
}

static pb_status cpu_between(pb_ctx *ctx, int from, int to, double *seconds)
{
    const cpu_state *s = ctx->priv;
    *seconds = s->at[to % PB_MARK_SLOTS] - s->at[from % PB_MARK_SLOTS];
    return PB_OK;
}

static pb_status cpu_flush(pb_ctx *ctx)
{
    cpu_state *s = ctx->priv;
    if (!s->flush) s->flush = calloc(1, flush_bytes);
    if (!s->flush) return pb_fail(PB_ENOMEM, "cpu: no memory for the buffer that flushes the cache");
#pragma omp parallel for
    for (size_t i = 0; i < flush_bytes; i += 64) s->flush[i]++;
    return PB_OK;
}

static void cpu_graph_free(pb_graph *g)
{
    for (size_t i = 0; i < g->n; i++) free(g->nodes[i].args);
    free(g->nodes);
    free(g);
}

static pb_status add_node(pb_graph *g, const node *add)
{
    if (g->n == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        node *more = realloc(g->nodes, room * sizeof *more);
        if (!more) return pb_fail(PB_ENOMEM, "cpu: no memory for a graph of %zu calls", room);
        g->nodes = more;
        g->room = room;
    }
    g->nodes[g->n++] = *add;
    return PB_OK;
}

pb_status pb_recording_add(pb_ctx *ctx, const pb_op *op, const pb_impl *impl, const void *args)
{
    void *copy = malloc(op->args_size);
    if (!copy) return pb_fail(PB_ENOMEM, "cpu: no memory for a recorded call");
    memcpy(copy, args, op->args_size);
    const node n = {.op = op, .impl = impl, .args = copy, .place = pb_range_stack_now(), .layer = pb_range_layer()};
    const pb_status s = add_node(ctx->recorder, &n);
    if (s != PB_OK) free(copy);
    return s;
}

static void write_time(pb_ctx *ctx, int slot)
{
    ((cpu_state *)ctx->priv)->at[slot % PB_MARK_SLOTS] = pb_clock_seconds();
}

static void spin(double seconds)
{
    const double end = pb_clock_seconds() + seconds;
    while (pb_clock_seconds() < end) continue;
}

static pb_status run_node(pb_ctx *ctx, const node *n)
{
    if (n->op) return pb_impl_run(ctx, n->op, n->impl, n->args);
    if (n->slot >= 0) write_time(ctx, n->slot);
    else spin(n->delay);
    return PB_OK;
}

/* Records a timestamp (slot >= 0) or a delay. */
static pb_status add_timing(pb_ctx *ctx, int slot, double delay)
{
    return add_node(ctx->recorder,
                    &(node){.slot = slot, .delay = delay, .place = pb_range_stack_now(), .layer = pb_range_layer()});
}

static pb_status cpu_mark(pb_ctx *ctx, int slot)
{
    if (ctx->recording) return add_timing(ctx, slot, 0);
    write_time(ctx, slot); /* at once: it ends a measured interval */
    return PB_OK;
}

static pb_status cpu_delay(pb_ctx *ctx, double seconds)
{
    if (ctx->recording) return add_timing(ctx, -1, seconds);
    spin(seconds);
    return PB_OK;
}

static pb_status cpu_record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    pb_graph *g = calloc(1, sizeof *g);
    if (!g) return pb_fail(PB_ENOMEM, "cpu: no memory for a graph");
    ctx->recorder = g;
    pb_range_stack_track(true);
    pb_status s = fn(ctx, self);
    pb_range_stack_track(false);
    ctx->recorder = NULL;
    if (s != PB_OK) {
        cpu_graph_free(g);
        return s;
    }
    *out = g;
    return PB_OK;
}

static pb_status cpu_replay(pb_ctx *ctx, pb_graph *g)
{
    const pb_range_stack none = {0};
    pb_range_stack open = none;
    pb_status s = PB_OK;
    for (size_t i = 0; s == PB_OK && i < g->n; i++) {
        const node *n = &g->nodes[i];
        if (pb_ranges_on) {
            pb_range_stack_move(&open, &n->place);
            pb_range_layer_set(n->layer);
        }
        s = run_node(ctx, n);
    }
    pb_range_stack_move(&open, &none);
    pb_range_layer_set(PB_RANGE_NO_VALUE);
    return s;
}

static size_t cpu_graph_nodes(const pb_graph *g) { return g->n; }

const pb_backend pb_backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_copy,
    .upload_staged = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy_within,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .mark = cpu_mark,
    .between = cpu_between,
    .flush_cache = cpu_flush,
    .delay = cpu_delay,
    .record = cpu_record,
    .replay = cpu_replay,
    .graph_nodes = cpu_graph_nodes,
    .graph_free = cpu_graph_free,
};
