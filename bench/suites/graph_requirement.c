/* graph_requirement.c - requirements that need a training run of their own: steps of one model eager and as a graph,
 * alternating. */
#include "bench/suites/graph_requirement.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/suites/train_case.h"
#include "os/interrupt.h"

/* numbers of steps that F-GRAPH-BWD-001 and F-GRAPH-BWD-001-QLORA prescribe */
enum { TINY_STEPS = 100, QLORA_STEPS = 50 };
static const char tiny_key[] = "requirement/tiny?batch=2&clip=fused&dtype=f32&layers=0&model=tiny&rank=16&seq=64&"
                               "targets=q+v&tuning=lora";

/* A trainer that runs its steps eagerly or as a graph. It has taken one step, which sizes the scratch memory. */
typedef struct variant {
    const pb_case *c;
    pb_trainer *t;
    pb_graph *graph; /* captured backward pass with clip; NULL: eager */
} variant;

static pb_status step(pb_ctx *ctx, const variant *a, size_t batch, double *loss)
{
    PB_TRY(pb_train_case_batch(a->c, a->t, batch));
    PB_TRY(pb_phase_forward(ctx, a->t));
    PB_TRY(pb_phase_loss(ctx, a->t));
    PB_TRY(a->graph ? pb_replay(ctx, a->graph) : pb_backward_and_clip(ctx, a->t));
    PB_TRY(pb_phase_optimizer(ctx, a->t));
    return pb_trainer_loss(a->t, loss);
}

/* Opens both variants and takes one step with each. The learning rate of that step is 0, so that it changes no
 * weight. */
static pb_status open_variants(pb_ctx *ctx, const pb_case *c, variant *eager, variant *graphed)
{
    variant *const both[] = {eager, graphed};
    double loss;
    for (int i = 0; i < 2; i++) {
        both[i]->c = c;
        PB_TRY(pb_train_case_open(ctx, c, &both[i]->t));
        PB_TRY(pb_trainer_set_lr(both[i]->t, 0));
        PB_TRY(step(ctx, both[i], 0, &loss));
        PB_TRY(pb_trainer_set_lr(both[i]->t, 1e-3f));
    }
    return PB_OK;
}

static void close_variants(pb_ctx *ctx, variant *eager, variant *graphed)
{
    pb_graph_free(ctx, graphed->graph);
    pb_trainer_close(eager->t);
    pb_trainer_close(graphed->t);
}

/* Requirement `id`: the losses of `steps` steps of case `of` must agree between eager and graph. */
typedef struct losses {
    const char *id;
    const pb_case *of;
    int steps;
    bool applies;
} losses;

static pb_status same_losses(pb_ctx *ctx, pb_emitter *emitter, const losses *l, const variant *eager,
                             const variant *graphed)
{
    const int shown[3] = {10, l->steps / 2, l->steps};
    char how[160];
    double worst = 0, at[3] = {0}, e, g;
    int done = 0;
    for (; done < l->steps && !pb_interrupted(); done++) {
        PB_TRY(step(ctx, eager, (size_t)done, &e));
        PB_TRY(step(ctx, graphed, (size_t)done, &g));
        const double d = fabs(e - g);
        worst = pb_max_or_nan(worst, d); /* a loss that is not finite makes `worst` NaN, which fails the requirement */
        for (int i = 0; i < 3; i++)
            if (done + 1 == shown[i]) at[i] = g;
    }
    if (done < l->steps) return PB_OK; /* interrupted: no row */
    snprintf(how, sizeof how, "largest difference %g, graphed loss %.4f, %.4f, %.4f at steps %d, %d, %d", worst, at[0],
             at[1], at[2], shown[0], shown[1], shown[2]);
    return pb_requirement_emit(emitter, l->id, l->of->axes, l->of->n, worst, l->applies, how);
}

