/* analyze_parts.c - the tables of phases and ops of a profiled job, and their cells. */
#include <csv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/analyze/mean_parts.h"
#include "bench/stats/stats.h"
#include "bench/text/text.h"

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

enum { PHASE_NAME, PHASE_HOST, PHASE_OWN, PHASE_GPU = PHASE_OWN + 4, PHASE_GPU_OWN, PHASE_COLUMNS = PHASE_GPU_OWN + 4 };

/* Four cells: least, middle and most, and the rank of the most with its distance from the middle one. */
static void spread_cells(char cell[][PB_SHEET_CELL], const pb_spread *s, bool several)
{
    pb_time_cell(cell[0], s->least);
    pb_time_cell(cell[1], s->middle);
    pb_time_cell(cell[2], s->most);
    snprintf(cell[3], PB_SHEET_CELL, "%d", s->rank);
    if (several && s->middle > 0)
        snprintf(cell[3], PB_SHEET_CELL, "%d, %+.0f %%", s->rank, pb_percent(s->most / s->middle, 1));
}

static void add_phase_row(pb_sheet *t, int columns, const pb_mean_part *m, bool several)
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

static void phase_csv(const pb_analyze_output *o, const pb_mean_part *m)
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
    pb_mean_part *parts;
    size_t n;
    pb_sheet t = {0};
    const int columns = pb_analyzed_has_gpu(j) ? PHASE_COLUMNS : PHASE_GPU;
    const pb_status s = pb_mean_parts_list(j, false, &parts, &n);
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
static void rate_cells(const pb_mean_part *m, const pb_ceilings *c, char flops[PB_SHEET_CELL],
                       char bytes[PB_SHEET_CELL], char share[PB_SHEET_CELL])
{
    char text[PB_FIGURE_TEXT];
    *flops = *bytes = *share = 0;
    if (!(pb_mean_cost(m) > 0)) return;
    if (m->flops > 0)
        pb_figure(text, m->flops / pb_mean_cost(m), "FLOP/s"), snprintf(flops, PB_SHEET_CELL, "%.40s", text);
    if (m->bytes > 0) pb_figure(text, m->bytes / pb_mean_cost(m), "B/s"), snprintf(bytes, PB_SHEET_CELL, "%.40s", text);
    const double part = pb_ceilings_share(c, m->flops, m->bytes, pb_mean_cost(m));
    if (part > 0) snprintf(share, PB_SHEET_CELL, "%.1f %%", 100 * part);
}

enum { OP_NAME, OP_CALLS, OP_TIME, OP_SHARE, OP_FLOPS, OP_BYTES, OP_CEILING, OP_KERNELS, OP_GPU, OP_COLUMNS };

static void add_op_row(pb_sheet *t, int columns, const pb_mean_part *m, double step, const pb_ceilings *c)
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
    snprintf(cell[OP_SHARE], PB_SHEET_CELL, "%.1f %%", 100 * pb_mean_cost(m) / step);
    pb_sheet_row(t, columns, cells);
}

static void csv_of_op(const pb_analyze_output *o, const pb_mean_part *m)
{
    const double share = pb_ceilings_share(o->ceilings, m->flops, m->bytes, pb_mean_cost(m));
    pb_analyze_csv(o, "op", -1, 0, m->name, "calls", m->calls, "1");
    pb_analyze_csv(o, "op", -1, 0, m->name, "host_time", m->seconds, "s");
    if (m->gpu_calls > 0) {
        pb_analyze_csv(o, "op", -1, 0, m->name, "kernels", m->gpu_calls, "1");
        pb_analyze_csv(o, "op", -1, 0, m->name, "gpu_time", m->gpu, "s");
    }
    if (!(pb_mean_cost(m) > 0)) return;
    if (m->flops > 0) pb_analyze_csv(o, "op", -1, 0, m->name, "flop_rate", m->flops / pb_mean_cost(m), "FLOP/s");
    if (m->bytes > 0) pb_analyze_csv(o, "op", -1, 0, m->name, "byte_rate", m->bytes / pb_mean_cost(m), "B/s");
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
    pb_mean_part *parts;
    size_t n;
    pb_sheet t = {0};
    const double step = pb_mean_step(j);
    const pb_status s = pb_mean_parts_list(j, true, &parts, &n);
    const int columns = pb_analyzed_has_gpu(j) ? OP_COLUMNS : OP_KERNELS;
    pb_sheet_row(&t, columns, titles);
    pb_mean_part rest = {0};
    char name[PB_SHEET_CELL];
    for (size_t i = 0; s == PB_OK && i < n; i++) {
        const pb_mean_part *m = &parts[i];
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
