/* analyze_job.h - a profiled job that `bench analyze` has read, and how its figures are printed. Private to
 * bench/analyze. */
#ifndef PB_ANALYZE_JOB_H
#define PB_ANALYZE_JOB_H
#include "bench/analyze/breakdown.h"
#include "bench/analyze/ceilings.h"
#include "bench/analyze/sheet.h"

typedef struct pb_analyzed {
    pb_profile_run run;
    pb_breakdown *of; /* [run.n]: of each trace */
} pb_analyzed;

typedef struct pb_analyze_output {
    pb_analyze_format format;
    FILE *f;
    const pb_ceilings *ceilings; /* NULL: none are given */
} pb_analyze_output;

/* The line of column names, in CSV. */
void pb_analyze_csv_head(const pb_analyze_output *o);
/* One figure as a row of CSV; nothing in other formats. rank -1: over the ranks. */
void pb_analyze_csv(const pb_analyze_output *o, const char *part, int rank, long step, const char *name,
                    const char *metric, double v, const char *unit);
/* Cells: "12.3 ms", "12.3 ms  45.6 %". */
void pb_time_cell(char out[PB_SHEET_CELL], double seconds);
void pb_share_cell(char out[PB_SHEET_CELL], double part, double whole);
bool pb_analyzed_has_gpu(const pb_analyzed *j);

/* The table of collectives by group, and how far apart ranks begin and end the same call. ENOMEM. */
pb_status pb_analyze_collectives(const pb_analyzed *j, const pb_analyze_output *o);
/* The cost of recording for the ranks that recorded, and for the others, which wait for them; medians over the ranks.
 * Nothing if the job had no step of each kind. ENOMEM. */
pb_status pb_analyze_waits(const pb_analyzed *j, const pb_analyze_output *o);
/* The tables of phases, of ops, and of the kernels of the first trace. CSV has the kernels of all traces. ENOMEM. */
pb_status pb_analyze_phases(const pb_analyzed *j, const pb_analyze_output *o);
pb_status pb_analyze_ops(const pb_analyzed *j, const pb_analyze_output *o);
pb_status pb_analyze_kernels(const pb_analyzed *j, const pb_analyze_output *o);
/* The table of sampled hardware counters by phase (samples.h): sums over all traces that have samples and steps, so
 * that a mean is weighted by the sampled time. Nothing if no trace has both. ENOMEM. */
pb_status pb_analyze_samples(const pb_analyzed *j, const pb_analyze_output *o);
/* The changes from `before` to `now`, in seconds per step, the largest first: the parts of a step, which add up to the
 * change of the step; phases; collectives by group and dtype, of which only exposed time counts; ops. If both runs have
 * work of a GPU, the parts are those of its time, otherwise those of the training threads. If one has and the other has
 * not, a line says so, and collectives are left out. ENOMEM. */
pb_status pb_analyze_change(const pb_analyzed *now, const pb_analyzed *before, const pb_analyze_output *o);
#endif
