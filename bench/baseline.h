/* baseline.h - stored baselines: baselines/<machine_id>/<suite>.csv, results reduced to one row per key and
 * metric.
 *
 * Such a file has the columns of results.csv. `value` is the median over launches, to four digits, so that
 * a diff is readable; `launch` is their number; `run_id` is "baseline:" and the run it came from; `note` is
 * the reason it was saved. It holds the rows with status ok of metrics that have a direction, and the
 * ceilings of the same run, sorted by key, then metric. */
#ifndef PB_BASELINE_H
#define PB_BASELINE_H
#include <stdio.h>

#include "bench/series.h"

enum { PB_BASELINE_LAUNCHES = 3 }; /* the least a run must have */

typedef struct pb_baseline_opts {
    const char *baselines; /* the folder; NULL: "baselines" */
    const char *runs;      /* where the newest run is looked for; NULL: "runs" */
    const char *reason;    /* NULL: none */
} pb_baseline_opts;

/* Writes one file a suite of the run, each to a temporary file that is then renamed; says so on `out`.
 * `run` NULL: the newest. PB_EXIT_USAGE, with pb_error(): a run that cannot be read, was cut short, has a
 * wrong or failed case, or has fewer than three launches of a case. Nothing is written then. */
pb_exit pb_baseline_save(const char *run, const pb_baseline_opts *o, FILE *out);
/* One line a stored baseline: of one machine, or of all (NULL). */
pb_exit pb_baseline_show(const char *machine_id, const pb_baseline_opts *o, FILE *out);

/* <baselines>/<machine_id>/<suite>.csv. EINVAL: a name that could leave the folder. */
pb_status pb_baseline_path(const char *baselines, const char *machine_id, const char *suite, char *out, size_t n);
/* The suites of a run that have a baseline of their own: all but `contract`, and `ceiling` only when it is
 * the only one. Returns how many, at most max. */
int pb_baseline_suites(const pb_series_set *set, char (*suites)[PB_AXIS_TEXT], int max);
#endif
