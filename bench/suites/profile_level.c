/* profile_level.c - implements profile_level.h. */
#include "bench/suites/profile_level.h"

#include <string.h>

#include "profiles/ring.h"
#include "trace/gpu.h"
#include "trace/gpu_samples.h"

static const char *const names[PB_LEVELS] = {
#define X(level, what) #level,
    PB_LEVEL_MAP(X)
#undef X
};

pb_status pb_level_find(const char *name, pb_level *out)
{
    int i = 0;
    while (i < PB_LEVELS && strcmp(names[i], name) != 0) i++;
    if (i == PB_LEVELS)
        return pb_fail(PB_EINVAL, "level=%.40s: need off, nvtx, attached, ring, activity, graphs, nodes or sampled",
                       name);
    *out = (pb_level)i;
    return PB_OK;
}

static bool records_gpu(pb_level level) { return level > PB_LEVEL_ring; }

static pb_status begin_ring(bool no_tsc) { return pb_ring_start(&(pb_ring_options){.no_tsc = no_tsc}); }

static pb_status attach(const pb_ctx *ctx, pb_level level)
{
    if (ctx->id == PB_CPU)
        return pb_fail(PB_EUNSUPPORTED, "level=%s is about what a GPU does: need --device cuda", names[level]);
    return pb_gpu_open(0, level == PB_LEVEL_graphs ? PB_GPU_GRAPHS_GRAPH : PB_GPU_GRAPHS_NODE);
}

static pb_status begin_sampling(pb_levelled *l)
{
    pb_counter_group g;
    PB_TRY(pb_group_find("TIMELINE", &g));
    PB_TRY(pb_gpu_sampler_open(&g, 1000, 0, &l->sampler));
    return pb_gpu_sampler_begin(l->sampler);
}

static pb_status begin_gpu(const pb_ctx *ctx, bool no_tsc, pb_levelled *l)
{
    PB_TRY(attach(ctx, l->level));
    pb_status s = l->level == PB_LEVEL_sampled ? begin_sampling(l) : PB_OK;
    if (s == PB_OK) s = begin_ring(no_tsc);
    if (s == PB_OK) s = pb_gpu_begin();
    if (s == PB_OK) return PB_OK;
    pb_gpu_sampler_close(l->sampler);
    l->sampler = NULL;
    return s;
}

pb_status pb_level_begin(pb_ctx *ctx, pb_level level, bool no_tsc, pb_levelled *out)
{
    *out = (pb_levelled){.level = level};
    if (pb_ranges_on) return pb_fail(PB_EUNSUPPORTED, "a profiler is attached to this process");
    if (level == PB_LEVEL_nvtx && !pb_ranges_call_nvtx(true))
        return pb_fail(PB_EUNSUPPORTED, "level=nvtx: this build has no NVTX; its headers come with CUDA");
    if (level == PB_LEVEL_attached) return attach(ctx, level);
    if (level == PB_LEVEL_ring) return begin_ring(no_tsc);
    return records_gpu(level) ? begin_gpu(ctx, no_tsc, out) : PB_OK;
}

static pb_status end_ring(pb_levelled *l)
{
    pb_ring_window w;
    PB_TRY(pb_ring_stop(&w));
    for (int i = 0; i < w.n; i++) l->ranges += w.threads[i].n;
    l->ranges += w.dropped;
    l->tsc = w.tsc;
    pb_ring_free(&w);
    return l->ranges ? PB_OK : pb_fail(PB_EWRONG, "level=%s: no range was recorded", names[l->level]);
}

static pb_status end_gpu(pb_levelled *l)
{
    pb_gpu_window w;
    PB_TRY(pb_gpu_end());
    PB_TRY(pb_gpu_read(&w));
    l->records = w.n;
    l->dropped = w.dropped;
    pb_gpu_free(&w);
    return l->records ? PB_OK : pb_fail(PB_EWRONG, "level=%s: CUPTI recorded nothing", names[l->level]);
}

/* Any time may be read: the sampler was on from its begin to its end. */
static pb_status end_sampling(pb_levelled *l)
{
    pb_gpu_samples all;
    pb_status s = pb_gpu_sampler_end(l->sampler);
    if (s == PB_OK) {
        s = pb_gpu_sampler_read(l->sampler, 0, INT64_MAX / 2, &all);
        l->samples = all.n;
        l->dropped += all.lost;
        pb_gpu_samples_free(&all);
    }
    pb_gpu_sampler_close(l->sampler);
    l->sampler = NULL;
    if (s == PB_OK && !l->samples) s = pb_fail(PB_EWRONG, "level=%s: nothing was sampled", names[l->level]);
    return s;
}

pb_status pb_level_end(pb_ctx *ctx, pb_levelled *l)
{
    pb_status s = pb_sync(ctx);
    if (l->level == PB_LEVEL_nvtx) (void)pb_ranges_call_nvtx(false);
    if (s == PB_OK && l->level < PB_LEVEL_ring && pb_ranges_on)
        s = pb_fail(PB_EWRONG, "level=%s: something recorded ranges", names[l->level]);
    if (s == PB_OK && records_gpu(l->level)) s = end_gpu(l);
    if (l->sampler) {
        const pb_status sampling = end_sampling(l);
        if (s == PB_OK) s = sampling;
    }
    if (l->level == PB_LEVEL_ring || records_gpu(l->level)) {
        const pb_status ring = end_ring(l);
        if (s == PB_OK) s = ring;
    }
    return s;
}
