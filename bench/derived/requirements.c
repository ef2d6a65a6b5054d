/* requirements.c - judges the requirements of requirements.def on measured cases and on ratios of two cases, and emits
 * their rows. */
#include "bench/derived/requirements.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIREMENT(id, statement, quantity, relation, bound, words)                                                   \
    {id, statement, quantity, relation, bound, .where = words},
#define REQUIREMENT_ON_CASES(id, statement, quantity, relation, bound, on, judged, which, ...)                         \
    {id,                                                                                                               \
     statement,                                                                                                        \
     quantity,                                                                                                         \
     relation,                                                                                                         \
     bound,                                                                                                            \
     .where = WHERE_##on,                                                                                              \
     .machine = PB_MACHINE_##on,                                                                                       \
     .metric = #judged,                                                                                                \
     .best = PB_BEST_##which,                                                                                          \
     .cases = (const pb_judged_case[]){__VA_ARGS__, {NULL, NULL}}},
#define CASE(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define WHERE_any_gpu "a GPU"
#define WHERE_h200    "an NVIDIA H200"
const pb_requirement pb_requirements[] = {
#include "bench/derived/requirements.def"
    {.id = NULL}};
#undef REQUIREMENT
#undef REQUIREMENT_ON_CASES
#undef CASE

/* Finds a requirement by its id; NULL: requirements.def has no such requirement. */
static const pb_requirement *find(const char *id)
{
    for (const pb_requirement *r = pb_requirements; r->id; r++)
        if (strcmp(r->id, id) == 0) return r;
    return NULL;
}

static bool holds(const pb_requirement *c, double figure)
{
    if (strcmp(c->relation, "<=") == 0) return figure <= c->bound;
    if (strcmp(c->relation, ">=") == 0) return figure >= c->bound;
    return figure > c->bound;
}

pb_status pb_requirement_emit(pb_emitter *emitter, const char *id, const pb_axis *axes, int n, double figure,
                              bool applies, const char *how)
{
    const pb_requirement *c = find(id);
    char note[320];
    pb_case key = {.suite = "requirement"};
    if (!c) return pb_fail(PB_EINVAL, "requirement %.60s is not in requirements.def", id);
    if (emitter->control) return PB_OK;
    snprintf(key.name, sizeof key.name, "%s", id);
    for (int i = 0; i < n; i++) PB_TRY(pb_case_set(&key, axes[i].name, axes[i].value));
    pb_case_finish(&key);
    if (applies) snprintf(note, sizeof note, "%s: %s %s %g; %s", c->statement, c->quantity, c->relation, c->bound, how);
    else snprintf(note, sizeof note, "applies to %s; %s", c->where, how);
    return pb_emit(emitter, &key, "requirement", figure, 0,
                   !applies           ? PB_ROW_UNSUPPORTED
                   : holds(c, figure) ? PB_ROW_PASS
                                      : PB_ROW_FAIL,
                   note);
}

/* ---- requirements on measured cases ------------------------------------------------------------------- */

/* True if `axis` is `ranks` or one of those of `omitted`, "axis=value axis=value". */
static bool is_omitted(const char *omitted, const char *axis)
{
    const size_t n = strlen(axis);
    if (strcmp(axis, "ranks") == 0) return true;
    for (const char *at = omitted; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strncmp(at, axis, n) == 0 && at[n] == '=') return true;
    return false;
}

/* True if the measured case `c` has the suite, the name and the axes of `of`, a case of the requirement. `c` may have
 * more axes, but none that keys omit: with such an axis the step is another one. */
static bool is_of(const pb_case *c, const pb_case *of, const char *omitted)
{
    for (int i = 0; i < c->n; i++)
        if (is_omitted(omitted, c->axes[i].name) && !pb_case_get(of, c->axes[i].name)) return false;
    if (strcmp(c->suite, of->suite) != 0 || strcmp(c->name, of->name) != 0) return false;
    for (int i = 0; i < of->n; i++) {
        const char *v = pb_case_get(c, of->axes[i].name);
        if (!v || strcmp(v, of->axes[i].value) != 0) return false;
    }
    return true;
}

/* Finds the best value among the measured cases that match `of`; they may differ in axes that `of` does not name.
 * False: no case matches. */
static bool find_best(const pb_emitter *emitter, const pb_requirement *r, const pb_case *of, const char *omitted,
                      pb_case *out, double *figure)
{
    const char *key;
    bool found = false;
    for (int i = 0; (key = pb_emitted_key(emitter, i)) != NULL; i++) {
        pb_case c;
        double v;
        if (pb_case_parse(key, &c) != PB_OK || !is_of(&c, of, omitted)) continue;
        if (!pb_emitted_value(emitter, key, r->metric, &v)) continue;
        if (found && (r->best == PB_BEST_lowest ? v >= *figure : v <= *figure)) continue;
        *out = c;
        *figure = v;
        found = true;
    }
    return found;
}