/* Computes the joint norm of a layer's gradients; layer -1: of the parameters outside the layers. */
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
static pb_status clip_applies(pb_ctx *ctx, pb_emitter *emitter, const pb_case *c, const variant *graphed)
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
        worst = pb_max_or_nan(worst, deviation);
        if ((double)states[i].norm < least) least = (double)states[i].norm;
    }
    free(states);
    PB_TRY(s);
    /* If a norm did not exceed max_norm, nothing was clipped and the test shows nothing: NaN fails. */
    if (!(least > (double)max_norm)) worst = (double)NAN;
    snprintf(how, sizeof how, "norms of at least %.3g were clipped to %g", least, (double)max_norm);
    return pb_requirement_emit(emitter, "F-GRAPH-BWD-004", c->axes, c->n, worst, true, how);
}

static pb_status run_tiny(pb_ctx *ctx, pb_emitter *emitter, variant *eager, variant *graphed)
{
    pb_case c;
    PB_TRY(pb_case_parse(tiny_key, &c));
    PB_TRY(open_variants(ctx, &c, eager, graphed));
    const pb_status s = pb_record(ctx, pb_backward_and_clip, graphed->t, &graphed->graph);
    const double nodes = s == PB_OK ? (double)pb_graph_nodes(ctx, graphed->graph) : 0;
    PB_TRY(pb_requirement_emit(emitter, "F-GRAPH-BWD-002", c.axes, c.n, nodes, true,
                               s == PB_OK ? "recorded" : pb_error()));
    PB_TRY(s);
    PB_TRY(same_losses(ctx, emitter, &(losses){"F-GRAPH-BWD-001", &c, TINY_STEPS, true}, eager, graphed));
    if (pb_interrupted()) return PB_OK; /* an interrupted case emits no further row */
    /* Set a bound far below every norm and capture the graph again with it. */
    pb_graph_free(ctx, graphed->graph);
    graphed->graph = NULL;
    PB_TRY(pb_trainer_set_clip(graphed->t, PB_CLIP_FUSED, 1e-4f));
    PB_TRY(pb_record(ctx, pb_backward_and_clip, graphed->t, &graphed->graph));
    return clip_applies(ctx, emitter, &c, graphed);
}

pb_status pb_graph_requirements(pb_ctx *ctx, pb_emitter *emitter)
{
    variant eager = {0}, graphed = {0};
    if (ctx->id == PB_CPU) /* on a GPU the case `losses` of suite backward emits this row (pb_graph_losses) */
        PB_TRY(pb_requirement_emit(emitter, "F-GRAPH-BWD-001-QLORA", NULL, 0, (double)NAN, false,
                                   "on a CPU, 50 steps of both variants would take most of an hour"));
    const pb_status s = run_tiny(ctx, emitter, &eager, &graphed);
    close_variants(ctx, &eager, &graphed);
    return s;
}

/* ---- the case of suite backward ------------------------------------------------------------------------------ */

bool pb_graph_losses_is(const pb_case *c) { return strcmp(c->name, "losses") == 0; }

static bool is_qlora(const pb_case *c)
{
    return pb_case_is(c, "model", "qwen2.5-1.5b") && pb_case_is(c, "tuning", "qlora");
}

pb_status pb_graph_losses_check(const pb_case *c)
{
    const bool stream = !pb_case_get(c, "pack") || pb_case_is(c, "pack", "stream");
    if (is_qlora(c) && stream && pb_train_case_graph(c) && !pb_case_is(c, "clip", "sync")) return PB_OK;
    return pb_fail(PB_EINVAL, "case losses needs model=qwen2.5-1.5b, tuning=qlora, mode=graph, a clip other than sync, "
                              "and no packed rows");
}

double pb_graph_losses_seconds(const pb_case *c)
{
    return 2 * (pb_train_case_device_seconds(c) + (QLORA_STEPS + 1) * pb_train_case_device_step(c));
}

pb_status pb_graph_losses(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter)
{
    const losses l = {"F-GRAPH-BWD-001-QLORA", c, QLORA_STEPS, ctx->id != PB_CPU && is_qlora(c)};
    variant eager = {0}, graphed = {0};
    pb_status s = open_variants(ctx, c, &eager, &graphed);
    if (s == PB_OK) s = pb_record(ctx, pb_backward_and_clip, graphed.t, &graphed.graph);
    if (s == PB_OK) s = same_losses(ctx, emitter, &l, &eager, &graphed);
    close_variants(ctx, &eager, &graphed);
    return s;
}
