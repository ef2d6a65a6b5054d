/* bars.c - compares the best measured case of each speed requirement in bars.def with its limit in requirements.def. */
#include "bench/derived/bars.h"

#include <stdio.h>
#include <string.h>

#include "bench/derived/requirements.h"
#include "bench/measure/emit.h"

enum { lowest, highest }; /* which value counts as the best */
enum { any_gpu, h200 };   /* on which machines the requirement applies */

typedef struct bar {
    /* of: a key whose suite, name and axes a case must have; what: the case in words; id: key into requirements.def. */
    const char *of, *what, *id, *metric;
    int best, where;
} bar;

static const bar bars[] = {
#define BAR(of, what, id, metric, best, where) {of, what, id, #metric, best, where},
#include "bench/derived/bars.def"
#undef BAR
};
enum { BARS = sizeof bars / sizeof *bars };

const char *pb_bar_case(size_t i) { return i < BARS ? bars[i].of : NULL; }

/* True if case `c` is one that the requirement is about: same suite and name, and every axis that `of` names. */
static bool is_of(const pb_case *c, const pb_case *of)
{
    if (strcmp(c->suite, of->suite) != 0 || strcmp(c->name, of->name) != 0) return false;
    for (int i = 0; i < of->n; i++) {
        const char *v = pb_case_get(c, of->axes[i].name);
        if (!v || strcmp(v, of->axes[i].value) != 0) return false;
    }
    return true;
}

/* Finds the best value among the matching cases, which may differ in axes that `of` does not name. False: none
 * exists. */
static bool find_best(const pb_sink *sink, const bar *b, const pb_case *of, pb_case *out, double *figure)
{
    const char *key;
    bool found = false;
    for (int i = 0; (key = pb_sink_key(sink, i)) != NULL; i++) {
        pb_case c;
        double v;
        if (pb_case_parse(key, &c) != PB_OK || !is_of(&c, of)) continue;
        if (!pb_sink_value(sink, key, b->metric, &v)) continue;
        if (found && (b->best == lowest ? v >= *figure : v <= *figure)) continue;
        *out = c;
        *figure = v;
        found = true;
    }
    return found;
}

static pb_status conclude(pb_sink *sink, const bar *b, const pb_case *of)
{
    const bool here = b->where == any_gpu || strstr(sink->machine_id, "-h200-");
    pb_case c;
    double figure = 0;
    char how[200];
    if (!find_best(sink, b, of, &c, &figure)) return PB_OK;
    snprintf(how, sizeof how, "%s: %.4g", b->what, figure);
    if (strcmp(c.suite, "kernels") == 0) PB_TRY(pb_case_set(&c, "op", of->name));
    return pb_requirement_emit(sink, b->id, c.axes, c.n, figure, here, how);
}

pb_status pb_bars_conclude(pb_sink *sink, const char *suite)
{
    for (size_t i = 0; i < BARS; i++) {
        pb_case of;
        PB_TRY(pb_case_parse(bars[i].of, &of));
        if (strcmp(of.suite, suite) == 0) PB_TRY(conclude(sink, &bars[i], &of));
    }
    return PB_OK;
}
