/* exact_rule.h - the rule for exact counters (EXACT in metrics.def). Pure: no files, no text.
 *
 * The same code gives the same number, so no statistics are needed: one process of each side is enough, and any
 * difference is a change of the code. The sides are comparable where their exact keys are equal (exact_key.h). The
 * verdict is that of the first line whose conditions hold:
 *
 *   conditions                                                    verdict         counts
 *   ------------------------------------------------------------  --------------  ------
 *   comparable; the base has the counter, the candidate not       MISSING         yes
 *   the processes of a side differ                                INCONCLUSIVE    no
 *   equal numbers                                                 SAME            no
 *   not comparable                                                REFERENCE       no
 *   rule fewer, the candidate's number is larger                  REGRESSED       yes
 *   rule fewer, the candidate's number is smaller                 IMPROVED        yes
 *   rule listed                                                   SUSPECT         no
 *
 * A rise that accepted.csv accepts is REGRESSED here; the caller leaves it out (accepted.h). SUSPECT of a digest means
 * that as many kernels run as before, but others: only times can say whether that is worse. Where the number of kernels
 * changed as well, that row says which, and the digest has none. */
#ifndef PB_EXACT_RULE_H
#define PB_EXACT_RULE_H
#include "bench/compare/verdict.h"

/* The number of a series: of the newest session of a stored baseline, else of all processes. varies: the processes
 * differ. */
typedef struct pb_exact_number {
    double value;
    bool varies;
} pb_exact_number;
pb_exact_number pb_exact_number_of(const pb_series *s);

/* The verdict by the table above. Both series have a value; listed is the counter's rule. */
pb_verdict_id pb_exact_verdict(const pb_series *base, const pb_series *cand, bool listed, bool comparable);
#endif
