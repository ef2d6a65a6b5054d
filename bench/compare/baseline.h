/* baseline.h - stored baselines: baselines/<machine_id>/<suite>.csv, the last sessions of a suite on a machine, each
 * reduced to one row per key and metric.
 *
 * Such a file has the columns of results.csv. `value` is the median over launches, to four digits, so that a diff is
 * readable; `launch` is their number; `run_id` is "baseline:" and the run it came from, which names the session; `note`
 * is the reason it was stored. It holds the rows with status ok of metrics that have a direction, and the ceilings of
 * the same run. Rows are sorted by session, oldest first (a run_id begins with the time), then key, then metric: an
 * update adds lines at the end and takes some from the top, and every other line stays as it is. One session is a file
 * too.
 *
 * PB_BASELINE_SESSIONS are kept: ten are the least for a prediction bound (stored_rule.h); with twenty gating rows
 * twenty sessions bring it from 5.0 to 4.0 standard deviations of a session, ten more to 3.7 only, and what is compared
 * with should not be a year old. */
#ifndef PB_BASELINE_H
#define PB_BASELINE_H
#include <stdio.h>

#include "bench/compare/gates.h"
#include "bench/rows/series.h"

enum { PB_BASELINE_SESSIONS = 20 };

typedef struct pb_baseline_opts {
    const char *baselines; /* the folder; NULL: "baselines" */
    const char *runs;      /* where the newest run is looked for; NULL: "runs" */
    const char *gates;     /* NULL: gates.csv in `baselines` */
    const char *reason;    /* NULL: none */
    int sessions;          /* how many an update keeps; 0: PB_BASELINE_SESSIONS */
    bool accept_regression;
} pb_baseline_opts;

/* Both functions write one file for each suite of the run (NULL: the newest run), whole or not at all (os/draft.h), and
 * say so on `out`. Processes that call them at the same time wait for each other, so that no session is lost. Save starts
 * over with the run as the only session; update adds it to the stored sessions, drops the oldest beyond o->sessions, and
 * makes the file where there is none.
 *
 * A failing value does not enter by accident: a run that is REGRESSED against the sessions stored is refused with
 * PB_EXIT_REGRESSION, an update also with PB_EXIT_INCOMPARABLE when it lacks a row that gates, unless
 * o->accept_regression. An improvement is never refused.
 *
 * PB_EXIT_USAGE: a run that cannot be read, was cut short, has a wrong or failed case, or has fewer than three launches
 * of a case; an update, or acceptance, without a reason; an update that cannot be compared with what is stored, is in
 * it already, or is older than every session that would be kept. PB_EXIT_HARNESS: the machine failed, as with a full
 * disk. All of it with pb_error(); no file is written then. */
pb_exit pb_baseline_save(const char *run, const pb_baseline_opts *o, FILE *out);
pb_exit pb_baseline_update(const char *run, const pb_baseline_opts *o, FILE *out);
/* One line a stored baseline, and one a session where there are several: of one machine, or of all (NULL). */
pb_exit pb_baseline_show(const char *machine_id, const pb_baseline_opts *o, FILE *out);

static inline const char *pb_baseline_folder(const char *baselines) { return baselines ? baselines : "baselines"; }
/* o->gates, or gates.csv of the folder. */
pb_status pb_baseline_gates(const char *baselines, const char *gates, pb_gates *out);
/* <baselines>/<machine_id>/<suite>.csv. EINVAL: a name that could leave the folder. */
pb_status pb_baseline_path(const char *baselines, const char *machine_id, const char *suite, char *out, size_t n);
/* The suites of a run that have a baseline of their own: all but `contract`, and `ceiling` only when it is
 * the only one. Returns how many, at most max. */
int pb_baseline_suites(const pb_series_set *set, char (*suites)[PB_AXIS_TEXT], int max);
/* Rows that follow from those of a suite, and are stored with them. */
static inline bool pb_baseline_derived(const char *key)
{
    return pb_key_of(key, "contract") || pb_key_of(key, "crossover");
}
#endif
