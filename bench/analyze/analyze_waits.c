/* analyze_waits.c - the table of what recording cost the ranks of a profiled job, and those that were not profiled:
 * step times from the files ranks/rankN.json (trace/step_times.h). */
#include <jansson.h>
#include <stdlib.h>

#include "bench/analyze/analyze_job.h"
#include "bench/stats/stats.h"
#include "bench/text/text.h"

enum { OFF, RECORDED, AFTER, KINDS };
static const char *const kinds[KINDS] = {"off", "recorded", "after"};

/* Reads the medians of a rank's step times. False: the file is missing, or lacks one of them. */
static bool read_rank(const pb_profile_run *r, int rank, double seconds[KINDS])
{
    char path[600];
    snprintf(path, sizeof path, "%s/ranks/rank%d.json", r->folder, rank);
    json_t *o = json_load_file(path, 0, NULL);
    const json_t *times = json_object_get(o, "step_times");
    bool all = times != NULL;
    for (int k = 0; k < KINDS; k++) {
        const json_t *v = json_object_get(json_object_get(times, kinds[k]), "median_s");
        all = all && json_is_number(v);
        seconds[k] = json_number_value(v);
    }
    json_decref(o);
    return all;
}

/* One row: the ranks that are profiled, or the others. */
static pb_status add_row(const pb_analyzed *j, bool profiled, const pb_analyze_output *o, pb_sheet *t)
{
    const size_t ranks = (size_t)j->run.ranks;
    double *of[KINDS], *more = malloc(ranks * sizeof *more), *later = malloc(ranks * sizeof *later), seconds[KINDS];
    int n = 0;
    for (int k = 0; k < KINDS; k++) of[k] = malloc(ranks * sizeof *of[k]);
    const bool ok = more && later && of[OFF] && of[RECORDED] && of[AFTER];
    for (int r = 0; ok && r < j->run.ranks; r++) {
        if (j->run.profiled[r] != profiled || !read_rank(&j->run, r, seconds)) continue;
        for (int k = 0; k < KINDS; k++) of[k][n] = seconds[k];
        more[n] = seconds[RECORDED] - seconds[OFF];
        later[n++] = seconds[AFTER] - seconds[OFF];
    }
    if (n) {
        enum { COLUMNS = 7 };
        const char *name = profiled ? "profiled" : "not profiled";
        char cell[COLUMNS][PB_SHEET_CELL];
        const char *cells[COLUMNS];
        double off = pb_median(of[OFF], n), slower = pb_median(more, n), after = pb_median(later, n);
        for (int c = 0; c < COLUMNS; c++) cells[c] = cell[c];
        snprintf(cell[0], PB_SHEET_CELL, "%s", name);
        snprintf(cell[1], PB_SHEET_CELL, "%d", n);
        pb_time_cell(cell[2], off);
        pb_time_cell(cell[3], pb_median(of[RECORDED], n));
        pb_time_cell(cell[4], pb_median(of[AFTER], n));
        pb_share_cell(cell[5], slower, off);
        pb_share_cell(cell[6], after, off);
        pb_sheet_row(t, COLUMNS, cells);
        pb_analyze_csv(o, "waits", -1, 0, name, "step_off", off, "s");
        pb_analyze_csv(o, "waits", -1, 0, name, "longer_while_recorded", slower, "s");
        pb_analyze_csv(o, "waits", -1, 0, name, "longer_after", after, "s");
    }
    for (int k = 0; k < KINDS; k++) free(of[k]);
    free(more);
    free(later);
    return ok ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the step times of %d ranks", j->run.ranks);
}

pb_status pb_analyze_waits(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[] = {"ranks that are",     "ranks",          "step",
                                         "while ranks record", "after a window", "longer while they record",
                                         "longer after"};
    pb_sheet t = {0};
    double seconds[KINDS];
    int any = 0;
    for (int r = 0; r < j->run.ranks; r++) any += read_rank(&j->run, r, seconds);
    if (!any) return PB_OK;
    pb_sheet_row(&t, sizeof titles / sizeof *titles, titles);
    pb_status s = add_row(j, true, o, &t);
    if (s == PB_OK) s = add_row(j, false, o, &t);
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    return s != PB_OK ? s : printed;
}
