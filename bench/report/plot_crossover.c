/* plot_crossover.c - the data of the figure "crossover": up to how many tokens per step a graph is worthwhile. A line
 * shows eager time / graph time by tokens per step, for cases that differ only in batch and seq. */
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/report/gnuplot.h"
#include "bench/text/text.h"

typedef struct point {
    char family[PB_KEY_TEXT];
    pb_gain_point at;
} point;

static int order(const void *a, const void *b)
{
    const point *x = a, *y = b;
    const int by = strcmp(x->family, y->family);
    return by ? by : (x->at.tokens > y->at.tokens) - (x->at.tokens < y->at.tokens);
}

/* True for the two times that the figure shows: backward_time of suite backward, step_time of suite throughput. */
static bool compared(const pb_series *s)
{
    return pb_series_ok(s) && ((pb_key_of(s->key, "backward") && strcmp(s->metric, "backward_time") == 0) ||
                               (pb_key_of(s->key, "throughput") && strcmp(s->metric, "step_time") == 0));
}

/* Makes the point of a series. Returns false if the case does not have mode=graph, or the same case with mode=eager
 * has no value. */
static bool point_of(const pb_series_set *set, const pb_series *s, point *out)
{
    pb_case c, eager, family;
    long batch, seq;
    if (pb_case_parse(s->key, &c) != PB_OK || !pb_graph_twin(&c, &eager)) return false;
    const pb_series *e = pb_series_find(set, eager.key, s->metric);
    if (!e || !pb_series_ok(e) || pb_graph_family(&c, &family) != PB_OK) return false;
    if (pb_case_int(&c, "batch", &batch) != PB_OK || pb_case_int(&c, "seq", &seq) != PB_OK) return false;
    out->at = (pb_gain_point){(double)batch * (double)seq, e->median / s->median};
    snprintf(out->family, sizeof out->family, "%s", family.key);
    return true;
}

int pb_plot_crossover(FILE *f, const pb_series_set *set)
{
    point *p = calloc(set->n + 1, sizeof *p);
    pb_axes axes = {.n = 0};
    int n = 0, lines = 0;
    if (!p) return 0;
    for (size_t i = 0; i < set->n; i++)
        if (compared(&set->s[i]) && point_of(set, &set->s[i], &p[n])) pb_axes_add(&axes, p[n++].family);
    qsort(p, (size_t)n, sizeof *p, order);
    for (int i = 0; i < n; i++) {
        char title[PB_KEY_TEXT];
        if (!i || strcmp(p[i].family, p[i - 1].family) != 0) {
            pb_axes_label(&axes, p[i].family, title, sizeof title);
            pb_plot_plain(title);
            fprintf(f, "%stokens \"%s\"\n", lines++ ? "\n\n" : "", title);
        }
        fprintf(f, "%.9g %.9g\n", p[i].at.tokens, p[i].at.ratio);
    }
    free(p);
    return lines;
}
