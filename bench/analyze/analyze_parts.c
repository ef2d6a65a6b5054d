/* analyze_parts.c - the tables of phases and ops of a profiled job, and their cells. */
#include <csv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/stats/stats.h"
#include "bench/text/text.h"

/* The least, middle and largest of the traces' times per step, and the rank that has the largest. */
typedef struct spread {
    double least, middle, most;
    int rank;
} spread;

/* A part over all traces: means per step. */
typedef struct mean_part {
    const char *name;
    double calls, seconds;
    double gpu_calls, gpu; /* kernels and copies; their seconds */
    spread own, gpu_own;   /* of the ranges and of the GPU, without communication */
    double flops, bytes;   /* least work of the calls of an op */
} mean_part;

void pb_analyze_csv(const pb_analyze_output *o, const char *part, int rank, long step, const char *name,
                    const char *metric, double v, const char *unit)
{
    if (o->format != PB_ANALYZE_CSV) return;
    fprintf(o->f, "%s,", part);
    if (rank >= 0) fprintf(o->f, "%d,%ld", rank, step);
    else fputc(',', o->f);
    fputc(',', o->f);
    if (strpbrk(name, ",\"\n")) (void)csv_fwrite(o->f, name, strlen(name)); /* names of kernels have commas */
    else fputs(name, o->f);
    fprintf(o->f, ",%s,%.9g,%s\n", metric, v, unit);
}

void pb_time_cell(char out[PB_SHEET_CELL], double seconds)
{
    char text[PB_FIGURE_TEXT];
    pb_figure(text, seconds, "s");
    snprintf(out, PB_SHEET_CELL, "%.*s", PB_SHEET_CELL - 1, text);
}

void pb_share_cell(char out[PB_SHEET_CELL], double part, double whole)
{
    char text[PB_FIGURE_TEXT];
    pb_figure(text, part, "s");
    snprintf(out, PB_SHEET_CELL, "%.30s %5.1f %%", text, whole > 0 ? 100 * part / whole : 0.0);
}

bool pb_analyzed_has_gpu(const pb_analyzed *j)
{
    for (size_t i = 0; i < j->run.n; i++)
        if (j->of[i].has_gpu) return true;
    return false;
}

/* ---- phases and ops ------------------------------------------------------------------------------ */

static const pb_part *find(const pb_breakdown *b, bool ops, const char *name)
{
    const pb_part *parts = ops ? b->ops : b->phases;
    for (int i = 0; i < (ops ? b->nops : b->nphases); i++)
        if (strcmp(parts[i].name, name) == 0) return &parts[i];
    return NULL;
}

/* Adds the nth time; `most` is -1 before the first. */
static void add_time(spread *s, double *times, size_t n, double time, int rank)
{
    times[n] = time;
    s->least = n == 0 || time < s->least ? time : s->least;
    if (time > s->most) s->most = time, s->rank = rank;
}

/* The means over the traces that have steps. `times` is scratch memory for [2 run.n]. */
static mean_part mean_of(const pb_analyzed *j, bool ops, const char *name, double *times)
{
    mean_part m = {.name = name, .own = {.most = -1, .rank = -1}, .gpu_own = {.most = -1, .rank = -1}};
    double *gpu = times + j->run.n;
    size_t n = 0;
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_part *p = find(&j->of[i], ops, name);
        if (!j->of[i].steps) continue;
        const double steps = (double)j->of[i].steps;
        m.calls += p ? (double)p->calls / steps : 0;
        m.seconds += p ? p->seconds / steps : 0;
        m.gpu_calls += p ? (double)p->gpu_calls / steps : 0;
        m.gpu += p ? p->gpu / steps : 0;
        m.flops += p ? p->flops / steps : 0;
        m.bytes += p ? p->bytes / steps : 0;
        add_time(&m.own, times, n, p ? p->own / steps : 0, j->of[i].rank);
        add_time(&m.gpu_own, gpu, n, p ? p->gpu_own / steps : 0, j->of[i].rank);
        n++;
    }
    m.calls /= (double)n;
    m.seconds /= (double)n;
    m.gpu_calls /= (double)n;
    m.gpu /= (double)n;
    m.flops /= (double)n;
    m.bytes /= (double)n;
    m.own.middle = pb_median(times, (int)n);
    m.gpu_own.middle = pb_median(gpu, (int)n);
    return m;
}

/* On a GPU the time of an op is that of its kernels, otherwise that of its ranges. */
static double cost(const mean_part *m) { return m->gpu_calls > 0 ? m->gpu : m->seconds; }

static int by_cost(const void *x, const void *y)
{
    const mean_part *a = x, *b = y;
    if ((a->gpu_calls > 0) != (b->gpu_calls > 0)) return a->gpu_calls > 0 ? -1 : 1;
    return cost(a) > cost(b) ? -1 : cost(a) < cost(b);
}

