/* baseline.h - stored baselines: baselines/<machine_id>/<suite>.csv holds the last sessions (stored runs) of a suite.
 *
 * A baseline has the columns of results.csv, and one row per session, key and metric:
 *
 *   run_id   "baseline:" followed by the run_id of the run that became this session
 *   value    the median over the run's processes, with four digits, so that diffs are readable (exact
 *            counters: with all digits)
 *   process  the number of these processes
 *   note     the reason why the session was stored
 *   commit   the commit that the run measured
 *
 * It holds the rows with status ok of the metrics that gate or that metrics.def says to keep, the ceilings of the run,
 * and its requirements and crossovers with their own notes.
 * Rows are sorted by session, oldest first (a run_id begins with the time), then by key, then by metric. An update thus
 * adds lines at the end and removes lines at the top, and leaves all other lines unchanged.
 *
 * Why PB_BASELINE_SESSIONS is 20: the rule (stored_rule.h) gains little from more sessions than ten, and the oldest of
 * many would no longer describe today's machine. */
#ifndef PB_BASELINE_H
#define PB_BASELINE_H
#include <stdio.h>

#include "bench/compare/gates.h"
#include "bench/rows/rows.h"

enum { PB_BASELINE_SESSIONS = 20 };

typedef struct pb_baseline_opts {
    const char *baselines; /* folder of the baselines; NULL: "baselines" */
    const char *runs;      /* folder in which the newest run is looked up; NULL: "runs" */
    const char *gates;     /* path; NULL: gates.csv in `baselines` */
    const char *machine;   /* name of the machine that measured the run, if the run names none; NULL: none */
    const char *reason;    /* becomes the note of the stored rows; NULL: none */
    int sessions;          /* sessions that an update keeps; 0: PB_BASELINE_SESSIONS */
    bool subset;           /* an update stores also a run that lacks gating rows */
} pb_baseline_opts;

/* Store a run in the baseline of each of its suites, and print a line per file on `out`. run NULL: the newest run.
 * Save replaces the file: the run becomes its only session. Update adds the run to the stored sessions and drops the
 * oldest sessions beyond o->sessions; it creates the file if it does not exist.
 *
 * Each file is replaced atomically (os/draft.h). A lock on the folder serialises concurrent calls.
 *
 * Every complete run is stored, whatever its values are. A baseline shows how runs of this machine scatter, and it
 * would no longer do so if slow runs were left out, or only fast ones replaced others: an unchanged program would then
 * exceed its bounds more often than they promise. The verdicts against the sessions before are printed. A session that
 * is to be left out, for example because of other work, is removed from the file, and the commit says why.
 *
 * An update that lacks a gating row is refused with PB_EXIT_INCOMPARABLE unless o->subset is set: a row that the newest
 * session lacks can no longer be MISSING in a run.
 *
 * PB_EXIT_USAGE: the run cannot be read, was cut short, has a wrong or failed case, or a case with fewer than
 * PB_ENOUGH_PROCESSES processes, or was measured by a program built with sanitizers, coverage counters or without
 * optimisation (build.h); an update without a reason; an update whose run cannot be
 * compared with the stored sessions, is stored already, or is older than every session that would be kept.
 * PB_EXIT_HARNESS: the machine failed, for example with a full disk. pb_error() has the message. All suites are checked
 * before the first file is written. */
pb_exit pb_baseline_save(const char *run, const pb_baseline_opts *o, FILE *out);
pb_exit pb_baseline_update(const char *run, const pb_baseline_opts *o, FILE *out);
/* Prints a line per file of kept sessions (kept_sessions.h) and per stored baseline, and a line per session if it has
 * several. machine_id NULL: of all machines. */
pb_exit pb_baseline_show(const char *machine_id, const pb_baseline_opts *o, FILE *out);

/* Replaces the file `path` in the folder <baselines>/<machine_id>, which is created if it does not exist, by these
 * rows. EPATH, EIO, ENOMEM. */
pb_status pb_baseline_write(const char *baselines, const char *machine_id, const char *path, const pb_row *rows,
                            size_t n);

static inline const char *pb_baseline_folder(const char *baselines) { return baselines ? baselines : "baselines"; }
/* Reads the gates from the file `gates`; NULL: from gates.csv in the folder `baselines`. */
pb_status pb_baseline_gates(const char *baselines, const char *gates, pb_gates *out);
/* Writes the path <baselines>/<machine_id>/<suite>.csv to out. EINVAL: a name that would lead out of the folder, or a
 * path that is too long. */
pb_status pb_baseline_path(const char *baselines, const char *machine_id, const char *suite, char *out, size_t n);
/* Lists the suites of a run that get a baseline file: all except `requirement` and `crossover`, and `ceiling` only if
 * the run has no other suite. Returns their number, at most max. */
int pb_baseline_suites(const pb_series_set *set, char (*suites)[PB_AXIS_TEXT], int max);
/* True for requirements and crossovers: rows that are derived from rows of a suite, and stored in that suite's
 * baseline. */
static inline bool pb_baseline_derived(const char *key)
{
    return pb_key_of(key, "requirement") || pb_key_of(key, "crossover");
}
#endif
