/* analyze.c - implements analyze_command.h: reads a profiled job, and prints what is there and the tables of its
 * ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/analyze/timeline.h"
#include "bench/text/text.h"

void pb_analyze_csv_head(const pb_analyze_output *o)
{
    if (o->format == PB_ANALYZE_CSV) fprintf(o->f, "part,rank,first_step,name,metric,value,unit\n");
}

static void destroy(pb_analyzed *j)
{
    free(j->of);
    pb_profile_run_free(&j->run);
}

static pb_status read_job(const char *folder, pb_analyzed *j)
{
    PB_TRY(pb_profile_run_read(folder, &j->run));
    j->of = calloc(j->run.n + 1, sizeof *j->of);
    if (!j->of) return pb_fail(PB_ENOMEM, "%s: no memory to analyze it", folder);
    for (size_t i = 0; i < j->run.n; i++) PB_TRY(pb_breakdown_make(&j->run.traces[i], &j->of[i]));
    return PB_OK;
}

/* ---- what is there ------------------------------------------------------------------------------- */

static bool has_trace(const pb_analyzed *j, int rank, int64_t step)
{
    for (size_t i = 0; i < j->run.n; i++)
        if (j->run.traces[i].rank == rank && j->run.traces[i].first_step == step) return true;
    return false;
}

/* True if rank r was to record the window of trace t. */
static bool is_expected(const pb_analyzed *j, const pb_trace *t, int r)
{
    bool named = !t->expected;
    for (size_t i = 0; i < t->nexpected; i++) named = named || t->expected[i] == r;
    return named && j->run.profiled[r];
}

/* Prints the clocks that differ from rank 0's, and those of which it is not known. */
static void print_clocks(const pb_analyzed *j, const pb_analyze_output *o)
{
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_trace *t = &j->run.traces[i];
        char offset[PB_FIGURE_TEXT], uncertain[PB_FIGURE_TEXT];
        pb_figure(offset, t->offset, "s");
        pb_figure(uncertain, t->uncertain, "s");
        if (t->clock_why)
            fprintf(o->f, "rank %d, step %lld: the clock was not compared with rank 0's, times may be shifted: %s\n",
                    t->rank, (long long)t->first_step, t->clock_why);
        if (t->shifted)
            fprintf(o->f,
                    "rank %d, step %lld: the clock of rank %d differed from rank 0's by %s (within %s); its times were "
                    "moved\n",
                    t->rank, (long long)t->first_step, t->rank, offset, uncertain);
    }
}

/* Prints what is missing. Returns whether something is. */
static bool print_missing(const pb_analyzed *j, const pb_analyze_output *o)
{
    bool missing = false;
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_trace *t = &j->run.traces[i];
        if (t->truncated || t->dropped || t->omitted) {
            fprintf(o->f, "rank %d, step %lld: %s%ld ranges and GPU records lost, %ld events left out\n", t->rank,
                    (long long)t->first_step, t->truncated ? "truncated, " : "", t->dropped, t->omitted);
            missing = true;
        }
        if (i && t->first_step == j->run.traces[i - 1].first_step) continue;
        for (int r = 0; r < j->run.ranks; r++) {
            if (!is_expected(j, t, r) || has_trace(j, r, t->first_step)) continue;
            fprintf(o->f, "rank %d on %s: no trace of step %lld\n", r, j->run.host[r], (long long)t->first_step);
            missing = true;
        }
    }
    print_clocks(j, o);
    if (!j->run.n) fprintf(o->f, "no trace was written\n");
    return missing || !j->run.n;
}

static bool print_head(const pb_analyzed *j, const pb_analyze_output *o)
{
    const pb_analyze_output to = {o->format, o->format == PB_ANALYZE_CSV ? stderr : o->f};
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "%s: %s, topology %s\n", j->run.folder, j->run.why, j->run.topology);
    return print_missing(j, &to);
}

/* ---- ranks --------------------------------------------------------------------------------------- */

