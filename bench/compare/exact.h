/* exact.h - compares the exact counters of two sides and adds the rows that changed to a comparison. exact_rule.h has
 * the rule.
 *
 *     pb_exact *x;
 *     PB_TRY(pb_exact_open(baselines, &x));
 *     s = pb_exact_two(x, base, base_path, cand, cand_path, &vs);      (or pb_exact_stored for each suite)
 *     if (s == PB_OK) s = pb_exact_finish(x, &notes);
 *     ... print vs and notes ...
 *     pb_exact_close(x);
 *
 * Call them after the verdicts of all other rows were decided: the rows count in pb_verdicts.count, but belong to no
 * family of tests. Rows of exact counters that *vs has already are replaced, unless they are FAILED or the like. */
#ifndef PB_EXACT_H
#define PB_EXACT_H
#include "bench/compare/verdict.h"

typedef struct pb_exact pb_exact;

/* Reads accepted.csv in the folder of the baselines (NULL: "baselines"). EINVAL, EIO, ENOMEM: as pb_accepted_read(). */
pb_status pb_exact_open(const char *baselines, pb_exact **out);
/* Compares two results. The paths are those of run folders or CSV files, and lead to the runs' exact keys. The sets
 * must outlive the printing. ENOMEM. */
pb_status pb_exact_two(pb_exact *x, const pb_series_set *base, const char *base_path, const pb_series_set *cand,
                       const char *cand_path, pb_verdicts *vs);
/* Compares one suite of a run with baselines/exact/<suite>.csv and, for counters that this file lacks, with the newest
 * stored session in `sessions` (NULL: none). Errors of pb_exact_store_read(); ENOMEM. */
pb_status pb_exact_stored(pb_exact *x, const char *suite, const pb_series_set *sessions, const pb_series_set *cand,
                          const char *cand_path, pb_verdicts *vs);
/* Writes the notes, complete lines: how many counters were compared and with what, each accepted rise with its reason,
 * and lines of accepted.csv that nothing needs. They belong to x. "": no side has exact counters. */
pb_status pb_exact_finish(pb_exact *x, const char **notes);
/* The stored counters of the first suite that has any. NULL: none. */
const pb_series_set *pb_exact_base(const pb_exact *x);
/* The number of counters that were compared. */
int pb_exact_compared(const pb_exact *x);
void pb_exact_close(pb_exact *x); /* NULL: does nothing */
#endif
