/* plot_attention.c - the data of the figure "attention": forward plus backward seconds by sequence length, with a line
 * for dense attention and a line for each kind of key list and each top-k. */
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/report/gnuplot.h"
#include "bench/text/text.h"

typedef struct point {
    char line[PB_KEY_TEXT]; /* the forward case's key without the axis seq: points with one such key form a line */
    double seq, seconds;
} point;

static int order(const void *a, const void *b)
{
    const point *x = a, *y = b;
    const int by = strcmp(x->line, y->line);
    return by ? by : (x->seq > y->seq) - (x->seq < y->seq);
}

static pb_status line_of(const pb_case *c, pb_case *out)
{
    pb_case l = {.suite = "attention"};
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->axes[i].name, "seq") != 0) PB_TRY(pb_case_set(&l, c->axes[i].name, c->axes[i].value));
    pb_case_finish(&l);
    *out = l;
    return PB_OK;
}

/* Makes the point of a series. Returns false if the series is not a forward case of suite attention, if the backward
 * case has no value, or if entries of the key lists are masked (axis masked). */
static bool point_of(const pb_series_set *set, const pb_series *s, point *out)
{
    pb_case c, line;
    long seq;
    if (!pb_key_of(s->key, "attention") || strcmp(s->metric, "kernel_time") != 0 || !pb_series_ok(s)) return false;
    if (pb_case_parse(s->key, &c) != PB_OK || strcmp(c.name, "fwd") != 0) return false;
    const char *masked = pb_case_get(&c, "masked");
    if (pb_case_int(&c, "seq", &seq) != PB_OK || !masked || strcmp(masked, "0") != 0) return false;
    const pb_case other = pb_attn_other_pass(&c);
    const pb_series *b = pb_series_find(set, other.key, s->metric);
    if (!b || !pb_series_ok(b) || line_of(&c, &line) != PB_OK) return false;
    *out = (point){.seq = (double)seq, .seconds = s->median + b->median};
    snprintf(out->line, sizeof out->line, "%s", line.key);
    return true;
}

/* Returns the number of points of the line that begins with point p[i]; the points are sorted by line. */
static int length(const point *p, int i, int n)
{
    int k = i;
    while (k < n && strcmp(p[k].line, p[i].line) == 0) k++;
    return k - i;
}

int pb_plot_attention(FILE *f, const pb_series_set *set)
{
    point *p = calloc(set->n + 1, sizeof *p);
    pb_axes axes = {.n = 0};
    int n = 0, lines = 0;
    if (!p) return 0;
    for (size_t i = 0; i < set->n; i++) n += point_of(set, &set->s[i], &p[n]);
    qsort(p, (size_t)n, sizeof *p, order);
    for (int i = 0; i < n; i += length(p, i, n))
        if (length(p, i, n) > 1) pb_axes_add(&axes, p[i].line);
    for (int i = 0, end; i < n; i = end) {
        char title[PB_KEY_TEXT];
        end = i + length(p, i, n);
        if (end - i < 2) continue; /* a single point is not a line */
        pb_axes_label(&axes, p[i].line, title, sizeof title);
        pb_plot_plain(title);
        fprintf(f, "%stokens \"%s\"\n", lines++ ? "\n\n" : "", title);
        for (int k = i; k < end; k++) fprintf(f, "%.9g %.9g\n", p[k].seq, p[k].seconds);
    }
    free(p);
    return lines;
}
