/* scripted.c - implements the simulated device and the simulated clocks that scripted.h declares. */
#include "tests/bench/measure/scripted.h"

#include "kernels/engine/clock.h"

static const scripted *clock_of; /* pb_clock_seconds() returns the host clock of this scripted device */

double pb_clock_seconds(void) { return clock_of ? clock_of->host : 0; }

static pb_status reach(scripted *s, scripted_step step)
{
    const bool fails = ++s->count[step] == s->fail_at && step == s->fail_step;
    return fails ? pb_fail(PB_EDEVICE, "scripted: step %d, call %d", (int)step, s->fail_at) : PB_OK;
}

static void pass(scripted *s, double seconds)
{
    if (s->async) s->device = (s->device > s->host ? s->device : s->host) + seconds;
    else s->device = s->host += seconds;
}

static pb_status wait(pb_ctx *ctx)
{
    scripted *s = ctx->priv;
    if (s->async && s->device > s->host) s->host = s->device;
    return reach(s, STEP_SYNC);
}

static pb_status mark(pb_ctx *ctx, int slot)
{
    scripted *s = ctx->priv;
    s->host += s->marking;
    s->at[slot] = s->async && s->device > s->host ? s->device : s->host;
    return reach(s, STEP_MARK);
}

static pb_status between(pb_ctx *ctx, int from, int to, double *seconds)
{
    scripted *s = ctx->priv;
    *seconds = s->at[to] - s->at[from];
    return reach(s, STEP_BETWEEN);
}

static pb_status flush(pb_ctx *ctx)
{
    pass(ctx->priv, SCRIPTED_FLUSH);
    return reach(ctx->priv, STEP_FLUSH);
}

pb_status scripted_before(pb_ctx *ctx, void *self)
{
    (void)ctx;
    pass(self, SCRIPTED_BEFORE);
    return reach(self, STEP_BEFORE);
}

static void run(scripted *s, double share)
{
    s->host += s->enqueue;
    pass(s, share * s->script[s->calls++]);
    if (s->calls == s->stop_at) s->stop();
}

static pb_status work(pb_ctx *ctx, void *self)
{
    scripted *s = self;
    if (ctx->recording) return s->cannot_record ? pb_fail(PB_EUNSUPPORTED, "a host wait") : PB_OK;
    ctx->counts.kernel_launches += SCRIPTED_LAUNCHES;
    ctx->counts.host_syncs += SCRIPTED_WAITS;
    ctx->counts.searches += SCRIPTED_SEARCHES;
    run(s, 1);
    return reach(s, STEP_WORK);
}

static pb_status record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    scripted *s = ctx->priv;
    PB_TRY(reach(s, STEP_RECORD));
    PB_TRY(fn(ctx, self));
    s->host += s->recording;
    *out = (pb_graph *)s;
    return PB_OK;
}

static pb_status replay(pb_ctx *ctx, pb_graph *g)
{
    (void)ctx;
    run((scripted *)g, 0.5);
    return reach((scripted *)g, STEP_REPLAY);
}

static size_t nodes(const pb_graph *g)
{
    (void)g;
    return SCRIPTED_NODES;
}

static void free_graph(pb_graph *g) { ((scripted *)g)->count[STEP_FREE]++; }

static pb_status delay(pb_ctx *ctx, double seconds)
{
    scripted *f = ctx->priv;
    const double takes = seconds + f->waiting;
    pass(f, takes > f->shortest ? takes : f->shortest);
    f->delayed += seconds;
    return PB_OK;
}

static const pb_backend backend = {.name = "script",
                                   .sync = wait,
                                   .mark = mark,
                                   .between = between,
                                   .flush_cache = flush,
                                   .delay = delay,
                                   .record = record,
                                   .replay = replay,
                                   .graph_nodes = nodes,
                                   .graph_free = free_graph};

pb_status scripted_measure(scripted *s, const pb_measure_opts *o, pb_timing *out)
{
    pb_ctx ctx = {.be = &backend, .id = s->gpu ? PB_CUDA : PB_CPU, .priv = s};
    pb_measure_opts mine = *o;
    mine.before_self = s;
    clock_of = s;
    const pb_status status = pb_measure(&ctx, work, s, &mine, out);
    clock_of = NULL;
    return status;
}
