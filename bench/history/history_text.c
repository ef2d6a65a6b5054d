/* history_text.c - prints a history for a terminal: a table for each machine, change points, and a last line for
 * scripts. */
#include <string.h>

#include "bench/history/history_formats.h"
#include "bench/text/text.h"

enum { LABEL_TEXT = PB_KEY_TEXT + PB_AXIS_TEXT };

/* The rows of one machine, which follow each other. */
typedef struct table {
    const pb_history_row *row; /* [n] */
    int n;
    pb_axes_set axes;
    int label_width, metric_width;
    bool ascii;
    FILE *out;
} table;

static void lay_out(table *t)
{
    char label[LABEL_TEXT];
    for (int i = 0; i < t->n; i++) pb_axes_add(pb_axes_of(&t->axes, t->row[i].v->key), t->row[i].v->key);
    t->label_width = (int)strlen("case");
    t->metric_width = (int)strlen("metric");
    for (int i = 0; i < t->n; i++) {
        pb_axes_set_label(&t->axes, t->row[i].v->key, label, sizeof label);
        const int width = (int)strlen(label), metric = (int)strlen(t->row[i].v->metric);
        if (width > t->label_width) t->label_width = width;
        if (metric > t->metric_width) t->metric_width = metric;
    }
}

static void print_heading(const table *t)
{
    const char *oldest = t->row->v[0].run_id, *newest = oldest;
    char from[PB_HISTORY_TIME], to[PB_HISTORY_TIME];
    for (int i = 0; i < t->n; i++) {
        const pb_history_row *r = &t->row[i];
        if (strcmp(r->v[0].run_id, oldest) < 0) oldest = r->v[0].run_id;
        if (strcmp(r->v[r->n - 1].run_id, newest) > 0) newest = r->v[r->n - 1].run_id;
    }
    pb_history_time(oldest, from);
    pb_history_time(newest, to);
    fprintf(t->out, "%s, %s to %s\n", t->row->v->machine_id, from, to);
    for (int i = 0; i < t->axes.n; i++) pb_axes_print_common(&t->axes.suite[i], t->out);
    fprintf(t->out, "%-*s  %-*s %8s %13s %13s %9s  %s\n", t->label_width, "case", t->metric_width, "metric", "sessions",
            "first", "last", "change", "values");
}

static void percent(char out[PB_FIGURE_TEXT], double ratio)
{
    if (ratio > 0 && ratio < 1e6) snprintf(out, PB_FIGURE_TEXT, "%+.1f %%", pb_percent(ratio, 0.1));
    else snprintf(out, PB_FIGURE_TEXT, "-");
}

/* -1: the change is for the better, 1: for the worse, 0: neither. */
static int direction(const pb_history_row *r, const pb_change_point *c)
{
    const int up = c->change > 0 ? 1 : -1;
    return !strcmp(r->v->better, "lower") ? up : !strcmp(r->v->better, "higher") ? -up : 0;
}

static void print_change(const table *t, const pb_history_row *r, const pb_change_point *c)
{
    static const char *const words[] = {" (better)", "", " (worse)"};
    char when[PB_HISTORY_TIME], size[PB_FIGURE_TEXT], before[PB_FIGURE_TEXT], after[PB_FIGURE_TEXT];
    char commits[PB_HISTORY_COMMITS];
    pb_history_time(r->v[c->at].run_id, when);
    pb_history_commits(r, c, commits);
    percent(size, 1 + c->change);
    pb_figure(before, c->before, r->v->unit);
    pb_figure(after, c->after, r->v->unit);
    fprintf(t->out, "    %s  %s%s, %s -> %s, p = %.2g, commits %s\n", when, size, words[direction(r, c) + 1], before,
            after, pb_history_p(c), commits);
}

static void print_row(table *t, const pb_history_row *r)
{
    char label[LABEL_TEXT], first[PB_FIGURE_TEXT], last[PB_FIGURE_TEXT], change[PB_FIGURE_TEXT];
    char line[PB_SPARKLINE_TEXT];
    const pb_history_value *v = r->v;
    pb_axes_set_label(&t->axes, v->key, label, sizeof label);
    pb_figure(first, v[0].value, v->unit);
    pb_figure(last, v[r->n - 1].value, v->unit);
    percent(change, v[r->n - 1].value / v[0].value);
    pb_sparkline(v, r->n, t->ascii, line);
    fprintf(t->out, "%-*s  %-*s %8d %13s %13s %9s  %s\n", t->label_width, label, t->metric_width, v->metric, r->n,
            first, last, change, line);
    for (int i = 0; i < r->changes; i++) print_change(t, r, &r->change[i]);
}

static void print_machine(const pb_history_row *row, int n, const pb_history_opts *o, FILE *out)
{
    table t = {.row = row, .n = n, .ascii = o->ascii, .out = out};
    lay_out(&t);
    print_heading(&t);
    for (int i = 0; i < n; i++) print_row(&t, &row[i]);
    fputc('\n', out);
}

static void print_summary(const pb_history_rows *h, const pb_history_opts *o, FILE *out)
{
    const int fewest = pb_change_fewest(o->rule.alpha);
    int points = 0, of[3] = {0}, few = 0;
    for (int i = 0; i < h->n; i++) {
        few += h->row[i].n < fewest;
        points += h->row[i].changes;
        for (int k = 0; k < h->row[i].changes; k++) of[direction(&h->row[i], &h->row[i].change[k]) + 1]++;
    }
    if (few)
        fprintf(out, "note: %d of %d rows %s fewer than %d sessions, too few for a change point at alpha = %g\n", few,
                h->n, few == 1 ? "has" : "have", fewest, o->rule.alpha);
    fprintf(out, "history: rows=%d change_points=%d worse=%d better=%d alpha=%g\n", h->n, points, of[2], of[0],
            o->rule.alpha);
}

void pb_history_text(const pb_history_rows *h, const pb_history_opts *o, FILE *out)
{
    for (int i = 0, end; i < h->n; i = end) {
        for (end = i + 1; end < h->n && !strcmp(h->row[end].v->machine_id, h->row[i].v->machine_id);) end++;
        print_machine(&h->row[i], end - i, o, out);
    }
    print_summary(h, o, out);
}
