/* timing.c - times a function: warm-up calls, samples until there are enough, and their median. */
#include <math.h>
#include <stdlib.h>

#include "bench/measure/group_counter.h"
#include "bench/measure/timing.h"
#include "bench/stats/stats.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"
#include "profiles/ranges.h"

static pb_status check(const pb_measure_opts *o)
{
    if (o->warmup < 1) return pb_fail(PB_EINVAL, "measure: %d warm-up calls, need at least 1", o->warmup);
    if (o->min_samples < 1 || o->max_samples < o->min_samples || o->max_samples > PB_MAX_SAMPLES)
        return pb_fail(PB_EINVAL, "measure: %d to %d samples, need 1 to %d", o->min_samples, o->max_samples,
                       PB_MAX_SAMPLES);
    if (o->counter && (o->max_samples != PB_COUNTED_CALLS || o->queued))
        return pb_fail(PB_EINVAL, "measure: %d calls, need %d to count instructions", o->max_samples, PB_COUNTED_CALLS);
    if (o->group && (o->graph || o->lockstep))
        return pb_fail(PB_EUNSUPPORTED, "counters: events of a replayed graph or of several ranks cannot be counted");
    return PB_OK;
}

/* Does the untimed work before a call. The host sync keeps that work out of the sample. Queued samples need no host
 * sync: the stream's order keeps it out. */
static pb_status prepare(pb_ctx *ctx, const pb_measure_opts *o)
{
    if (o->before) PB_TRY(o->before(ctx, o->before_self));
    if (o->flush) PB_TRY(ctx->be->flush_cache(ctx));
    return o->queued ? PB_OK : ctx->be->sync(ctx);
}

/* BATCH: most samples between two host syncs. Sample i of a batch uses events 2i and 2i + 1 for its begin and end, and
 * event OWN_END + i for the end of its call without the work of a call hook. */
enum { BATCH = 16, OWN_END = 2 * BATCH };

/* Calls fn, and counts its instructions if the options ask for that. */
static pb_status call(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, double *instructions)
{
    if (!o->counter) return fn(ctx, self);
    PB_TRY(pb_instructions_begin(o->counter));
    const pb_status s = fn(ctx, self);
    PB_TRY(pb_instructions_end(o->counter, instructions));
    return s;
}

/* Enqueues the i-th sample of a batch between its two events. */
static pb_status enqueue_sample(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t, int i)
{
    const pb_counts before = ctx->counts;
    /* read before event 2i, so that on a CPU, where both use one clock, the host time covers the sample */
    const double start = pb_clock_seconds();
    PB_TRY(ctx->be->mark(ctx, 2 * i));
    PB_TRY(call(ctx, fn, self, o, &t->instructions[o->counter ? t->n + i : 0]));
    if (o->call_hook) PB_TRY(o->call_hook->after_call(o->call_hook, ctx, 2 * i, OWN_END + i));
    PB_TRY(ctx->be->mark(ctx, 2 * i + 1));
    t->host[t->n + i] = pb_clock_seconds() - start;
    t->kernel_launches += (double)(ctx->counts.kernel_launches - before.kernel_launches);
    t->host_syncs += (double)(ctx->counts.host_syncs - before.host_syncs);
    t->searches += (double)(ctx->counts.searches - before.searches);
    if (ctx->counts.allocs - before.allocs > t->allocations) t->allocations = ctx->counts.allocs - before.allocs;
    return PB_OK;
}

/* Does the untimed work before the i-th sample of a batch, then the sample, which is a profiler range. The range begins
 * and ends outside of what is timed. */
static pb_status enqueue(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t, int i)
{
    PB_TRY(prepare(ctx, o));
    pb_range_push(PB_RANGE_sample, "sample", 1);
    const pb_status s = enqueue_sample(ctx, fn, self, o, t, i);
    pb_range_pop();
    return s;
}

/* Refuses a time that is not above 0: the clock is too coarse, ran backwards or is broken. */
static pb_status check_time(double seconds, const char *what, int i, const char *clock)
{
    if (isfinite(seconds) && seconds > 0) return PB_OK;
    return pb_fail(PB_EDEVICE, "measure: %s %d took %g s by the clock of the %s, which is broken or too coarse", what,
                   i, seconds, clock);
}

