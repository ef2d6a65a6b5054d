/* contracts.c - measures the contracts that need a run of their own and derives those that are ratios. */
#include "bench/contracts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/train_case.h"
#include "os/interrupt.h"

typedef struct contract {
    const char *id, *statement, *metric, *relation;
    double bound;
    const char *where;
} contract;

static const contract contracts[] = {
#define CONTRACT(id, statement, metric, relation, bound, where) {id, statement, metric, relation, bound, where},
#include "bench/contracts.def"
#undef CONTRACT
};

static const contract *find(const char *id)
{
    const contract *c = contracts;
    while (strcmp(c->id, id) != 0) c++;
    return c;
}

static bool holds(const contract *c, double figure)
{
    if (strcmp(c->relation, "<=") == 0) return figure <= c->bound;
    if (strcmp(c->relation, ">=") == 0) return figure >= c->bound;
    return figure > c->bound;
}

pb_status pb_contract_emit(pb_sink *sink, const char *id, const pb_axis *axes, int n, double figure, bool applies,
                           const char *how)
{
    const contract *c = find(id);
    char note[320];
    pb_case key = {.suite = "contract"};
    snprintf(key.name, sizeof key.name, "%s", id);
    for (int i = 0; i < n; i++) PB_TRY(pb_case_set(&key, axes[i].name, axes[i].value));
    pb_case_finish(&key);
    if (applies) snprintf(note, sizeof note, "%s: %s %s %g; %s", c->statement, c->metric, c->relation, c->bound, how);
    else snprintf(note, sizeof note, "applies to %s; %s", c->where, how);
    return pb_emit(sink, &key, "contract", figure, 0,
                   !applies           ? "unsupported"
                   : holds(c, figure) ? "pass"
                                      : "fail",
                   note);
}

/* ---- contracts with a run of their own, on tiny ------------------------------------------------------- */

static const pb_axis tiny_axes[] = {
    {"batch", "2"}, {"clip", "fused"}, {"dtype", "f32"},   {"layers", "0"},    {"model", "tiny"},
    {"rank", "16"}, {"seq", "64"},     {"targets", "q+v"}, {"tuning", "lora"},
};
enum { TINY_AXES = sizeof tiny_axes / sizeof *tiny_axes };

static pb_status open_tiny(pb_ctx *ctx, pb_trainer **out)
{
    pb_case c = {.suite = "contract", .name = "tiny"};
    for (int i = 0; i < TINY_AXES; i++) PB_TRY(pb_case_set(&c, tiny_axes[i].name, tiny_axes[i].value));
    return pb_train_case_open(ctx, &c, out);
}

/* What the arms of F-GRAPH-BWD-001 have in common: a trainer that has taken one step, to size its scratch,
 * and for the graphed arm the recorded backward. */
typedef struct arm {
    pb_trainer *t;
    pb_graph *graph; /* NULL: eager */
} arm;

static pb_status step(pb_ctx *ctx, const arm *a, size_t batch, double *loss)
{
    PB_TRY(pb_train_case_batch(a->t, batch));
    PB_TRY(pb_phase_forward(ctx, a->t));
    PB_TRY(pb_phase_loss(ctx, a->t));
    PB_TRY(a->graph ? pb_replay(ctx, a->graph) : pb_backward_and_clip(ctx, a->t));
    PB_TRY(pb_phase_optimizer(ctx, a->t));
    return pb_trainer_loss(a->t, loss);
}

static pb_status same_losses(pb_ctx *ctx, pb_sink *sink, const arm *eager, const arm *graphed)
{
    char how[160];
    double worst = 0, at[3] = {0}, e, g;
    int done = 0;
    for (; done < PB_CONTRACT_STEPS && !pb_interrupted(); done++) {
        PB_TRY(step(ctx, eager, (size_t)done, &e));
        PB_TRY(step(ctx, graphed, (size_t)done, &g));
        const double d = fabs(e - g);
        if (!(d <= worst)) worst = d;                                 /* NaN wins: a loss that is not finite fails */
        if (done == 9 || done == 49 || done == 99) at[done / 49] = g; /* 0, 1, 2 */
    }
    if (done < PB_CONTRACT_STEPS) return PB_OK;
    snprintf(how, sizeof how, "largest difference %g, graphed loss %.4f, %.4f, %.4f at steps 10, 50, 100", worst, at[0],
             at[1], at[2]);
    return pb_contract_emit(sink, "F-GRAPH-BWD-001", tiny_axes, TINY_AXES, worst, true, how);
}

/* Gradients far above the bound go through the recorded clip; every layer's joint norm must be the bound. */
static pb_status clip_applies(pb_ctx *ctx, pb_sink *sink, const arm *graphed)
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
    for (int layer = 0; s == PB_OK && layer < groups; layer++) {
        double sum = 0;
        for (int i = 0; s == PB_OK && i < m->n; i++) {
            const pb_param *p = &m->params[i];
            const size_t n = pb_param_n(p);
            if (!p->trained || p->layer != layer) continue;
            float *host = malloc(n * sizeof *host);
            s = host ? pb_download(ctx, host, p->grad, n * sizeof *host)
                     : pb_fail(PB_ENOMEM, "no memory for a gradient");
            for (size_t k = 0; s == PB_OK && k < n; k++) sum += (double)host[k] * (double)host[k];
            free(host);
        }
        const double excess = sqrt(sum) / (double)max_norm - 1;
        if (!(excess <= worst)) worst = excess;
        if ((double)states[layer].norm < least) least = (double)states[layer].norm;
    }
    free(states);
    PB_TRY(s);
    if (!(least > (double)max_norm)) worst = (double)NAN; /* nothing was inflated: no evidence */
    snprintf(how, sizeof how, "norms of at least %.3g were cut to %g", least, (double)max_norm);
    return pb_contract_emit(sink, "F-GRAPH-BWD-004", tiny_axes, TINY_AXES, worst, true, how);
}

