/* graph_gain.c - computes from measured rows after how many calls a graph's recording is paid for (break_even), and
 * from how many tokens per step a graph no longer gains (crossover). */
#include "bench/derived/graph_gain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding the number of tokens from which a graph no longer pays --------------------------------- */

static int by_tokens(const void *a, const void *b)
{
    const double x = ((const pb_gain_point *)a)->tokens, y = ((const pb_gain_point *)b)->tokens;
    return (x > y) - (x < y);
}

/* Sorts the points by tokens and replaces points with equal tokens by their mean. Returns the number of points left. */
static int arrange(pb_gain_point *p, int n)
{
    int kept = 0;
    qsort(p, (size_t)n, sizeof *p, by_tokens);
    for (int i = 0, end; i < n; i = end) {
        double sum = 0;
        for (end = i; end < n && p[end].tokens <= p[i].tokens; end++) sum += p[end].ratio;
        p[kept++] = (pb_gain_point){p[i].tokens, sum / (end - i)};
    }
    return kept;
}

pb_crossing pb_crossover(pb_gain_point *p, int n, double least, double *tokens)
{
    n = arrange(p, n);
    int last = n - 1;
    while (last >= 0 && !(p[last].ratio >= least)) last--;
    if (last < 0) return PB_NEVER_PAYS;
    if (last == n - 1) return PB_ALWAYS_PAYS;
    const pb_gain_point *a = &p[last], *b = &p[last + 1];
    const double part = (a->ratio - least) / (a->ratio - b->ratio);
    *tokens = exp(log(a->tokens) + part * (log(b->tokens) - log(a->tokens)));
    return PB_CROSSES;
}

/* Collects in p the points of the family of all[i]. Returns their number; 0: an earlier point has this family. */
static int family_of(const pb_family_point *all, int n, int i, pb_gain_point *p)
{
    int points = 0;
    for (int k = 0; k < n; k++) {
        if (strcmp(all[k].family.key, all[i].family.key) != 0) continue;
        if (k < i) return 0;
        p[points++] = all[k].at;
    }
    return points;
}

pb_status pb_crossover_families(pb_emitter *emitter, const pb_family_point *all, int n, pb_family_emit *emit)
{
    pb_gain_point *p = malloc(((size_t)n + 1) * sizeof *p);
    pb_status s = p ? PB_OK : pb_fail(PB_ENOMEM, "no memory for %d points of crossovers", n);
    for (int i = 0; s == PB_OK && i < n; i++) {
        const int points = family_of(all, n, i, p);
        if (points) s = emit(emitter, &all[i].family, p, arrange(p, points));
    }
    free(p);
    return s;
}

/* ---- finding the eager case to compare with, and the family of a case -------------------------------- */

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

/* ---- emitting break_even and crossover ---------------------------------------------------------------- */

typedef struct gain {
    pb_case c; /* the case with mode=graph */
    double tokens, eager, graph;
} gain;

/* Fills *out with the times of a mode=graph case and of its eager case. False: the key is not a mode=graph case of the
 * suite, or one of the two times is missing. */
static bool gain_of(const pb_emitter *emitter, const char *key, const char *suite, const char *metric, gain *out)
{
    long batch, seq;
    gain g;
    if (pb_case_parse(key, &g.c) != PB_OK || strcmp(g.c.suite, suite) != 0) return false;
    pb_case eager;
    if (!pb_graph_twin(&g.c, &eager) || !pb_emitted_value(emitter, key, metric, &g.graph)) return false;
    if (!pb_emitted_value(emitter, eager.key, metric, &g.eager)) return false;
    if (pb_case_int(&g.c, "batch", &batch) != PB_OK || pb_case_int(&g.c, "seq", &seq) != PB_OK) return false;
    g.tokens = (double)batch * (double)seq;
    *out = g;
    return true;
}

static pb_status emit_break_even(pb_emitter *emitter, const gain *g)
{
    double record;
    char note[96];
    if (!pb_emitted_value(emitter, g->c.key, "record_time", &record)) return PB_OK;
    snprintf(note, sizeof note, "eager %.4g s, graph %.4g s a call", g->eager, g->graph);
    if (!(g->eager > g->graph)) return pb_emit(emitter, &g->c, "break_even", (double)NAN, 0, PB_ROW_UNSUPPORTED, note);
    return pb_emit(emitter, &g->c, "break_even", record / (g->eager - g->graph), 0, PB_ROW_OK, "");
}

static pb_status emit_crossover(pb_emitter *emitter, const pb_case *family, pb_gain_point *p, int n)
{
    char note[160];
    double tokens = (double)NAN, most = 0;
    for (int i = 0; i < n; i++) most = p[i].ratio > most ? p[i].ratio : most;
    const pb_crossing how = pb_crossover(p, n, PB_GRAPH_PAYS, &tokens);
    snprintf(note, sizeof note, "%d sizes; gain at most %.3f; %s", n, most,
             how == PB_CROSSES       ? "of tokens a step"
             : how == PB_ALWAYS_PAYS ? "pays at every size"
                                     : "pays at none");
    return pb_emit(emitter, family, "crossover", tokens, 0, how == PB_CROSSES ? PB_ROW_OK : PB_ROW_UNSUPPORTED, note);
}

/* Emits one crossover for each family, which is a set of cases that differ only in batch and seq. */
static pb_status crossovers(pb_emitter *emitter, const gain *g, int n)
{
    pb_family_point *all = malloc(((size_t)n + 1) * sizeof *all);
    pb_status s = all ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the gains of %d graphs", n);
    for (int i = 0; s == PB_OK && i < n; i++) {
        all[i].at = (pb_gain_point){g[i].tokens, g[i].eager / g[i].graph};
        s = pb_graph_family(&g[i].c, &all[i].family);
    }
    if (s == PB_OK) s = pb_crossover_families(emitter, all, n, emit_crossover);
    free(all);
    return s;
}

pb_status pb_graph_gain_conclude(pb_emitter *emitter, const char *suite, const char *metric)
{
    gain *g = NULL;
    int n = 0, keys = 0;
    pb_status s = PB_OK;
    while (pb_emitted_key(emitter, keys)) keys++;
    if (keys) g = calloc((size_t)keys, sizeof *g);
    if (keys && !g) return pb_fail(PB_ENOMEM, "no memory for the graphs' gains");
    /* collects all gains before a row is emitted, because each emitted row adds a key */
    for (int i = 0; i < keys; i++) {
        const char *key = pb_emitted_key(emitter, i);
        bool seen = false;
        for (int k = 0; k < n && !seen; k++) seen = strcmp(g[k].c.key, key) == 0;
        if (!seen && gain_of(emitter, key, suite, metric, &g[n])) n++;
    }
    for (int i = 0; s == PB_OK && i < n; i++) s = emit_break_even(emitter, &g[i]);
    if (s == PB_OK) s = crossovers(emitter, g, n);
    free(g);
    return s;
}
