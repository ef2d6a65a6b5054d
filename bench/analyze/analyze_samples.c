/* analyze_samples.c - the table of sampled hardware counters by phase, over all traces of a profiled job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/analyze/mean_parts.h"
#include "bench/analyze/samples.h"
#include "bench/text/text.h"

/* The sums over the traces: the phases in the order of their table, then the GPU's work of no phase, idle, and step. */
typedef struct table {
    pb_sampled_part *part; /* [n] */
    size_t n, room;
    int metrics;
    pb_sampled_metric metric[PB_GROUP_METRICS];
    long steps;
    double interval; /* the longest of the traces */
} table;

static bool was_sampled(const pb_analyzed *j, size_t trace)
{
    return j->run.traces[trace].samples.n && j->of[trace].steps;
}

/* The part with this name, which is added if it is new; NULL: no room. */
static pb_sampled_part *part_of(table *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->part[i].name, name) == 0) return &t->part[i];
    if (t->n == t->room) return NULL;
    t->part[t->n] = (pb_sampled_part){.name = name};
    return &t->part[t->n++];
}

/* The number of a metric in the table, which is added if it is new; -1: no room. */
static int metric_of(table *t, const pb_sampled_metric *m)
{
    for (int i = 0; i < t->metrics; i++)
        if (strcmp(t->metric[i].name, m->name) == 0 && strcmp(t->metric[i].unit, m->unit) == 0) return i;
    if (t->metrics == PB_GROUP_METRICS) return -1;
    t->metric[t->metrics] = *m;
    return t->metrics++;
}

static void add_part(table *t, const pb_trace_samples *s, const pb_sampled_part *from)
{
    pb_sampled_part *to = part_of(t, from->name);
    if (!to) return;
    to->seconds += from->seconds;
    to->pieces += from->pieces;
    to->sampled += from->sampled;
    for (int m = 0; m < s->metrics; m++) {
        const int k = metric_of(t, &s->metric[m]);
        if (k < 0) continue; /* windows of one job have one group, so there is room */
        to->weighted[k] += from->weighted[m];
        to->weight[k] += from->weight[m];
    }
}

/* Makes the rows of the phases, in the order of their table. */
static pb_status add_phases(const pb_analyzed *j, table *t)
{
    pb_mean_part *phases;
    size_t n;
    const pb_status s = pb_mean_parts_list(j, false, &phases, &n);
    t->room = n + PB_SAMPLED_PHASES;
    for (size_t i = 0; s == PB_OK && i < j->run.n; i++) t->room += j->run.traces[i].ngpu ? PB_BREAKDOWN_NAMES : 0;
    if (s == PB_OK) t->part = malloc(t->room * sizeof *t->part);
    for (size_t i = 0; t->part && i < n; i++) (void)part_of(t, phases[i].name);
    free(phases);
    if (s == PB_OK && !t->part) return pb_fail(PB_ENOMEM, "no memory for the samples of %zu phases", n);
    return s;
}

static pb_status make(const pb_analyzed *j, table *t)
{
    static const int others[] = {PB_SAMPLED_NO_PHASE, PB_SAMPLED_IDLE, PB_SAMPLED_STEP};
    pb_sampled *of = calloc(j->run.n + 1, sizeof *of);
    pb_status s = of ? add_phases(j, t) : pb_fail(PB_ENOMEM, "no memory for the samples of %zu traces", j->run.n);
    for (size_t i = 0; s == PB_OK && i < j->run.n; i++) {
        const pb_trace *trace = &j->run.traces[i];
        if (!was_sampled(j, i)) continue;
        s = pb_samples_divide(trace, &of[i]);
        for (size_t k = PB_SAMPLED_PHASES; s == PB_OK && k < of[i].n; k++) add_part(t, &trace->samples, &of[i].part[k]);
        t->steps += j->of[i].steps;
        t->interval = fmax(t->interval, trace->samples.interval);
    }
    for (int k = 0; s == PB_OK && k < 3; k++)
        for (size_t i = 0; i < j->run.n; i++)
            if (of[i].part && (others[k] != PB_SAMPLED_NO_PHASE || of[i].part[PB_SAMPLED_NO_PHASE].seconds > 0))
                add_part(t, &j->run.traces[i].samples, &of[i].part[others[k]]);
    for (size_t i = 0; of && i < j->run.n; i++) pb_sampled_free(&of[i]);
    free(of);
    return s;
}

