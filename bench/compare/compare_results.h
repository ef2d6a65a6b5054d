/* compare_results.h - `bench compare`: compares two results, or a run with the stored baselines of its machine.
 * verdict.h and stored_rule.h have the rule, compare_render.h the output.
 *
 * With PB_EXIT_USAGE and PB_EXIT_HARNESS nothing is printed; pb_error() has the message. */
#ifndef PB_COMPARE_RESULTS_H
#define PB_COMPARE_RESULTS_H
#include <stdio.h>

#include "bench/compare/verdict.h"
#include "bench/rows/rows.h"

/* The sub-folder of a run with the second measurement of its worse rows. */
#define PB_RUN_AGAIN "again"

typedef struct pb_compare_opts {
    const char *gates;     /* path; NULL: gates.csv in `baselines` */
    const char *baselines; /* folder of the baselines; NULL: "baselines" */
    const char *machine;   /* name of the machine that measured the results that name none (host_identity.h); NULL:
                              none. A stored baseline keeps its names */
    const char *confirmed; /* results of the candidate's build that measured its worse rows again, in fresh processes:
                              without them a row is SUSPECT where it would be REGRESSED (stored_rule.h); NULL: the
                              candidate's sub-folder PB_RUN_AGAIN, if it holds a complete run */
    bool strict;           /* a SUSPECT or INCONCLUSIVE row gives PB_EXIT_INCONCLUSIVE */
    bool need_verdict;     /* PB_EXIT_INCONCLUSIVE also if no gating row is REGRESSED, IMPROVED or SAME */
    bool allow_mismatch;   /* compare rows of different machines */
    bool require_baseline; /* a missing baseline gives PB_EXIT_INCOMPARABLE, also if there are kept sessions */
    bool subset;           /* the run was filtered, so cases that it lacks are not MISSING */
    bool all;              /* show every row, also unchanged rows that do not gate */
    bool explain;          /* print the reason of each verdict under its row */
    const char *format;    /* "text" (also NULL), "markdown" or "junit": compare_render.h */
} pb_compare_opts;

/* Compares two results. Each is a CSV file, a run folder or a stored baseline; one without rows is an error. */
pb_exit pb_compare_files(const char *base, const char *cand, const pb_compare_opts *o, FILE *out);
/* Compares every suite of a run with baselines/<machine_id>/<suite>.csv and the kept sessions of the run's host
 * (kept_sessions.h). If there is neither, prints a line NO-BASELINE with the path and the command that saves one. */
pb_exit pb_compare_baseline(const char *run, const pb_compare_opts *o, FILE *out);
/* Finds the rows of a run that would be REGRESSED if a second measurement confirmed them: beyond their bound, with
 * enough sessions, and not measured again yet. *keys: the keys of their cases, each followed by a newline, which the
 * caller frees; *rows: their number. Errors as of pb_compare_baseline(). */
pb_status pb_compare_unconfirmed(const char *run, const pb_compare_opts *o, char **keys, int *rows);
/* The exit code of a comparison. count: the number of rows with each verdict, from pb_verdicts or pb_pair_report. */
pb_exit pb_compare_exit(const int count[PB_NVERDICTS], const pb_compare_opts *o);
#endif
