/* graph_requirement.c - requirements that need a training run of their own: 100 steps of the model `tiny`, eager and as
 * a graph, alternating. */
#include "bench/suites/graph_requirement.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/derived/requirements.h"
#include "bench/suites/train_case.h"
#include "os/interrupt.h"

enum { STEPS = 100 }; /* as requirement F-GRAPH-BWD-001 says */

static const pb_axis tiny_axes[] = {
    {"batch", "2"}, {"clip", "fused"}, {"dtype", "f32"},   {"layers", "0"},    {"model", "tiny"},
    {"rank", "16"}, {"seq", "64"},     {"targets", "q+v"}, {"tuning", "lora"},
};
enum { TINY_AXES = sizeof tiny_axes / sizeof *tiny_axes };

static pb_status open_tiny(pb_ctx *ctx, pb_trainer **out)
{
    pb_case c = {.suite = "requirement", .name = "tiny"};
    for (int i = 0; i < TINY_AXES; i++) PB_TRY(pb_case_set(&c, tiny_axes[i].name, tiny_axes[i].value));
    return pb_train_case_open(ctx, &c, out);
}

/* One of the two variants, eager or graph. Its trainer has taken one step, which sizes the scratch memory. */
typedef struct variant {
    pb_trainer *t;
    pb_graph *graph; /* captured backward pass with clip; NULL: eager */
} variant;

static pb_status step(pb_ctx *ctx, const variant *a, size_t batch, double *loss)
{
    PB_TRY(pb_train_case_batch(a->t, batch));
    PB_TRY(pb_phase_forward(ctx, a->t));
    PB_TRY(pb_phase_loss(ctx, a->t));
    PB_TRY(a->graph ? pb_replay(ctx, a->graph) : pb_backward_and_clip(ctx, a->t));
    PB_TRY(pb_phase_optimizer(ctx, a->t));
    return pb_trainer_loss(a->t, loss);
}

static pb_status same_losses(pb_ctx *ctx, pb_sink *sink, const variant *eager, const variant *graphed)
{
    char how[160];
    double worst = 0, at[3] = {0}, e, g;
    int done = 0;
    for (; done < STEPS && !pb_interrupted(); done++) {
        PB_TRY(step(ctx, eager, (size_t)done, &e));
        PB_TRY(step(ctx, graphed, (size_t)done, &g));
        const double d = fabs(e - g);
        /* The negated test lets NaN win, so a loss that is not finite fails. */
        if (!(d <= worst)) worst = d;
        if (done == 9 || done == 49 || done == 99) at[done / 49] = g; /* indices 0, 1, 2 */
    }
    if (done < STEPS) return PB_OK; /* interrupted: see run_variants */
    snprintf(how, sizeof how, "largest difference %g, graphed loss %.4f, %.4f, %.4f at steps 10, 50, 100", worst, at[0],
             at[1], at[2]);
    return pb_requirement_emit(sink, "F-GRAPH-BWD-001", tiny_axes, TINY_AXES, worst, true, how);
}

/* The joint norm of the gradients of a layer; -1: of the parameters outside the layers. */
static pb_status joint_norm(pb_ctx *ctx, const pb_model *m, int layer, double *norm)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        const size_t n = pb_param_n(p);
        if (!p->trained || p->layer != layer) continue;
        float *host = malloc(n * sizeof *host);
        if (!host) return pb_fail(PB_ENOMEM, "no memory for a gradient");
        const pb_status s = pb_download(ctx, host, p->grad, n * sizeof *host);
        for (size_t k = 0; s == PB_OK && k < n; k++) sum += (double)host[k] * (double)host[k];
        free(host);
        PB_TRY(s);
    }
    *norm = sqrt(sum);
    return PB_OK;
}

/* Checks that a graph clips. max_norm is far below the gradients' norms; after a replay each group's joint norm must
 * equal it. The value of the requirement is the largest relative deviation, in either direction. */
static pb_status clip_applies(pb_ctx *ctx, pb_sink *sink, const variant *graphed)
{
    const float max_norm = pb_trainer_config(graphed->t)->max_norm;
    const int groups = pb_trainer_clip_groups(graphed->t);
    pb_clip_state *states = malloc((size_t)groups * sizeof *states);
    char how[160];
    double worst = 0, least = INFINITY;
    if (!states) return pb_fail(PB_ENOMEM, "no memory for the clip states");
    pb_status s = pb_replay(ctx, graphed->graph);
    if (s == PB_OK) s = pb_trainer_clip_states(graphed->t, states);
    const pb_model *m = pb_trainer_model(graphed->t);
    for (int i = 0; s == PB_OK && i < groups; i++) {
        double norm = (double)NAN;
        s = joint_norm(ctx, m, pb_trainer_clip_layer(graphed->t, i), &norm);
        const double deviation = fabs(norm / (double)max_norm - 1);
        if (!(deviation <= worst)) worst = deviation;
        if ((double)states[i].norm < least) least = (double)states[i].norm;
    }
    free(states);
    PB_TRY(s);
    /* If a norm did not exceed max_norm, nothing was clipped and the test shows nothing: NaN fails. */
    if (!(least > (double)max_norm)) worst = (double)NAN;
    snprintf(how, sizeof how, "norms of at least %.3g were cut to %g", least, (double)max_norm);
    return pb_requirement_emit(sink, "F-GRAPH-BWD-004", tiny_axes, TINY_AXES, worst, true, how);
}

static pb_status run_variants(pb_ctx *ctx, pb_sink *sink, variant *eager, variant *graphed)
{
    double loss;
    pb_status s;
    PB_TRY(open_tiny(ctx, &eager->t));
    PB_TRY(open_tiny(ctx, &graphed->t));
    /* A step with learning rate 0 only advances the step number, in both trainers. */
    PB_TRY(pb_trainer_set_lr(eager->t, 0));
    PB_TRY(pb_trainer_set_lr(graphed->t, 0));
    PB_TRY(step(ctx, eager, 0, &loss));
    PB_TRY(step(ctx, graphed, 0, &loss));
    PB_TRY(pb_trainer_set_lr(eager->t, 1e-3f));
    PB_TRY(pb_trainer_set_lr(graphed->t, 1e-3f));
    s = pb_record(ctx, pb_backward_and_clip, graphed->t, &graphed->graph);
    const double nodes = s == PB_OK ? (double)pb_graph_nodes(ctx, graphed->graph) : 0;
    PB_TRY(pb_requirement_emit(sink, "F-GRAPH-BWD-002", tiny_axes, TINY_AXES, nodes, true,
                               s == PB_OK ? "recorded" : pb_error()));
    PB_TRY(s);
    PB_TRY(same_losses(ctx, sink, eager, graphed));
    if (pb_interrupted()) return PB_OK; /* an interrupted case emits no further row */
    /* Set a bound far below every norm and capture the graph again with it. */
    pb_graph_free(ctx, graphed->graph);
    graphed->graph = NULL;
    PB_TRY(pb_trainer_set_clip(graphed->t, PB_CLIP_FUSED, 1e-4f));
    PB_TRY(pb_record(ctx, pb_backward_and_clip, graphed->t, &graphed->graph));
    return clip_applies(ctx, sink, graphed);
}

pb_status pb_graph_requirements(pb_ctx *ctx, pb_sink *sink)
{
    variant eager = {0}, graphed = {0};
    const pb_status s = run_variants(ctx, sink, &eager, &graphed);
    pb_graph_free(ctx, graphed.graph);
    pb_trainer_close(eager.t);
    pb_trainer_close(graphed.t);
    return s;
}
