/* report.h - `bench report RUN`: the tables of a run, from its results.csv alone.
 *
 * How a suite is laid out is a line of the table in views.c: arms side by side with ratios between them,
 * metrics side by side, or (a suite that has no view) one line a figure. Figures are medians over launches,
 * with the least and the largest launch beside them; what has no figure says why in a footnote. Contracts
 * come last, each with its verdict.
 *
 * As Markdown: the same, what is wrong first, tables as Markdown's. As JUnit XML: a test case a key and metric, which
 * passes with a figure, is skipped where unsupported, a failure where wrong and an error where failed or cut short; a
 * contract is a case that passes, fails or is skipped. */
#ifndef PB_REPORT_H
#define PB_REPORT_H
#include <stdio.h>
#include <stdbool.h>

#include "bench/rows/exits.h"

typedef struct pb_report_opts {
    const char *runs;    /* where the newest run is looked for; NULL: "runs" */
    const char *format;  /* "text" (also NULL), "markdown" or "junit" */
    bool gate_contracts; /* a contract that fails gives PB_EXIT_REGRESSION */
} pb_report_opts;

/* `run`: a run folder or a CSV; NULL: the newest. PB_EXIT_INCOMPARABLE: printed, and some case is wrong,
 * failed or cut short. PB_EXIT_USAGE, PB_EXIT_HARNESS: nothing printed, pb_error() says why. */
pb_exit pb_report(const char *run, const pb_report_opts *o, FILE *out);
#endif
