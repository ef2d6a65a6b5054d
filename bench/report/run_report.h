/* run_report.h - `bench report RUN`: prints the tables of a run. It reads results.csv only.
 *
 * The table in views.c gives the layout of each suite: a column per variant, with a table of ratios between variants; a
 * column per metric; or, for other suites, a line per value. Values are medians over processes, with the least and
 * greatest value of a process. A footnote gives the reason for a missing value. The requirements and their results come
 * last.
 *
 * Markdown: a headline with what is wrong, then the same tables. JUnit: a test case per key and metric.
 *
 *   outcome   rows
 *   passed    status ok; a requirement that passes
 *   failure   status wrong; a requirement that fails
 *   skipped   status unsupported; status throttled in all processes
 *   error     every other status, such as failed, timeout and truncated */
#ifndef PB_RUN_REPORT_H
#define PB_RUN_REPORT_H
#include <stdio.h>
#include <stdbool.h>

#include "bench/rows/rows.h"

typedef struct pb_report_opts {
    const char *runs;       /* folder in which the newest run is looked up; NULL: "runs" */
    const char *format;     /* "text" (also NULL), "markdown" or "junit" */
    bool gate_requirements; /* a requirement that fails gives PB_EXIT_REGRESSION */
} pb_report_opts;

/* Prints the report of a run (a run folder or a CSV file; NULL: the newest run) on `out`. PB_EXIT_INCOMPARABLE: the
 * report was printed, and a case is wrong, failed or was cut short. PB_EXIT_USAGE, PB_EXIT_HARNESS: nothing was
 * printed; pb_error() has the message. */
pb_exit pb_report(const char *run, const pb_report_opts *o, FILE *out);
#endif
