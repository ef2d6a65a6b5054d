/* compare.h - `bench compare`: two results against each other, or a run against the stored baseline of its machine. The
 * rule is in verdict.h and stored_rule.h, what is shown in compare_render.h.
 *
 * PB_EXIT_USAGE and PB_EXIT_HARNESS: nothing is printed, and pb_error() holds the one line that says why. */
#ifndef PB_COMPARE_H
#define PB_COMPARE_H
#include <stdio.h>

#include "bench/compare/verdict.h"
#include "bench/rows/exits.h"

typedef struct pb_compare_opts {
    const char *gates;     /* NULL: gates.csv in `baselines` */
    const char *baselines; /* the folder; NULL: "baselines" */
    bool strict;           /* SUSPECT and INCONCLUSIVE give PB_EXIT_INCONCLUSIVE */
    bool need_verdict;     /* no row that gates REGRESSED, IMPROVED or SAME gives it too: nothing was judged */
    bool allow_mismatch;   /* compare across machines */
    bool require_baseline; /* no baseline gives PB_EXIT_INCOMPARABLE */
    bool subset;           /* the run was filtered: cases it lacks are not MISSING */
    bool all;              /* every row, also unchanged ones that do not gate */
    bool explain;          /* under each row why its verdict fell */
    const char *format;    /* "text" (also NULL), "markdown" or "junit": compare_render.h */
} pb_compare_opts;

/* Each a CSV, a run folder or a stored baseline. A side without rows is an error. */
pb_exit pb_compare_files(const char *base, const char *cand, const pb_compare_opts *o, FILE *out);
/* Every suite of the run against baselines/<machine_id>/<suite>.csv. Where there is none: one line
 * NO-BASELINE, with the path and how to save one. */
pb_exit pb_compare_baseline(const char *run, const pb_compare_opts *o, FILE *out);
/* The exit code of verdicts: of `count` of pb_verdicts, or of pb_pair_report. */
pb_exit pb_compare_exit(const int count[PB_NVERDICTS], const pb_compare_opts *o);
#endif
