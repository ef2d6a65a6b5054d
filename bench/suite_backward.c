/* suite_backward.c - the backward pass and clip of a real model on real text: eager and as a recorded
 * graph, with the clip that waits and the clip that does not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/contracts.h"
#include "bench/results.h"
#include "bench/train_case.h"

/* Largest difference of any gradient between a replay of the graph and the eager call. */
static pb_status graph_difference(pb_ctx *ctx, pb_trainer *t, double *out)
{
    float *eager, *graphed;
    pb_graph *g;
    size_t n;
    PB_TRY(pb_backward_and_clip(ctx, t));
    PB_TRY(pb_record(ctx, pb_backward_and_clip, t, &g));
    pb_status s = pb_gradient_copy(t, &eager, &n);
    if (s == PB_OK) {
        s = pb_replay(ctx, g);
        if (s == PB_OK) s = pb_gradient_copy(t, &graphed, &n);
        *out = 0;
        for (size_t i = 0; s == PB_OK && i < n; i++) {
            const double d = fabs((double)eager[i] - (double)graphed[i]);
            if (!(d <= *out)) *out = d; /* NaN wins */
        }
        if (s == PB_OK) free(graphed);
        free(eager);
    }
    pb_graph_free(ctx, g);
    return s;
}

typedef struct verdict {
    const char *status;
    char note[160];
} verdict;

/* Emits the checks and says whether the case may have a time. */
static pb_status check(pb_ctx *ctx, const pb_case *c, pb_trainer *t, bool graph, pb_sink *sink, verdict *v)
{
    double error = 0, loss = 0, difference = 0;
    const double bound = pb_gradient_bound(pb_trainer_config(t)->model.dtype);
    PB_TRY(pb_gradient_error(t, &error));
    PB_TRY(pb_trainer_loss(t, &loss));
    *v = (verdict){"ok", ""};
    if (!(error <= bound)) {
        v->status = "wrong";
        snprintf(v->note, sizeof v->note, "the gradient is off by %g, more than %g", error, bound);
    }
    PB_TRY(pb_emit(sink, c, "gradient_error", error, 0, v->status, v->note));
    PB_TRY(pb_emit(sink, c, "loss", loss, 0, isfinite(loss) ? "ok" : "wrong", isfinite(loss) ? "" : "not finite"));
    if (!graph) return PB_OK;
    pb_status s = graph_difference(ctx, t, &difference);
    if (s == PB_EUNSUPPORTED) return PB_OK; /* the measurement will say so */
    PB_TRY(s);
    if (!(difference <= 0)) {
        v->status = "wrong";
        snprintf(v->note, sizeof v->note, "graph and eager gradients differ by %g", difference);
    }
    return pb_emit(sink, c, "graph_difference", difference, 0, v->status, v->note);
}

static pb_status measure(pb_ctx *ctx, const pb_case *c, pb_trainer *t, bool graph, pb_sink *sink)
{
    const pb_train_config *cfg = pb_trainer_config(t);
    pb_timing *timing = malloc(sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_measure_opts o =
        pb_sink_measure(sink, (pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 40, .min_time = 1});
    o.graph = graph;
    pb_status s = pb_measure(ctx, pb_backward_and_clip, t, &o, timing);
    if (s == PB_EUNSUPPORTED) s = pb_emit(sink, c, "backward_time", (double)NAN, 0, "unsupported", pb_error());
    else if (s == PB_OK) {
        s = pb_emit_timing(sink, c, "backward_time", timing, "");
        if (s == PB_OK)
            s = pb_emit(sink, c, "tokens_per_second", cfg->B * cfg->S / timing->median, timing->n, "ok", "");
        if (s == PB_OK) s = pb_emit(sink, c, "launches", timing->launches, 0, "ok", "");
        if (s == PB_OK) s = pb_emit(sink, c, "waits", timing->waits, 0, "ok", "");
        if (s == PB_OK && graph) s = pb_emit(sink, c, "graph_nodes", (double)timing->nodes, 0, "ok", "");
        if (s == PB_OK && graph) s = pb_emit(sink, c, "record_time", timing->record_seconds, 1, "ok", "");
    }
    free(timing);
    return s;
}

static pb_status run(pb_ctx *ctx, const pb_case *c, pb_sink *sink)
{
    const bool graph = pb_train_case_graph(c);
    verdict v;
    pb_trainer *t;
    PB_TRY(pb_train_case_open(ctx, c, &t));
    pb_status s = check(ctx, c, t, graph, sink, &v);
    if (s == PB_OK && strcmp(v.status, "ok") != 0)
        s = pb_emit(sink, c, "backward_time", (double)NAN, 0, v.status, v.note);
    else if (s == PB_OK) s = measure(ctx, c, t, graph, sink);
    pb_trainer_close(t);
    return s;
}

/* Weights are drawn (and quantised), the check takes three forward and two backward passes, then come the
 * samples; a backward pass costs one forward when only adapters are trained, two when everything is. */
static double expect(const pb_case *c)
{
    const double forward = pb_train_case_seconds(c);
    const char *tuning = pb_case_get(c, "tuning");
    const double backward = forward * (tuning && strcmp(tuning, "full") == 0 ? 2 : 1);
    const double samples = backward * 5 > 1 ? backward * 5 : 1;
    return 1 + 4 * forward + 4 * backward + samples;
}

static const char *const grid[] = {"tuning=lora batch=1,4 mode=eager,graph clip=sync,fused",
                                   "tuning=full,qlora batch=1 mode=eager,graph clip=fused", NULL};
static const char *const full_grid[] = {
    "tuning=full,lora,qlora batch=1,2,4,8 seq=128,256,512 mode=eager,graph clip=sync,fused,multi", NULL};

const pb_suite pb_suite_backward = {
    .name = "backward",
    .what = "what a recorded graph and a fused clip buy in the backward pass of a real model",
    .axes = PB_TRAIN_AXES " batch=1 clip=fused mode=eager seq=128 tuning=lora",
    .grid = grid,
    .full_grid = full_grid,
    .check = pb_train_case_check,
    .expect = expect,
    .run = run,
    .conclude = pb_contracts_conclude,
};