static pb_status judge(pb_emitter *emitter, const pb_requirement *r, const pb_case *of, const char *omitted,
                       const char *words)
{
    static const char *const part_of_machine_id[PB_MACHINES] = {
        [PB_MACHINE_any_gpu] = "", [PB_MACHINE_h200] = "-h200-"};
    const bool here = strstr(emitter->machine_id, part_of_machine_id[r->machine]) != NULL;
    pb_case c;
    double figure = 0;
    char how[200];
    if (!find_best(emitter, r, of, omitted, &c, &figure)) return PB_OK;
    snprintf(how, sizeof how, "%s: %.4g", words, figure);
    if (strcmp(c.suite, "kernels") == 0) PB_TRY(pb_case_set(&c, "op", of->name));
    return pb_requirement_emit(emitter, r->id, c.axes, c.n, figure, here, how);
}

pb_status pb_requirements_conclude(pb_emitter *emitter, const char *suite, const char *omitted)
{
    for (const pb_requirement *r = pb_requirements; r->id; r++)
        for (const pb_judged_case *j = r->cases; j && j->key; j++) {
            pb_case of;
            PB_TRY(pb_case_parse(j->key, &of));
            if (strcmp(of.suite, suite) == 0) PB_TRY(judge(emitter, r, &of, omitted, j->words));
        }
    return PB_OK;
}

/* ---- requirements that are ratios of measured cases --------------------------------------------------- */

static bool rate(const pb_emitter *emitter, const pb_case *like, const char *mode, const char *clip, double *out)
{
    pb_case c = *like;
    if (pb_case_set(&c, "mode", mode) != PB_OK || pb_case_set(&c, "clip", clip) != PB_OK) return false;
    pb_case_finish(&c);
    return pb_emitted_value(emitter, c.key, "tokens_per_second", out);
}

/* True if F-GRAPH-BWD-003a and 003b are computed from this case: suite backward, mode=graph, clip=fused, batch=4. */
static bool judged_by(const char *key, const char *tuning, pb_case *c)
{
    return pb_case_parse(key, c) == PB_OK && strcmp(c->suite, "backward") == 0 && pb_case_is(c, "tuning", tuning) &&
           pb_case_is(c, "mode", "graph") && pb_case_is(c, "clip", "fused") && pb_case_is(c, "batch", "4");
}

/* Emits requirement `id`: tokens per second as a graph, divided by those eager, in the case `like`. clip: the axis clip
 * of the eager case. */
static pb_status ratio(pb_ctx *ctx, pb_emitter *emitter, const char *id, const pb_case *like, const char *clip)
{
    double graph, eager;
    char how[160];
    if (!rate(emitter, like, "graph", "fused", &graph) || !rate(emitter, like, "eager", clip, &eager))
        return pb_requirement_emit(emitter, id, like->axes, like->n, (double)NAN, false,
                                   "this run lacks one of the two variants");
    const bool applies = ctx->id != PB_CPU && pb_case_is(like, "seq", "512");
    snprintf(how, sizeof how, "here %s, seq %s: %.3f", ctx->be->name, pb_case_get(like, "seq"), graph / eager);
    return pb_requirement_emit(emitter, id, like->axes, like->n, graph / eager, applies, how);
}

static pb_status both_ratios(pb_ctx *ctx, pb_emitter *emitter, const pb_case *like)
{
    PB_TRY(ratio(ctx, emitter, "F-GRAPH-BWD-003a", like, "fused"));
    return ratio(ctx, emitter, "F-GRAPH-BWD-003b", like, "sync");
}

static pb_status no_ratios(pb_emitter *emitter, const char *tuning)
{
    pb_axis axis = {.name = "tuning"};
    snprintf(axis.value, sizeof axis.value, "%s", tuning);
    static const char *const ids[] = {"F-GRAPH-BWD-003a", "F-GRAPH-BWD-003b"};
    for (int i = 0; i < 2; i++)
        PB_TRY(pb_requirement_emit(emitter, ids[i], &axis, 1, (double)NAN, false, "this run has no such case"));
    return PB_OK;
}

/* Emits F-GRAPH-BWD-003a and 003b, the ratios of a tuning, for each of its cases with seq 512. If none was measured, it
 * uses the first case of another length, whose row is unsupported but shows the value, or emits unsupported rows
 * without a value. */
static pb_status ratios_of(pb_ctx *ctx, pb_emitter *emitter, const char *tuning)
{
    pb_case c, other;
    bool found = false, any = false;
    const char *key;
    for (int i = 0; (key = pb_emitted_key(emitter, i)) != NULL; i++) {
        if (!judged_by(key, tuning, &c)) continue;
        if (!any) other = c;
        any = true;
        if (!pb_case_is(&c, "seq", "512")) continue;
        found = true;
        PB_TRY(both_ratios(ctx, emitter, &c));
    }
    if (found) return PB_OK;
    return any ? both_ratios(ctx, emitter, &other) : no_ratios(emitter, tuning);
}

pb_status pb_requirement_ratios(pb_ctx *ctx, pb_emitter *emitter)
{
    PB_TRY(ratios_of(ctx, emitter, "lora"));
    return ratios_of(ctx, emitter, "qlora");
}