static pb_status print_ranks(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[] = {
        "rank", "host", "steps", "mean step", "compute", "exposed communication", "other", "hidden communication"};
    enum { COLUMNS = sizeof titles / sizeof *titles };
    pb_sheet t = {0};
    pb_sheet_row(&t, COLUMNS, titles);
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_breakdown *b = &j->of[i];
        const pb_trace *trace = &j->run.traces[i];
        const long first = (long)trace->first_step;
        const double n = b->steps ? (double)b->steps : (double)NAN;
        char cell[COLUMNS][PB_SHEET_CELL];
        const char *cells[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) cells[c] = cell[c];
        snprintf(cell[0], PB_SHEET_CELL, "%d", b->rank);
        snprintf(cell[1], PB_SHEET_CELL, "%s", b->rank < j->run.ranks ? j->run.host[b->rank] : "?");
        snprintf(cell[2], PB_SHEET_CELL, "%ld-%lld", first, (long long)trace->last_step);
        pb_time_cell(cell[3], b->step / n);
        pb_share_cell(cell[4], b->compute / n, b->step / n);
        pb_share_cell(cell[5], b->exposed / n, b->step / n);
        pb_share_cell(cell[6], b->other / n, b->step / n);
        pb_time_cell(cell[7], b->hidden / n);
        pb_sheet_row(&t, COLUMNS, cells);
        pb_analyze_csv(o, "rank", b->rank, first, "step", "time", b->step / n, "s");
        pb_analyze_csv(o, "rank", b->rank, first, "step", "compute", b->compute / n, "s");
        pb_analyze_csv(o, "rank", b->rank, first, "step", "exposed_communication", b->exposed / n, "s");
        pb_analyze_csv(o, "rank", b->rank, first, "step", "other", b->other / n, "s");
        pb_analyze_csv(o, "rank", b->rank, first, "step", "hidden_communication", b->hidden / n, "s");
        pb_analyze_csv(o, "rank", b->rank, first, "step", "lost", (double)(trace->dropped + trace->omitted), "1");
    }
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    return pb_sheet_print(&t, o->format, o->f);
}

enum {
    GPU_RANK,
    GPU_STEPS,
    GPU_COMPUTE,
    GPU_EXPOSED,
    GPU_MEMORY,
    GPU_IDLE,
    GPU_HOST,
    GPU_HIDDEN,
    GPU_KERNELS,
    GPU_UNJOINED,
    GPU_COLUMNS
};

static void add_gpu_row(pb_sheet *t, const pb_trace *trace, const pb_breakdown *b)
{
    const pb_gpu_division *g = &b->gpu;
    const double n = (double)b->steps;
    char cell[GPU_COLUMNS][PB_SHEET_CELL], share[PB_SHEET_CELL];
    const char *cells[GPU_COLUMNS];
    for (int c = 0; c < GPU_COLUMNS; c++) cells[c] = cell[c];
    snprintf(cell[GPU_RANK], PB_SHEET_CELL, "%d", b->rank);
    snprintf(cell[GPU_STEPS], PB_SHEET_CELL, "%lld-%lld", (long long)trace->first_step, (long long)trace->last_step);
    pb_share_cell(cell[GPU_COMPUTE], g->compute / n, b->step / n);
    pb_share_cell(cell[GPU_EXPOSED], g->exposed / n, b->step / n);
    pb_share_cell(cell[GPU_MEMORY], g->memory / n, b->step / n);
    pb_share_cell(cell[GPU_IDLE], g->idle / n, b->step / n);
    pb_share_cell(share, g->host_bound / n, b->step / n);
    snprintf(cell[GPU_HOST], PB_SHEET_CELL, "%s%.30s", g->unknown > 0 ? "at least " : "", share);
    pb_time_cell(cell[GPU_HIDDEN], g->hidden / n);
    snprintf(cell[GPU_KERNELS], PB_SHEET_CELL, "%.6g", (double)g->kernels / n);
    snprintf(cell[GPU_UNJOINED], PB_SHEET_CELL, "%.6g", (double)g->unjoined / n);
    pb_sheet_row(t, GPU_COLUMNS, cells);
}

