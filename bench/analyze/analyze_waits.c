/* analyze_waits.c - the table of what recording cost the ranks of a profiled job, and those that were not profiled:
 * step times from the files ranks/rankN.json (trace/step_times.h). */
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/analyze_job.h"
#include "bench/stats/stats.h"
#include "bench/text/text.h"

enum { OFF, RECORDED, AFTER, KINDS };
static const char *const kinds[KINDS] = {"off", "recorded", "after"};
static const char *const counts[KINDS] = {"steps_off", "steps_recorded", "steps_after"}; /* in the CSV */

/* The step times of a rank. */
typedef struct waits {
    double median[KINDS];
    double q1, q3; /* quartiles of the steps in which no rank records; 0: an older file lacks them */
    long steps[KINDS];
} waits;

/* False: the file is missing, or lacks a median. */
static bool read_rank(const pb_profile_run *r, int rank, waits *out)
{
    char path[600];
    snprintf(path, sizeof path, "%s/ranks/rank%d.json", r->folder, rank);
    json_t *o = json_load_file(path, 0, NULL);
    const json_t *times = json_object_get(o, "step_times"), *off = json_object_get(times, kinds[OFF]);
    bool all = times != NULL;
    for (int k = 0; k < KINDS; k++) {
        const json_t *kind = json_object_get(times, kinds[k]), *v = json_object_get(kind, "median_s");
        all = all && json_is_number(v);
        out->median[k] = json_number_value(v);
        out->steps[k] = (long)json_integer_value(json_object_get(kind, "steps"));
    }
    out->q1 = json_number_value(json_object_get(off, "q1_s"));
    out->q3 = json_number_value(json_object_get(off, "q3_s"));
    json_decref(o);
    return all;
}

/* Returns the median over n ranks of the difference of two fields of `waits`, or of one; scratch: [n]. */
static double over_ranks(const waits *w, int n, size_t field, size_t less, double *scratch)
{
    for (int i = 0; i < n; i++) {
        double subtracted = 0;
        memcpy(&scratch[i], (const char *)&w[i] + field, sizeof *scratch);
        if (less != field) memcpy(&subtracted, (const char *)&w[i] + less, sizeof subtracted);
        scratch[i] -= subtracted;
    }
    return pb_median(scratch, n);
}

enum { COLUMNS = 9 };
#define MEDIAN(kind)     (offsetof(waits, median) + (kind) * sizeof(double))
#define OF(field)        over_ranks(w, n, field, field, scratch)
#define MORE(kind, than) over_ranks(w, n, MEDIAN(kind), MEDIAN(than), scratch)

/* One row, from the step times of n ranks. All ranks have the same schedule, so the first has the numbers of steps of
 * all. */
static void write_row(const waits *w, int n, const char *name, double *scratch, const pb_analyze_output *o, pb_sheet *t)
{
    char cell[COLUMNS][PB_SHEET_CELL], q1[PB_SHEET_CELL], q3[PB_SHEET_CELL];
    const char *cells[COLUMNS];
    const double off = OF(MEDIAN(OFF)), slower = MORE(RECORDED, OFF), after = MORE(AFTER, OFF);
    const double low = OF(offsetof(waits, q1)), high = OF(offsetof(waits, q3));
    for (int c = 0; c < COLUMNS; c++) cells[c] = cell[c];
    snprintf(cell[0], PB_SHEET_CELL, "%s", name);
    snprintf(cell[1], PB_SHEET_CELL, "%d", n);
    snprintf(cell[2], PB_SHEET_CELL, "%ld, %ld, %ld", w->steps[OFF], w->steps[RECORDED], w->steps[AFTER]);
    pb_time_cell(cell[3], off);
    pb_time_cell(q1, low);
    pb_time_cell(q3, high);
    if (high > 0) snprintf(cell[4], PB_SHEET_CELL, "%.20s to %.20s", q1, q3);
    else snprintf(cell[4], PB_SHEET_CELL, "-");
    pb_time_cell(cell[5], OF(MEDIAN(RECORDED)));
    pb_time_cell(cell[6], OF(MEDIAN(AFTER)));
    pb_share_cell(cell[7], slower, off);
    pb_share_cell(cell[8], after, off);
    pb_sheet_row(t, COLUMNS, cells);
    pb_analyze_csv(o, "waits", -1, 0, name, "step_off", off, "s");
    if (high > 0) { /* an older file lacks them */
        pb_analyze_csv(o, "waits", -1, 0, name, "step_off_q1", low, "s");
        pb_analyze_csv(o, "waits", -1, 0, name, "step_off_q3", high, "s");
    }
    pb_analyze_csv(o, "waits", -1, 0, name, "longer_while_recorded", slower, "s");
    pb_analyze_csv(o, "waits", -1, 0, name, "longer_after", after, "s");
    for (int k = 0; k < KINDS; k++) pb_analyze_csv(o, "waits", -1, 0, name, counts[k], (double)w->steps[k], "1");
}

/* Adds the row of the ranks that are profiled, or of the others, if such ranks exist. */
static pb_status add_row(const pb_analyzed *j, bool profiled, const pb_analyze_output *o, pb_sheet *t)
{
    waits *w = calloc((size_t)j->run.ranks, sizeof *w);
    double *scratch = calloc((size_t)j->run.ranks, sizeof *scratch);
    const bool ok = w && scratch;
    int n = 0;
    for (int r = 0; ok && r < j->run.ranks; r++) n += j->run.profiled[r] == profiled && read_rank(&j->run, r, &w[n]);
    if (n) write_row(w, n, profiled ? "profiled" : "not profiled", scratch, o, t);
    free(w);
    free(scratch);
    return ok ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the step times of %d ranks", j->run.ranks);
}

pb_status pb_analyze_waits(const pb_analyzed *j, const pb_analyze_output *o)
{
    static const char *const titles[COLUMNS] = {
        "ranks that are",     "ranks",          "steps (off, recording, after)", "step",        "its quartiles",
        "while ranks record", "after a window", "longer while they record",      "longer after"};
    pb_sheet t = {0};
    waits w;
    int any = 0;
    for (int r = 0; r < j->run.ranks; r++) any += read_rank(&j->run, r, &w);
    if (!any) return PB_OK;
    pb_sheet_row(&t, COLUMNS, titles);
    pb_status s = add_row(j, true, o, &t);
    if (s == PB_OK) s = add_row(j, false, o, &t);
    if (o->format != PB_ANALYZE_CSV) fprintf(o->f, "\n");
    const pb_status printed = pb_sheet_print(&t, o->format, o->f);
    return s != PB_OK ? s : printed;
}
