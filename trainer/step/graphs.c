/* graphs.c - caches captured graphs. The cache key holds the values that a graph contains and that differ between
 * steps. */
#include "trainer/step/graphs.h"

#include "profiles/ranges.h"

#include <stdio.h>

#include "kernels/engine/clock.h"
#include "os/where.h"
#include "trainer/step/trainer_impl.h"

/* Returns the cache key of `fn`. The key of pb_train_finish has no row length and no `accumulate`, because the phases
 * clip and optimizer do not depend on them. */
static pb_graph_shape shape_of(const pb_trainer *t, pb_fn fn)
{
    if (fn == pb_train_finish) return (pb_graph_shape){.fn = fn};
    return (pb_graph_shape){.fn = fn, .B = t->cfg.B, .S = t->S, .accumulate = t->accumulate, .reduce = t->reduce};
}

static bool same(const pb_graph_shape *a, const pb_graph_shape *b)
{
    return a->fn == b->fn && a->B == b->B && a->S == b->S && a->accumulate == b->accumulate && a->reduce == b->reduce;
}

/* Returns a free entry, evicting the least recently used one if necessary. The host syncs before a graph is freed,
 * because it may still be running. */
static pb_status make_room(pb_graphs *g, pb_ctx *ctx, pb_graph_shape **out)
{
    pb_graph_shape *oldest = g->shape;
    if (g->n < PB_GRAPHS_MOST) {
        *out = &g->shape[g->n++];
        return PB_OK;
    }
    for (int i = 1; i < g->n; i++)
        if (g->shape[i].used < oldest->used) oldest = &g->shape[i];
    if (oldest->graph) PB_TRY(pb_sync(ctx));
    pb_graph_free(ctx, oldest->graph);
    *out = oldest;
    return PB_OK;
}

static pb_status record(pb_graphs *g, pb_ctx *ctx, pb_trainer *t, pb_graph_shape *s)
{
    const double start = pb_clock_seconds();
    const pb_status status = pb_record(ctx, s->fn, t, &s->graph);
    if (status != PB_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", pb_error());
        return pb_fail(status, "a step of %d rows of %d tokens could not be recorded: %s", t->cfg.B, t->S, why);
    }
    g->seconds += pb_clock_seconds() - start;
    g->nodes += pb_graph_nodes(ctx, s->graph);
    g->recorded++;
    return PB_OK;
}

pb_status pb_graphs_run(pb_graphs *g, pb_ctx *ctx, pb_trainer *t, pb_fn fn)
{
    const pb_graph_shape wanted = shape_of(t, fn);
    pb_graph_shape *s = NULL;
    for (int i = 0; i < g->n && !s; i++)
        if (same(&g->shape[i], &wanted)) s = &g->shape[i];
    if (!s) {
        PB_TRY(fn(ctx, t));
        PB_TRY(make_room(g, ctx, &s));
        *s = wanted;
        s->used = ++g->runs;
        return PB_OK;
    }
    if (!s->graph) PB_TRY(record(g, ctx, t, s));
    pb_where_phase("replay");
    pb_range_push(PB_RANGE_replay, "replay", PB_RANGE_NO_VALUE);
    const pb_status status = pb_replay(ctx, s->graph);
    pb_range_pop();
    PB_TRY(status);
    pb_where_phase(NULL);
    g->replayed++;
    s->used = ++g->runs;
    return PB_OK;
}

pb_status pb_graphs_trace(pb_graphs *g, pb_ctx *ctx, pb_graph_node_fn node)
{
    for (int i = 0; i < g->n; i++)
        if (g->shape[i].graph) PB_TRY(pb_graph_trace(ctx, g->shape[i].graph, node));
    return PB_OK;
}

void pb_graphs_free(pb_graphs *g, pb_ctx *ctx)
{
    for (int i = 0; i < g->n; i++) pb_graph_free(ctx, g->shape[i].graph);
    g->n = 0;
}