static pb_status run_arms(pb_ctx *ctx, pb_sink *sink, arm *eager, arm *graphed)
{
    double loss;
    pb_status s;
    PB_TRY(open_tiny(ctx, &eager->t));
    PB_TRY(open_tiny(ctx, &graphed->t));
    /* With lr 0 this changes nothing but the step number, alike in both. */
    PB_TRY(pb_trainer_set_lr(eager->t, 0));
    PB_TRY(pb_trainer_set_lr(graphed->t, 0));
    PB_TRY(step(ctx, eager, 0, &loss));
    PB_TRY(step(ctx, graphed, 0, &loss));
    PB_TRY(pb_trainer_set_lr(eager->t, 1e-3f));
    PB_TRY(pb_trainer_set_lr(graphed->t, 1e-3f));
    s = pb_record(ctx, pb_backward_and_clip, graphed->t, &graphed->graph);
    const double nodes = s == PB_OK ? (double)pb_graph_nodes(ctx, graphed->graph) : 0;
    PB_TRY(pb_contract_emit(sink, "F-GRAPH-BWD-002", tiny_axes, TINY_AXES, nodes, true,
                            s == PB_OK ? "recorded" : pb_error()));
    PB_TRY(s);
    PB_TRY(same_losses(ctx, sink, eager, graphed));
    /* A bound far below every norm, and a graph that was recorded with it. */
    pb_graph_free(ctx, graphed->graph);
    graphed->graph = NULL;
    PB_TRY(pb_trainer_set_clip(graphed->t, PB_CLIP_FUSED, 1e-4f));
    PB_TRY(pb_record(ctx, pb_backward_and_clip, graphed->t, &graphed->graph));
    return clip_applies(ctx, sink, graphed);
}

/* ---- contracts that are ratios of measured cases ------------------------------------------------------ */

static bool rate(const pb_sink *sink, const pb_case *like, const char *mode, const char *clip, double *out)
{
    pb_case c = *like;
    if (pb_case_set(&c, "mode", mode) != PB_OK || pb_case_set(&c, "clip", clip) != PB_OK) return false;
    pb_case_finish(&c);
    return pb_sink_value(sink, c.key, "tokens_per_second", out);
}

/* Whether the ratios are judged by this case: LoRA, graph, fused, batch 4. */
static bool judged_by(const char *key, pb_case *c)
{
    return pb_case_parse(key, c) == PB_OK && strcmp(c->suite, "backward") == 0 && pb_case_is(c, "tuning", "lora") &&
           pb_case_is(c, "mode", "graph") && pb_case_is(c, "clip", "fused") && pb_case_is(c, "batch", "4");
}

static pb_status ratio(pb_ctx *ctx, pb_sink *sink, const char *id, const pb_case *like, const char *clip)
{
    double graph, eager;
    char how[160];
    if (!like) return pb_contract_emit(sink, id, NULL, 0, (double)NAN, false, "this run has no such case");
    if (!rate(sink, like, "graph", "fused", &graph) || !rate(sink, like, "eager", clip, &eager))
        return pb_contract_emit(sink, id, like->axes, like->n, (double)NAN, false,
                                "this run lacks one of the two arms");
    const bool applies = ctx->id != PB_CPU && pb_case_is(like, "seq", "512");
    snprintf(how, sizeof how, "here %s, seq %s: %.3f", ctx->be->name, pb_case_get(like, "seq"), graph / eager);
    return pb_contract_emit(sink, id, like->axes, like->n, graph / eager, applies, how);
}

static pb_status both_ratios(pb_ctx *ctx, pb_sink *sink, const pb_case *like)
{
    PB_TRY(ratio(ctx, sink, "F-GRAPH-BWD-003a", like, "fused"));
    return ratio(ctx, sink, "F-GRAPH-BWD-003b", like, "sync");
}

/* Every such case with seq 512; if there is none, the first of any length, so that the figure stands somewhere. */
static pb_status ratios(pb_ctx *ctx, pb_sink *sink)
{
    pb_case c, other;
    bool found = false, any = false;
    const char *key;
    for (int i = 0; (key = pb_sink_key(sink, i)) != NULL; i++) {
        if (!judged_by(key, &c)) continue;
        if (!any) other = c;
        any = true;
        if (!pb_case_is(&c, "seq", "512")) continue;
        found = true;
        PB_TRY(both_ratios(ctx, sink, &c));
    }
    return found ? PB_OK : both_ratios(ctx, sink, any ? &other : NULL);
}

pb_status pb_contracts_conclude(pb_ctx *ctx, pb_sink *sink)
{
    arm eager = {0}, graphed = {0};
    PB_TRY(ratios(ctx, sink));
    pb_status s = run_arms(ctx, sink, &eager, &graphed);
    pb_graph_free(ctx, graphed.graph);
    pb_trainer_close(eager.t);
    pb_trainer_close(graphed.t);
    return s;
}