static pb_status check_sample(const pb_ctx *ctx, const pb_timing *t, int i)
{
    PB_TRY(check_time(t->seconds[i], "sample", i, ctx->be->name));
    return check_time(t->host[i], "sample", i, "host");
}

/* Takes one sample, or up to BATCH samples if they are queued, and appends them to t. */
static pb_status batch(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t)
{
    const int room = o->max_samples - t->n, n = !o->queued || o->lockstep ? 1 : room < BATCH ? room : BATCH;
    PB_TRY(pb_lockstep_meet(o->lockstep, PB_OK));
    if (o->lockstep && o->lockstep->over) return PB_OK;
    for (int i = 0; i < n; i++) PB_TRY(enqueue(ctx, fn, self, o, t, i));
    PB_TRY(ctx->be->sync(ctx));
    for (int i = 0; i < n; i++) {
        PB_TRY(ctx->be->between(ctx, 2 * i, 2 * i + 1, &t->seconds[t->n + i]));
        PB_TRY(check_sample(ctx, t, t->n + i));
        if (o->call_hook) PB_TRY(ctx->be->between(ctx, 2 * i, OWN_END + i, &t->own[t->n + i]));
    }
    PB_TRY(pb_lockstep_slowest(o->lockstep, &t->seconds[t->n], &t->host[t->n]));
    t->n += n;
    pb_heartbeat_send_if_due(o->heartbeat);
    return PB_OK;
}

/* Calls fn without timing it. names: counts the kernel launches of the last call by name; NULL: does not. Counting
 * costs time at every launch, so samples do without it. */
static pb_status warm_up(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, int calls, pb_tally *names)
{
    for (int i = 0; i < calls && !pb_interrupted(); i++) {
        PB_TRY(pb_lockstep_meet(o->lockstep, PB_OK));
        if (o->lockstep && o->lockstep->over) break;
        PB_TRY(prepare(ctx, o));
        ctx->tally = i + 1 == calls ? names : NULL;
        const pb_status s = fn(ctx, self);
        ctx->tally = NULL;
        PB_TRY(s);
        pb_heartbeat_send_if_due(o->heartbeat);
    }
    return ctx->be->sync(ctx);
}

/* Starts the call hook, which injects a delay into every timed call (hooks.h), and takes the trial samples from which
 * it calibrates the delay. */
