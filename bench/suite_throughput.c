/* suite_throughput.c - whole training steps: seconds by phase, tokens a second, peak memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/memory.h"
#include "bench/results.h"
#include "bench/train_case.h"

enum { SAMPLES = 40, MARKS = PB_NPHASES + 1 };

/* One step with a mark before every phase and one behind the last. */
static pb_status marked_step(pb_ctx *ctx, pb_trainer *t, int sample)
{
    for (int i = 0; i < PB_NPHASES; i++) {
        PB_TRY(ctx->be->mark(ctx, sample * MARKS + i));
        PB_TRY(pb_phases[i](ctx, t));
    }
    return ctx->be->mark(ctx, sample * MARKS + PB_NPHASES);
}

static pb_measure_opts usual(const pb_sink *sink)
{
    return pb_sink_measure(sink,
                           (pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = SAMPLES, .min_time = 1.5});
}

static pb_status sample_steps(pb_ctx *ctx, pb_trainer *t, const pb_measure_opts *o, int *n)
{
    double total = 0, one;
    for (int i = 0; i < o->warmup; i++) PB_TRY(pb_train_step(ctx, t)); /* scratch is sized, memory touched */
    for (*n = 0; *n < o->max_samples && *n < SAMPLES && !pb_interrupted(); ++*n) {
        if (*n >= o->min_samples && total >= o->min_time) break;
        PB_TRY(marked_step(ctx, t, *n));
        PB_TRY(pb_sync(ctx));
        PB_TRY(ctx->be->between(ctx, *n * MARKS, *n * MARKS + PB_NPHASES, &one));
        total += one;
    }
    return PB_OK;
}

/* The time between marks `from` and `to` of every sample. */
static pb_status emit_span(pb_ctx *ctx, const pb_case *c, pb_sink *sink, const char *metric, int n, int from, int to,
                           double *median)
{
    double sorted[SAMPLES];
    pb_timing *timing = calloc(1, sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status s = PB_OK;
    timing->n = n;
    for (int i = 0; s == PB_OK && i < n; i++) {
        s = ctx->be->between(ctx, i * MARKS + from, i * MARKS + to, &timing->seconds[i]);
        sorted[i] = timing->seconds[i];
    }
    *median = timing->median = s == PB_OK ? pb_median(sorted, n) : 0;
    if (s == PB_OK) s = pb_emit_timing(sink, c, metric, timing, "");
    free(timing);
    return s;
}

static pb_status eager(pb_ctx *ctx, const pb_case *c, pb_trainer *t, pb_sink *sink, double *step)
{
    int n;
    double phase;
    const pb_measure_opts o = usual(sink);
    PB_TRY(sample_steps(ctx, t, &o, &n));
    if (!n) return PB_OK;
    for (int i = 0; i < PB_NPHASES; i++) {
        char metric[32];
        snprintf(metric, sizeof metric, "%s_time", pb_phase_names[i]);
        PB_TRY(emit_span(ctx, c, sink, metric, n, i, i + 1, &phase));
    }
    return emit_span(ctx, c, sink, "step_time", n, 0, PB_NPHASES, step);
}

static pb_status graphed(pb_ctx *ctx, const pb_case *c, pb_trainer *t, pb_sink *sink, double *step)
{
    pb_timing *timing = malloc(sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_measure_opts o = usual(sink);
    o.graph = true;
    pb_status s = pb_measure(ctx, pb_train_step, t, &o, timing);
    if (s == PB_EUNSUPPORTED) s = pb_emit(sink, c, "step_time", (double)NAN, 0, "unsupported", pb_error());
    else if (s == PB_OK) {
        *step = timing->median;
        s = pb_emit_timing(sink, c, "step_time", timing, "");
        if (s == PB_OK) s = pb_emit(sink, c, "graph_nodes", (double)timing->nodes, 0, "ok", "");
        if (s == PB_OK) s = pb_emit(sink, c, "record_time", timing->record_seconds, 1, "ok", "");
    }
    free(timing);
    return s;
}

static pb_status steps(pb_ctx *ctx, const pb_case *c, pb_trainer *t, pb_sink *sink)
{
    const pb_train_config *cfg = pb_trainer_config(t);
    const bool graph = pb_train_case_graph(c);
    double error, step = 0, loss, peak;
    PB_TRY(pb_gradient_error(t, &error));
    const bool right = error <= pb_gradient_bound(cfg->model.dtype);
    PB_TRY(pb_emit(sink, c, "gradient_error", error, 0, right ? "ok" : "wrong", right ? "" : "the gradient is wrong"));
    if (!right) return pb_emit(sink, c, "step_time", (double)NAN, 0, "wrong", "the gradient is wrong");
    PB_TRY(pb_memory_reset_peak());
    PB_TRY(graph ? graphed(ctx, c, t, sink, &step) : eager(ctx, c, t, sink, &step));
    if (!(step > 0)) return PB_OK;
    PB_TRY(pb_memory_peak(&peak));
    PB_TRY(pb_trainer_loss(t, &loss));
    PB_TRY(pb_emit(sink, c, "loss", loss, 0, isfinite(loss) ? "ok" : "wrong", isfinite(loss) ? "" : "not finite"));
    PB_TRY(pb_emit(sink, c, "tokens_per_second", cfg->B * cfg->S / step, 0, "ok", ""));
    return pb_emit(sink, c, "peak_memory", peak, 0, "ok", "");
}

static pb_status run(pb_ctx *ctx, const pb_case *c, pb_sink *sink)
{
    pb_trainer *t;
    PB_TRY(pb_train_case_open(ctx, c, &t));
    pb_status s = steps(ctx, c, t, sink);
    pb_trainer_close(t);
    return s;
}

static double expect(const pb_case *c)
{
    const double step = 3.2 * pb_train_case_seconds(c);
    return 2 + 3 * step + (5 * step > 1.5 ? 5 * step : 1.5);
}

static const char *const grid[] = {"tuning=full,lora,qlora", NULL};
static const char *const full_grid[] = {"tuning=full,lora,qlora batch=1,4 seq=128,256,512 mode=eager,graph", NULL};

const pb_suite pb_suite_throughput = {
    .name = "throughput",
    .what = "whole training steps: seconds by phase, tokens a second, peak memory",
    .axes = PB_TRAIN_AXES " batch=1 clip=multi mode=eager seq=256 tuning=full",
    .grid = grid,
    .full_grid = full_grid,
    .check = pb_train_case_check,
    .expect = expect,
    .run = run,
};
