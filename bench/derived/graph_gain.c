/* graph_gain.c - computes break_even and crossover from measured rows. */
#include "bench/derived/graph_gain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 256 };

/* ---- the crossover ---------------------------------------------------------------------------------- */

static int by_tokens(const void *a, const void *b)
{
    const double x = ((const pb_gain_point *)a)->tokens, y = ((const pb_gain_point *)b)->tokens;
    return (x > y) - (x < y);
}

/* Replaces points with equal tokens by their mean; p is sorted. Returns the number of points left. */
static int join(pb_gain_point *p, int n)
{
    int kept = 0;
    for (int i = 0, end; i < n; i = end) {
        double sum = 0;
        for (end = i; end < n && p[end].tokens <= p[i].tokens; end++) sum += p[end].ratio;
        p[kept++] = (pb_gain_point){p[i].tokens, sum / (end - i)};
    }
    return kept;
}

pb_crossing pb_crossover(pb_gain_point *p, int n, double least, double *tokens)
{
    qsort(p, (size_t)n, sizeof *p, by_tokens);
    n = join(p, n);
    int last = n - 1;
    while (last >= 0 && !(p[last].ratio >= least)) last--;
    if (last < 0) return PB_NEVER_PAYS;
    if (last == n - 1) return PB_ALWAYS_PAYS;
    const pb_gain_point *a = &p[last], *b = &p[last + 1];
    const double part = (a->ratio - least) / (a->ratio - b->ratio);
    *tokens = exp(log(a->tokens) + part * (log(b->tokens) - log(a->tokens)));
    return PB_CROSSES;
}

/* ---- which cases are compared ------------------------------------------------------------------------ */

bool pb_graph_twin(const pb_case *c, pb_case *eager)
{
    const char *mode = pb_case_get(c, "mode");
    pb_case twin = *c;
    if (!mode || strcmp(mode, "graph") != 0 || pb_case_set(&twin, "mode", "eager") != PB_OK) return false;
    pb_case_finish(&twin);
    *eager = twin;
    return true;
}

pb_status pb_graph_family(const pb_case *c, pb_case *out)
{
    pb_case f = {.suite = "crossover"};
    snprintf(f.name, sizeof f.name, "%s", c->suite);
    for (int i = 0; i < c->n; i++) {
        const char *axis = c->axes[i].name;
        if (strcmp(axis, "batch") == 0 || strcmp(axis, "seq") == 0 || strcmp(axis, "mode") == 0) continue;
        PB_TRY(pb_case_set(&f, axis, c->axes[i].value));
    }
    pb_case_finish(&f);
    *out = f;
    return PB_OK;
}

/* ---- rows --------------------------------------------------------------------------------------------- */

typedef struct gain {
    pb_case c; /* the case with mode=graph */
    double tokens, eager, graph;
} gain;

/* False: the key is not a mode=graph case of the suite, or a time of it or of its eager case is missing. */
static bool gain_of(const pb_sink *sink, const char *key, const char *suite, const char *metric, gain *out)
{
    long batch, seq;
    gain g;
    if (pb_case_parse(key, &g.c) != PB_OK || strcmp(g.c.suite, suite) != 0) return false;
    pb_case eager;
    if (!pb_graph_twin(&g.c, &eager) || !pb_sink_value(sink, key, metric, &g.graph)) return false;
    if (!pb_sink_value(sink, eager.key, metric, &g.eager)) return false;
    if (pb_case_int(&g.c, "batch", &batch) != PB_OK || pb_case_int(&g.c, "seq", &seq) != PB_OK) return false;
    g.tokens = (double)batch * (double)seq;
    *out = g;
    return true;
}

static pb_status emit_break_even(pb_sink *sink, const gain *g)
{
    double record;
    char note[96];
    if (!pb_sink_value(sink, g->c.key, "record_time", &record)) return PB_OK;
    snprintf(note, sizeof note, "eager %.4g s, graph %.4g s a call", g->eager, g->graph);
    if (!(g->eager > g->graph)) return pb_emit(sink, &g->c, "break_even", (double)NAN, 0, "unsupported", note);
    return pb_emit(sink, &g->c, "break_even", record / (g->eager - g->graph), 0, "ok", "");
}

static pb_status emit_crossover(pb_sink *sink, const pb_case *family, pb_gain_point *p, int n)
{
    char note[160];
    double tokens = (double)NAN, most = 0;
    for (int i = 0; i < n; i++) most = p[i].ratio > most ? p[i].ratio : most;
    const pb_crossing how = pb_crossover(p, n, PB_GRAPH_PAYS, &tokens);
    snprintf(note, sizeof note, "%d sizes; gain at most %.3f; %s", n, most,
             how == PB_CROSSES       ? "of tokens a step"
             : how == PB_ALWAYS_PAYS ? "pays at every size"
                                     : "pays at none");
    return pb_emit(sink, family, "crossover", tokens, 0, how == PB_CROSSES ? "ok" : "unsupported", note);
}

/* Emits one crossover for each family, which is a set of cases that differ only in batch and seq. */
static pb_status crossovers(pb_sink *sink, const gain *g, int n)
{
    for (int i = 0; i < n; i++) {
        pb_gain_point p[MAX_POINTS];
        pb_case family, other;
        int points = 0;
        bool first = true;
        PB_TRY(pb_graph_family(&g[i].c, &family));
        for (int k = 0; k < n && first; k++) {
            PB_TRY(pb_graph_family(&g[k].c, &other));
            if (strcmp(other.key, family.key) != 0) continue;
            first = k >= i;
            if (points < MAX_POINTS) p[points++] = (pb_gain_point){g[k].tokens, g[k].eager / g[k].graph};
        }
        if (first) PB_TRY(emit_crossover(sink, &family, p, points));
    }
    return PB_OK;
}

pb_status pb_graph_gain_conclude(pb_sink *sink, const char *suite, const char *metric)
{
    gain *g = NULL;
    int n = 0, keys = 0;
    pb_status s = PB_OK;
    while (pb_sink_key(sink, keys)) keys++;
    if (keys) g = calloc((size_t)keys, sizeof *g);
    if (keys && !g) return pb_fail(PB_ENOMEM, "no memory for the graphs' gains");
    for (int i = 0; i < keys; i++) { /* ends before the first row is emitted, which adds keys */
        const char *key = pb_sink_key(sink, i);
        bool seen = false;
        for (int k = 0; k < n && !seen; k++) seen = strcmp(g[k].c.key, key) == 0;
        if (!seen && gain_of(sink, key, suite, metric, &g[n])) n++;
    }
    for (int i = 0; s == PB_OK && i < n; i++) s = emit_break_even(sink, &g[i]);
    if (s == PB_OK) s = crossovers(sink, g, n);
    free(g);
    return s;
}