/* Lists the names of all traces, with their means. Free *out. ENOMEM. */
static pb_status list_parts(const pb_analyzed *j, bool ops, mean_part **out, size_t *n)
{
    double *times = malloc((2 * j->run.n + 1) * sizeof *times);
    mean_part *all = malloc((j->run.n * PB_BREAKDOWN_NAMES + 1) * sizeof *all);
    *n = 0;
    *out = all;
    if (!times || !all) {
        free(times);
        return pb_fail(PB_ENOMEM, "no memory to list the parts of %zu traces", j->run.n);
    }
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_breakdown *b = &j->of[i];
        for (int k = 0; k < (ops ? b->nops : b->nphases); k++) {
            const char *name = ops ? b->ops[k].name : b->phases[k].name;
            size_t seen = 0;
            while (seen < *n && strcmp(all[seen].name, name) != 0) seen++;
            if (seen == *n) all[(*n)++] = mean_of(j, ops, name, times);
        }
    }
    free(times);
    if (ops) qsort(all, *n, sizeof *all, by_cost);
    return PB_OK;
}

static double mean_step(const pb_analyzed *j)
{
    double sum = 0;
    long n = 0;
    for (size_t i = 0; i < j->run.n; i++) sum += j->of[i].step, n += j->of[i].steps;
    return n ? sum / (double)n : (double)NAN;
}

enum { PHASE_NAME, PHASE_HOST, PHASE_OWN, PHASE_GPU = PHASE_OWN + 4, PHASE_GPU_OWN, PHASE_COLUMNS = PHASE_GPU_OWN + 4 };

/* Four cells: least, middle and most, and the rank of the most with its distance from the middle one. */
static void spread_cells(char cell[][PB_SHEET_CELL], const spread *s, bool several)
{
    pb_time_cell(cell[0], s->least);
    pb_time_cell(cell[1], s->middle);
    pb_time_cell(cell[2], s->most);
    snprintf(cell[3], PB_SHEET_CELL, "%d", s->rank);
    if (several && s->middle > 0)
        snprintf(cell[3], PB_SHEET_CELL, "%d, %+.0f %%", s->rank, pb_percent(s->most / s->middle, 1));
}

static void add_phase_row(pb_sheet *t, int columns, const mean_part *m, bool several)
{
    char cell[PHASE_COLUMNS][PB_SHEET_CELL] = {""};
    const char *cells[PHASE_COLUMNS];
    for (int i = 0; i < PHASE_COLUMNS; i++) cells[i] = cell[i];
    cells[PHASE_NAME] = m->name;
    if (m->calls > 0) {
        pb_time_cell(cell[PHASE_HOST], m->seconds);
        spread_cells(cell + PHASE_OWN, &m->own, several);
    }
    if (m->gpu_calls > 0) {
        pb_time_cell(cell[PHASE_GPU], m->gpu);
        spread_cells(cell + PHASE_GPU_OWN, &m->gpu_own, several);
    }
    pb_sheet_row(t, columns, cells);
}

static void phase_csv(const pb_analyze_output *o, const mean_part *m)
{
    if (m->calls > 0) {
        pb_analyze_csv(o, "phase", -1, 0, m->name, "host_time", m->seconds, "s");
        pb_analyze_csv(o, "phase", -1, 0, m->name, "own_median", m->own.middle, "s");
        pb_analyze_csv(o, "phase", -1, 0, m->name, "own_most", m->own.most, "s");
        pb_analyze_csv(o, "phase", -1, 0, m->name, "rank_of_most", m->own.rank, "1");
    }
    if (!(m->gpu_calls > 0)) return;
    pb_analyze_csv(o, "phase", -1, 0, m->name, "gpu_time", m->gpu, "s");
    pb_analyze_csv(o, "phase", -1, 0, m->name, "gpu_own_median", m->gpu_own.middle, "s");
    pb_analyze_csv(o, "phase", -1, 0, m->name, "gpu_own_most", m->gpu_own.most, "s");
    pb_analyze_csv(o, "phase", -1, 0, m->name, "gpu_rank_of_most", m->gpu_own.rank, "1");
}

