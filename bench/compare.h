/* compare.h - `bench compare`: two results against each other, or a run against the stored baseline of
 * its machine. The rule is in verdict.h.
 *
 * Prints what both sides share once, then one line a key and metric, most severe first, then notes, and
 * as the last line "bench: regressed=0 improved=0 same=8 suspect=1 missing=0 incomparable=0 failed=0 new=0
 * inconclusive=0 exit=0", which counts the rows that gate (and every FAILED and INCOMPARABLE one). Rows that do not
 * gate stand in parentheses and only where they changed, unless `all`.
 *
 * PB_EXIT_USAGE and PB_EXIT_HARNESS: nothing is printed, and pb_error() holds the one line that says why. */
#ifndef PB_COMPARE_H
#define PB_COMPARE_H
#include <stdio.h>

#include "bench/bench.h"

typedef struct pb_compare_opts {
    const char *gates;     /* NULL: gates.csv in `baselines` */
    const char *baselines; /* the folder; NULL: "baselines" */
    bool strict;           /* SUSPECT gives PB_EXIT_INCONCLUSIVE */
    bool allow_mismatch;   /* compare across machines */
    bool require_baseline; /* no baseline gives PB_EXIT_INCOMPARABLE */
    bool subset;           /* the run was filtered: cases it lacks are not MISSING */
    bool all;              /* every row, also unchanged ones that do not gate */
    const char *format;    /* "text" (also NULL), "markdown" or "junit": compare_render.h */
} pb_compare_opts;

/* Each a CSV, a run folder or a stored baseline. A side without rows is an error. */
pb_exit pb_compare_files(const char *base, const char *cand, const pb_compare_opts *o, FILE *out);
/* Every suite of the run against baselines/<machine_id>/<suite>.csv. Where there is none: one line
 * NO-BASELINE, with the path and how to save one. */
pb_exit pb_compare_baseline(const char *run, const pb_compare_opts *o, FILE *out);
#endif