static void csv_of_part(const pb_analyze_output *o, const table *t, const pb_sampled_part *p)
{
    pb_analyze_csv(o, "samples", -1, 0, p->name, "sampled_time", p->sampled / (double)t->steps, "s");
    for (int m = 0; m < t->metrics; m++)
        if (p->weight[m] > 0)
            pb_analyze_csv(o, "samples", -1, 0, p->name, t->metric[m].name, p->weighted[m] / p->weight[m],
                           t->metric[m].unit);
}

/* Prints the metrics from number `first` on, as many as fit. */
static pb_status print_metrics(const table *t, int first, const pb_analyze_output *o)
{
    char cell[PB_SHEET_COLUMNS][PB_SHEET_CELL];
    const char *cells[PB_SHEET_COLUMNS] = {"counters of phase", "sampled time"};
    pb_sheet sheet = {0};
    const int n = t->metrics - first < PB_SHEET_COLUMNS - 2 ? t->metrics - first : PB_SHEET_COLUMNS - 2;
    for (int m = 0; m < n; m++) cells[2 + m] = t->metric[first + m].name;
    pb_sheet_row(&sheet, 2 + n, cells);
    for (size_t i = 0; i < t->n; i++) {
        const pb_sampled_part *p = &t->part[i];
        cells[0] = p->name;
        for (int c = 1; c < 2 + n; c++) cells[c] = cell[c];
        pb_time_cell(cell[1], p->sampled / (double)t->steps);
        for (int m = 0; m < n; m++) {
            char text[PB_FIGURE_TEXT] = "";
            if (p->weight[first + m] > 0)
                pb_figure(text, p->weighted[first + m] / p->weight[first + m], t->metric[first + m].unit);
            snprintf(cell[2 + m], PB_SHEET_CELL, "%.40s", text);
        }
        pb_sheet_row(&sheet, 2 + n, cells);
    }
    fprintf(o->f, "\n");
    return pb_sheet_print(&sheet, o->format, o->f);
}

/* Says how long a sample is, and which parts are too short for it. Idle time always is: it consists of gaps. */
static void print_limit(const table *t, const pb_analyze_output *o)
{
    enum { ENOUGH = 10 }; /* samples: two borders then blur about a tenth of the part */
    char interval[PB_FIGURE_TEXT];
    bool first = true;
    pb_figure(interval, t->interval, "s");
    fprintf(o->f,
            "\nmeans of samples of %s; a sample that spans two rows is divided between them by the time in each\n",
            interval);
    for (size_t i = 0; i < t->n; i++) {
        const pb_sampled_part *p = &t->part[i];
        const bool gaps = strcmp(p->name, "idle") == 0;
        if (!(p->seconds > 0) || (!gaps && p->seconds >= ENOUGH * t->interval * (double)p->pieces)) continue;
        if (first) fprintf(o->f, "blurred, because their pieces are shorter than %d samples: ", ENOUGH);
        fprintf(o->f, "%s%s", first ? "" : ", ", t->part[i].name);
        first = false;
    }
    if (!first) fprintf(o->f, "\n");
}

pb_status pb_analyze_samples(const pb_analyzed *j, const pb_analyze_output *o)
{
    table t = {0};
    bool any = false;
    for (size_t i = 0; i < j->run.n; i++) any = any || was_sampled(j, i);
    if (!any) return PB_OK;
    pb_status s = make(j, &t);
    for (size_t i = 0; s == PB_OK && i < t.n; i++) csv_of_part(o, &t, &t.part[i]);
    for (int m = 0; s == PB_OK && o->format != PB_ANALYZE_CSV && m < t.metrics; m += PB_SHEET_COLUMNS - 2)
        s = print_metrics(&t, m, o);
    if (s == PB_OK && o->format != PB_ANALYZE_CSV) print_limit(&t, o);
    free(t.part);
    return s;
}
