/* requirements.c - emits requirement rows, and computes the requirements that are ratios of two measured cases. */
#include "bench/derived/requirements.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct requirement {
    const char *id, *statement, *metric, *relation;
    double bound;
    const char *where;
} requirement;

static const requirement requirements[] = {
#define REQUIREMENT(id, statement, metric, relation, bound, where) {id, statement, metric, relation, bound, where},
#include "bench/derived/requirements.def"
#undef REQUIREMENT
};

/* NULL: requirements.def has no such requirement. */
static const requirement *find(const char *id)
{
    for (size_t i = 0; i < sizeof requirements / sizeof *requirements; i++)
        if (strcmp(requirements[i].id, id) == 0) return &requirements[i];
    return NULL;
}

static bool holds(const requirement *c, double figure)
{
    if (strcmp(c->relation, "<=") == 0) return figure <= c->bound;
    if (strcmp(c->relation, ">=") == 0) return figure >= c->bound;
    return figure > c->bound;
}

pb_status pb_requirement_emit(pb_sink *sink, const char *id, const pb_axis *axes, int n, double figure, bool applies,
                              const char *how)
{
    const requirement *c = find(id);
    char note[320];
    pb_case key = {.suite = "requirement"};
    if (!c) return pb_fail(PB_EINVAL, "requirement %.60s is not in requirements.def", id);
    snprintf(key.name, sizeof key.name, "%s", id);
    for (int i = 0; i < n; i++) PB_TRY(pb_case_set(&key, axes[i].name, axes[i].value));
    pb_case_finish(&key);
    if (applies) snprintf(note, sizeof note, "%s: %s %s %g; %s", c->statement, c->metric, c->relation, c->bound, how);
    else snprintf(note, sizeof note, "applies to %s; %s", c->where, how);
    return pb_emit(sink, &key, "requirement", figure, 0,
                   !applies           ? "unsupported"
                   : holds(c, figure) ? "pass"
                                      : "fail",
                   note);
}

/* ---- requirements that are ratios of measured cases --------------------------------------------------- */

static bool rate(const pb_sink *sink, const pb_case *like, const char *mode, const char *clip, double *out)
{
    pb_case c = *like;
    if (pb_case_set(&c, "mode", mode) != PB_OK || pb_case_set(&c, "clip", clip) != PB_OK) return false;
    pb_case_finish(&c);
    return pb_sink_value(sink, c.key, "tokens_per_second", out);
}

/* True if the ratios are computed from this case: backward phase, LoRA, graph, fused clip, batch 4. */
static bool judged_by(const char *key, pb_case *c)
{
    return pb_case_parse(key, c) == PB_OK && strcmp(c->suite, "backward") == 0 && pb_case_is(c, "tuning", "lora") &&
           pb_case_is(c, "mode", "graph") && pb_case_is(c, "clip", "fused") && pb_case_is(c, "batch", "4");
}

static pb_status ratio(pb_ctx *ctx, pb_sink *sink, const char *id, const pb_case *like, const char *clip)
{
    double graph, eager;
    char how[160];
    if (!like) return pb_requirement_emit(sink, id, NULL, 0, (double)NAN, false, "this run has no such case");
    if (!rate(sink, like, "graph", "fused", &graph) || !rate(sink, like, "eager", clip, &eager))
        return pb_requirement_emit(sink, id, like->axes, like->n, (double)NAN, false,
                                   "this run lacks one of the two variants");
    const bool applies = ctx->id != PB_CPU && pb_case_is(like, "seq", "512");
    snprintf(how, sizeof how, "here %s, seq %s: %.3f", ctx->be->name, pb_case_get(like, "seq"), graph / eager);
    return pb_requirement_emit(sink, id, like->axes, like->n, graph / eager, applies, how);
}

static pb_status both_ratios(pb_ctx *ctx, pb_sink *sink, const pb_case *like)
{
    PB_TRY(ratio(ctx, sink, "F-GRAPH-BWD-003a", like, "fused"));
    return ratio(ctx, sink, "F-GRAPH-BWD-003b", like, "sync");
}

/* Emits the ratios for every such case with seq 512. If none was measured, it uses the first case of another length,
 * whose row is unsupported but shows the value, or emits unsupported rows without a value. */
pb_status pb_requirement_ratios(pb_ctx *ctx, pb_sink *sink)
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
