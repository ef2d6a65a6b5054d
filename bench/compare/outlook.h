/* outlook.h - how far the figures of one run can be trusted: the spread between its processes, and the change that a
 * comparison with one more run like it would find. Needs no stored session. Pure: no files.
 *
 * Let the m judged rows be the first of these that the run has: the rows whose metric gates; the rows whose metric
 * gates in comparisons of executables only; all rows in seconds, ceilings excepted. Let g be the number of suites and
 * metrics with two such rows or more (each has a row `all rows`). By stored_rule.h, with K = 1:
 *
 *   spread    sqrt(mean over the judged rows of var(ln processes))
 *   u2        max(w2, p2) of the row's suite and metric; p2 without the row's own case
 *   s2        (6 (u2 + c2) + 0) / 6                          no stored session shows anything yet
 *   detects   max(t(0.01/(m + g), 6) sqrt(2 s2), ln 1.02)    one session against one session */
#ifndef PB_OUTLOOK_H
#define PB_OUTLOOK_H
#include "bench/compare/gates.h"
#include "bench/rows/rows.h"

typedef struct pb_outlook {
    int rows;      /* judged rows with at least PB_ENOUGH_PROCESSES processes; 0: nothing is known */
    bool gating;   /* these rows gate, in comparisons of runs or of executables */
    double spread; /* standard deviation of ln(value) between processes */
    double detects_least, detects_most; /* over these rows, as pb_evidence.detects: of ln(value) */
} pb_outlook;

/* Computes the outlook of a run. locked_clocks: see pb_judge_opts. ENOMEM. */
pb_status pb_outlook_of(const pb_series_set *run, const pb_gates *gates, bool locked_clocks, pb_outlook *out);
#endif
