/* analyze_gpu.c - the tables of what the GPUs of a profiled job did over the whole of each trace: the time
 * of each combination of concurrent kinds of work (compute, communication, memory), and kernels and copies by name. */
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/analyze/gpu_work.h"
#include "bench/text/text.h"

static const char *const kinds[PB_WORK_KINDS] = {
    [PB_WORK_KERNEL] = "compute", [PB_WORK_COMMUNICATION] = "communication", [PB_WORK_MEMORY] = "memory"};

enum { SET_NAME = 48 };

/* "idle", "compute", "compute+memory", ... */
static void set_name(unsigned set, char out[SET_NAME])
{
    snprintf(out, SET_NAME, "%s", set ? "" : "idle");
    for (int k = 0; k < PB_WORK_KINDS; k++)
        if (set & 1u << k) snprintf(out + strlen(out), SET_NAME - strlen(out), "%s%s", *out ? "+" : "", kinds[k]);
}

static void csv_of_total(const pb_analyze_output *o, const pb_trace *t, const pb_gpu_total *g)
{
    const long first = (long)t->first_step;
    pb_analyze_csv(o, "gpu_trace", t->rank, first, "all", "time", g->window, "s");
    for (unsigned s = 0; s < PB_WORK_SETS; s++) {
        char name[SET_NAME];
        set_name(s, name);
        pb_analyze_csv(o, "gpu_trace", t->rank, first, name, "time", g->set[s], "s");
    }
    for (size_t i = 0; i < g->n; i++) {
        const pb_gpu_named *n = &g->named[i];
        const char *part = !n->copy ? "kernel" : n->what == PB_WORK_COMMUNICATION ? "collective_copy" : "copy";
        pb_analyze_csv(o, part, t->rank, first, n->name, "calls", (double)n->calls, "1");
        pb_analyze_csv(o, part, t->rank, first, n->name, "time", n->seconds, "s");
        pb_analyze_csv(o, part, t->rank, first, n->name, "shortest", n->shortest, "s");
        pb_analyze_csv(o, part, t->rank, first, n->name, "longest", n->longest, "s");
        if (n->copy) pb_analyze_csv(o, part, t->rank, first, n->name, "bytes", n->moved, "B");
    }
}

static void add_kernel_row(pb_sheet *t, const pb_trace *trace, const pb_gpu_total *g, const pb_gpu_named *n)
{
    enum { COLUMNS = 8 };
    char cell[COLUMNS][PB_SHEET_CELL] = {""};
    char text[PB_FIGURE_TEXT];
    const char *cells[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) cells[i] = cell[i];
    cells[0] = n->name;
    snprintf(cell[1], PB_SHEET_CELL, "%d", trace->rank);
    snprintf(cell[2], PB_SHEET_CELL, "%s", kinds[n->what]);
    snprintf(cell[3], PB_SHEET_CELL, "%ld", n->calls);
    pb_share_cell(cell[4], n->seconds, g->window);
    pb_time_cell(cell[5], n->seconds / (double)n->calls);
    pb_time_cell(cell[6], n->longest);
    if (n->copy && n->seconds > 0)
        pb_figure(text, n->moved / n->seconds, "B/s"), snprintf(cell[7], PB_SHEET_CELL, "%.40s", text);
    pb_sheet_row(t, COLUMNS, cells);
}

/* The kernels of rank 0, or of the first rank that is there. */
pb_status pb_analyze_kernels(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[] = {"kernel or copy",    "rank", "kind",    "calls",
                                         "time in the trace", "mean", "longest", "B/s"};
    enum { MOST = 20 };
    pb_sheet t = {0};
    pb_sheet_row(&t, sizeof titles / sizeof *titles, titles);
    bool shown = false;
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_trace *trace = &j->run.traces[i];
        pb_gpu_total g;
        if (!trace->ngpu) continue;
        const pb_status s = pb_gpu_total_make(trace, &g);
        if (s != PB_OK) {
            pb_gpu_total_free(&g);
            (void)pb_sheet_print(&t, PB_ANALYZE_CSV, o->f);
            return s;
        }
        csv_of_total(o, trace, &g);
        for (size_t k = 0; !shown && k < g.n && k < MOST; k++) add_kernel_row(&t, trace, &g, &g.named[k]);
        shown = true;
        pb_gpu_total_free(&g);
    }
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    return pb_sheet_print(&t, o->format, o->f);
}