static pb_status begin_call_hook(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o)
{
    pb_call_hook *h = o->call_hook;
    pb_measure_opts few = *o;
    int trials;
    PB_TRY(h->begin(h, ctx, &trials));
    if (!trials) return PB_OK;
    pb_timing *t = calloc(1, sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for samples");
    few.max_samples = BATCH;
    pb_status s = PB_OK;
    for (int i = 0; i < trials && s == PB_OK; i++) {
        for (t->n = 0; s == PB_OK && t->n < BATCH;) s = batch(ctx, fn, self, &few, t);
        if (s == PB_OK) h->after_trial(h, t->seconds, t->own, t->n);
    }
    free(t);
    return s;
}

/* Takes the samples of one round of the round hook; adds its seconds to *spent. */
static pb_status hooked_round(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t, double *spent)
{
    pb_round_hook *h = o->round_hook;
    int most;
    if (h->begin(h, o, t, &most)) PB_TRY(warm_up(ctx, fn, self, o, 1, NULL));
    do PB_TRY(t->n < most ? batch(ctx, fn, self, o, t) : warm_up(ctx, fn, self, o, 1, NULL));
    while (!h->over(h) && t->n < o->max_samples && !pb_interrupted());
    *spent += h->end(h);
    return PB_OK;
}

/* Takes one batch, which is a round without a round hook; adds the seconds of its samples to *spent. */
static pb_status plain_round(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t, double *spent)
{
    const int before = t->n;
    PB_TRY(batch(ctx, fn, self, o, t));
    for (int i = before; i < t->n; i++) *spent += t->seconds[i];
    return PB_OK;
}

/* True if t needs more samples. spent: the seconds of those that it has. */
static bool wants_more(const pb_measure_opts *o, const pb_timing *t, double spent)
{
    return !pb_interrupted() && t->n < o->max_samples && (t->n < o->min_samples || spent < o->min_time);
}

/* Takes a stretch of samples (contention.h). If it was disturbed, t has afterwards what it had before. */
static pb_status judged_round(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t, double *spent)
{
    const int n = t->n;
    const double launches = t->kernel_launches, syncs = t->host_syncs, searches = t->searches;
    double seconds = 0;
    pb_contention_begin_stretch(o->contention);
    do PB_TRY(plain_round(ctx, fn, self, o, t, &seconds));
    while (!pb_contention_stretch_over(o->contention) && wants_more(o, t, *spent + seconds));
    if (pb_contention_end_stretch(o->contention))
        t->n = n, t->kernel_launches = launches, t->host_syncs = syncs, t->searches = searches;
    else *spent += seconds;
    return PB_OK;
}

static pb_status collect(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t)
{
    const bool judged = o->contention && !o->round_hook && !o->lockstep;
    double spent = 0;
    if (o->call_hook && !pb_interrupted()) PB_TRY(begin_call_hook(ctx, fn, self, o));
    if (judged) pb_contention_begin(o->contention);
    while (wants_more(o, t, spent))
        PB_TRY((o->round_hook ? hooked_round : judged ? judged_round : plain_round)(ctx, fn, self, o, t, &spent));
    if (judged && pb_contention_end(o->contention) && o->heartbeat) pb_heartbeat_send(o->heartbeat, PB_SAYS_DISTURBED);
    return PB_OK;
}

static pb_status collect_graph(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o, pb_timing *t)
{
    pb_graph *g = NULL;
    double start = pb_clock_seconds();
    PB_TRY(pb_record(ctx, fn, self, &g));
    t->record_seconds = pb_clock_seconds() - start;
    t->nodes = pb_graph_nodes(ctx, g);
    pb_status s = check_time(t->record_seconds, "recording", 0, "host");
    if (s == PB_OK) s = warm_up(ctx, pb_replay, g, o, 1, NULL); /* the first replay uploads the graph */
    if (s == PB_OK) s = collect(ctx, pb_replay, g, o, t);
    pb_graph_free(ctx, g);
    return s;
}

/* Counts the events of one call, which nothing else of this process overlaps. */
static pb_status count_call(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o)
{
    PB_TRY(prepare(ctx, o));
    PB_TRY(ctx->be->sync(ctx));
    PB_TRY(pb_group_counter_begin(o->group));
    pb_status s = fn(ctx, self);
    if (s == PB_OK) s = ctx->be->sync(ctx);
    const pb_status e = pb_group_counter_end(o->group, s == PB_OK);
    return s == PB_OK ? e : s;
}

static pb_status count(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *o)
{
    o->group->n = 0;
    for (int i = 0; i < PB_REPLAYS && !pb_interrupted(); i++) {
        PB_TRY(count_call(ctx, fn, self, o));
        pb_heartbeat_send_if_due(o->heartbeat);
    }
    return PB_OK;
}

pb_status pb_measure(pb_ctx *ctx, pb_fn fn, void *self, const pb_measure_opts *opts, pb_timing *out)
{
    pb_timing t = {.median = (double)NAN,
                   .host_median = (double)NAN,
                   .counted = opts->counter || opts->group,
                   .group = opts->group};
    PB_TRY(check(opts));
    PB_TRY(warm_up(ctx, fn, self, opts, opts->warmup, &t.names));
    if (opts->group) PB_TRY(count(ctx, fn, self, opts));
    else if (!pb_interrupted()) PB_TRY((opts->graph ? collect_graph : collect)(ctx, fn, self, opts, &t));
    if (t.n) {
        t.median = pb_median_of(t.seconds, t.n);
        t.host_median = pb_median_of(t.host, t.n);
        t.kernel_launches /= t.n;
        t.host_syncs /= t.n;
        t.searches /= t.n;
        if (opts->call_hook) t.slowed = opts->call_hook->added(t.seconds, t.own, t.n);
    }
    *out = t;
    return PB_OK;
}