static void gpu_csv(const pb_analyze_output *o, const pb_trace *trace, const pb_breakdown *b)
{
    const double n = (double)b->steps;
    const struct {
        const char *metric;
        double value;
        const char *unit;
    } figures[] = {{"compute", b->gpu.compute, "s"},
                   {"exposed_communication", b->gpu.exposed, "s"},
                   {"memory", b->gpu.memory, "s"},
                   {"idle", b->gpu.idle, "s"},
                   {"host_bound", b->gpu.host_bound, "s"},
                   {"idle_of_unknown_cause", b->gpu.unknown, "s"},
                   {"hidden_communication", b->gpu.hidden, "s"},
                   {"graphs", (double)b->gpu.graphs, "1"},
                   {"kernels", (double)b->gpu.kernels, "1"},
                   {"unjoined_kernels", (double)b->gpu.unjoined, "1"}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        pb_analyze_csv(o, "gpu", b->rank, (long)trace->first_step, "step", figures[i].metric, figures[i].value / n,
                       figures[i].unit);
}

/* How the GPU of each rank spent the steps. */
static pb_status print_gpus(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[GPU_COLUMNS] = {
        "GPU of rank",          "steps",   "compute", "exposed communication", "memory", "idle", "idle, host-bound",
        "hidden communication", "kernels", "of no op"};
    pb_sheet t = {0};
    long graphs = 0;
    pb_sheet_row(&t, GPU_COLUMNS, titles);
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_breakdown *b = &j->of[i];
        if (!b->has_gpu || !b->steps) continue;
        add_gpu_row(&t, &j->run.traces[i], b);
        gpu_csv(o, &j->run.traces[i], b);
        graphs += b->gpu.graphs;
    }
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    if (o->format != PB_ANALYZE_CSV && graphs > 0)
        fprintf(
            o->f,
            "replayed graphs were recorded as wholes: each counts as compute, pauses between its kernels included\n\n");
    return pb_sheet_print(&t, o->format, o->f);
}

static bool has_collectives(const pb_analyzed *j)
{
    for (size_t i = 0; i < j->run.n; i++)
        if (j->of[i].ncollectives) return true;
    return false;
}

static pb_status print_all(const pb_analyzed *j, const pb_analyzed *before, const pb_analyze_output *o)
{
    pb_analyze_csv_head(o);
    PB_TRY(print_ranks(j, o));
    if (pb_analyzed_has_gpu(j)) PB_TRY(print_gpus(j, o));
    if (has_collectives(j)) PB_TRY(pb_analyze_collectives(j, o));
    PB_TRY(pb_analyze_phases(j, o));
    PB_TRY(pb_analyze_samples(j, o));
    PB_TRY(pb_analyze_ops(j, o));
    if (pb_analyzed_has_gpu(j)) PB_TRY(pb_analyze_kernels(j, o));
    PB_TRY(pb_analyze_waits(j, o));
    return before ? pb_analyze_change(j, before, o) : PB_OK;
}

pb_exit pb_analyze(const char *folder, const char *against, const char *ceilings, const char *timeline,
                   pb_analyze_format format, FILE *out)
{
    pb_analyzed j = {0}, before = {0};
    pb_ceilings c;
    const pb_analyze_output o = {format, out, ceilings ? &c : NULL};
    bool missing = false;
    pb_status s = read_job(folder, &j);
    if (s == PB_OK && against) s = read_job(against, &before);
    if (s == PB_OK && ceilings) s = pb_ceilings_read(ceilings, pb_analyzed_has_gpu(&j), &c);
    if (s == PB_OK) {
        missing = print_head(&j, &o);
        if (timeline) s = pb_timeline_write(&j.run, timeline);
        if (s == PB_OK && j.run.n) s = print_all(&j, against ? &before : NULL, &o);
    }
    destroy(&j);
    destroy(&before);
    if (s != PB_OK) return pb_complain_of(s);
    return missing ? PB_EXIT_INCOMPARABLE : PB_EXIT_OK;
}