pb_status pb_analyze_phases(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[PHASE_COLUMNS] = {"phase",
                                                      "host time",
                                                      "own, least",
                                                      "own, median",
                                                      "own, most",
                                                      "rank of most",
                                                      "GPU time",
                                                      "GPU own, least",
                                                      "GPU own, median",
                                                      "GPU own, most",
                                                      "GPU own, rank of most"};
    mean_part *parts;
    size_t n;
    pb_sheet t = {0};
    const int columns = pb_analyzed_has_gpu(j) ? PHASE_COLUMNS : PHASE_GPU;
    const pb_status s = list_parts(j, false, &parts, &n);
    pb_sheet_row(&t, columns, titles);
    for (size_t i = 0; s == PB_OK && i < n; i++) {
        add_phase_row(&t, columns, &parts[i], j->run.n > 1);
        phase_csv(o, &parts[i]);
    }
    free(parts);
    if (s == PB_OK && o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    return s != PB_OK ? s : printed;
}

/* The rates of an op, and their share of the ceilings; "": not known. */
static void rate_cells(const mean_part *m, const pb_ceilings *c, char flops[PB_SHEET_CELL], char bytes[PB_SHEET_CELL],
                       char share[PB_SHEET_CELL])
{
    char text[PB_FIGURE_TEXT];
    *flops = *bytes = *share = 0;
    if (!(cost(m) > 0)) return;
    if (m->flops > 0) pb_figure(text, m->flops / cost(m), "FLOP/s"), snprintf(flops, PB_SHEET_CELL, "%.40s", text);
    if (m->bytes > 0) pb_figure(text, m->bytes / cost(m), "B/s"), snprintf(bytes, PB_SHEET_CELL, "%.40s", text);
    const double part = pb_ceilings_share(c, m->flops, m->bytes, cost(m));
    if (part > 0) snprintf(share, PB_SHEET_CELL, "%.1f %%", 100 * part);
}

enum { OP_NAME, OP_CALLS, OP_TIME, OP_SHARE, OP_FLOPS, OP_BYTES, OP_CEILING, OP_KERNELS, OP_GPU, OP_COLUMNS };

static void add_op_row(pb_sheet *t, int columns, const mean_part *m, double step, const pb_ceilings *c)
{
    char cell[OP_COLUMNS][PB_SHEET_CELL] = {""};
    const char *cells[OP_COLUMNS];
    for (int i = 0; i < OP_COLUMNS; i++) cells[i] = cell[i];
    cells[OP_NAME] = m->name;
    if (m->calls > 0) {
        snprintf(cell[OP_CALLS], PB_SHEET_CELL, "%.4g", m->calls);
        pb_time_cell(cell[OP_TIME], m->seconds);
    }
    if (m->gpu_calls > 0) {
        snprintf(cell[OP_KERNELS], PB_SHEET_CELL, "%.4g", m->gpu_calls);
        pb_time_cell(cell[OP_GPU], m->gpu);
    }
    rate_cells(m, c, cell[OP_FLOPS], cell[OP_BYTES], cell[OP_CEILING]);
    snprintf(cell[OP_SHARE], PB_SHEET_CELL, "%.1f %%", 100 * cost(m) / step);
    pb_sheet_row(t, columns, cells);
}

static void csv_of_op(const pb_analyze_output *o, const mean_part *m)
{
    const double share = pb_ceilings_share(o->ceilings, m->flops, m->bytes, cost(m));
    pb_analyze_csv(o, "op", -1, 0, m->name, "calls", m->calls, "1");
    pb_analyze_csv(o, "op", -1, 0, m->name, "host_time", m->seconds, "s");
    if (m->gpu_calls > 0) {
        pb_analyze_csv(o, "op", -1, 0, m->name, "kernels", m->gpu_calls, "1");
        pb_analyze_csv(o, "op", -1, 0, m->name, "gpu_time", m->gpu, "s");
    }
    if (!(cost(m) > 0)) return;
    if (m->flops > 0) pb_analyze_csv(o, "op", -1, 0, m->name, "flop_rate", m->flops / cost(m), "FLOP/s");
    if (m->bytes > 0) pb_analyze_csv(o, "op", -1, 0, m->name, "byte_rate", m->bytes / cost(m), "B/s");
    if (share > 0) pb_analyze_csv(o, "op", -1, 0, m->name, "ceiling_share", share, "1");
}

static void print_ceilings(const pb_analyze_output *o)
{
    char copy[PB_FIGURE_TEXT], matmul[PB_FIGURE_TEXT];
    if (o->format == PB_ANALYZE_CSV) return;
    if (!o->ceilings) {
        fputs(
            "\nof the ceiling: empty, because no ceilings are given; --ceilings-run RUN names a run of this machine\n",
            o->f);
        return;
    }
    pb_figure(copy, o->ceilings->copy, "B/s");
    pb_figure(matmul, o->ceilings->matmul, "FLOP/s");
    fprintf(o->f, "\nceilings: copy %s, matrix product %s (%s)\n", copy, matmul, o->ceilings->machine);
}

/* The share of the step is that of the time on the GPU, if there is one. */
pb_status pb_analyze_ops(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[OP_COLUMNS] = {[OP_NAME] = "op",
                                                   [OP_CALLS] = "calls per step",
                                                   [OP_TIME] = "host time",
                                                   [OP_SHARE] = "of the step",
                                                   [OP_FLOPS] = "FLOP/s",
                                                   [OP_BYTES] = "B/s",
                                                   [OP_CEILING] = "of the ceiling",
                                                   [OP_KERNELS] = "kernels",
                                                   [OP_GPU] = "GPU time"};
    enum { MOST = 25 };
    mean_part *parts;
    size_t n;
    pb_sheet t = {0};
    const double step = mean_step(j);
    const pb_status s = list_parts(j, true, &parts, &n);
    const int columns = pb_analyzed_has_gpu(j) ? OP_COLUMNS : OP_KERNELS;
    pb_sheet_row(&t, columns, titles);
    mean_part rest = {0};
    char name[PB_SHEET_CELL];
    for (size_t i = 0; s == PB_OK && i < n; i++) {
        const mean_part *m = &parts[i];
        csv_of_op(o, m);
        if (i < MOST) add_op_row(&t, columns, m, step, o->ceilings);
        else rest.seconds += m->seconds, rest.calls += m->calls, rest.gpu += m->gpu, rest.gpu_calls += m->gpu_calls;
    }
    if (s == PB_OK && n > MOST) {
        snprintf(name, sizeof name, "%zu others", n - MOST);
        rest.name = name;
        add_op_row(&t, columns, &rest, step, o->ceilings);
    }
    free(parts);
    if (s == PB_OK && o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    if (s == PB_OK && printed == PB_OK) print_ceilings(o);
    return s != PB_OK ? s : printed;
}

/* ---- the change from another job ----------------------------------------------------------------- */

static int by_change(const void *x, const void *y)
{
    const mean_part *a = x, *b = y; /* calls holds the change */
    return fabs(a->calls) > fabs(b->calls) ? -1 : fabs(a->calls) < fabs(b->calls);
}

static double cost_in(const mean_part *parts, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(parts[i].name, name) == 0) return cost(&parts[i]);
    return 0;
}

/* Prints the ops of `now` and `before`, the largest change of the time per step first. */
pb_status pb_analyze_change(const pb_analyzed *now, const pb_analyzed *before, const pb_analyze_output *o)
{
    static const char *const titles[] = {"op", "before", "now", "change", "of the change"};
    const double step = mean_step(now), was = mean_step(before);
    mean_part *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    pb_sheet t = {0};
    pb_status s = list_parts(now, true, &a, &na);
    if (s == PB_OK) s = list_parts(before, true, &b, &nb);
    mean_part *all = s == PB_OK ? malloc((na + nb + 1) * sizeof *all) : NULL;
    if (s == PB_OK && !all) s = pb_fail(PB_ENOMEM, "no memory to compare %zu ops", na + nb);
    size_t n = 0;
    for (size_t i = 0; s == PB_OK && i < na; i++)
        all[n++] = (mean_part){.name = a[i].name, .seconds = cost(&a[i]), .own.least = cost_in(b, nb, a[i].name)};
    for (size_t i = 0; s == PB_OK && i < nb; i++)
        if (!(cost_in(a, na, b[i].name) > 0)) all[n++] = (mean_part){.name = b[i].name, .own.least = cost(&b[i])};
    for (size_t i = 0; i < n; i++) all[i].calls = all[i].seconds - all[i].own.least;
    if (s == PB_OK && n) qsort(all, n, sizeof *all, by_change);
    pb_sheet_row(&t, 5, titles);
    for (size_t i = 0; i < n; i++) {
        char then[PB_SHEET_CELL], time[PB_SHEET_CELL], change[PB_SHEET_CELL], share[PB_SHEET_CELL] = "";
        pb_time_cell(then, all[i].own.least);
        pb_time_cell(time, all[i].seconds);
        pb_time_cell(change, all[i].calls);
        if (fabs(step - was) > 0) snprintf(share, sizeof share, "%.0f %%", 100 * all[i].calls / (step - was));
        if (i < 25) pb_sheet_row(&t, 5, (const char *const[]){all[i].name, then, time, change, share});
        pb_analyze_csv(o, "change", -1, 0, all[i].name, "time", all[i].calls, "s");
    }
    pb_analyze_csv(o, "change", -1, 0, "step", "time", step - was, "s");
    if (s == PB_OK && o->format != PB_ANALYZE_CSV) {
        char then[PB_SHEET_CELL], time[PB_SHEET_CELL];
        pb_time_cell(then, was);
        pb_time_cell(time, step);
        fprintf(o->f, "\nagainst %s: mean step %s, now %s\n", before->run.folder, then, time);
    }
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    free(a);
    free(b);
    free(all);
    return s != PB_OK ? s : printed;
}
