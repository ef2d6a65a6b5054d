/* exact_rule.h - the rule for exact counters (EXACT in metrics.def). Pure: no files, no text.
 *
 * The same code gives the same number, so no statistics are needed: one process of each side is enough, and any
 * difference is a change of the code. Numbers count as equal where metrics.def says so: the instructions of a call
 * differ by some hundred with the state of the C library's allocator. The sides are comparable where their exact keys
 * are equal (exact_key.h). The verdict is that of the first line whose conditions hold. Each counter has one of two
 * rules in metrics.def: `fewer` (a larger number is worse; so it is for `lower`, whose numbers may have fractions) or
 * `listed` (a digest of a list). The last column says whether the row affects the exit code:
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
 * A rise that accepted.csv accepts is REGRESSED here; the caller leaves it out (accepted.h). SUSPECT for a kernel
 * digest means that the number of kernel launches is unchanged, but other kernels run: only times can say whether that
 * is worse. If the number of launches changed too, the row of that counter lists the kernels, and the digest gets no
 * row. */
#ifndef PB_EXACT_RULE_H
#define PB_EXACT_RULE_H
#include "bench/compare/verdict.h"

/* The number that a series contributes: the value in the newest session of a stored baseline, else the median over the
 * processes. varies: the processes differ, so there is no exact number. */
typedef struct pb_exact_number {
    double value;
    bool varies;
} pb_exact_number;
pb_exact_number pb_exact_number_of(const pb_series *s, const pb_exact_counter *counter);

/* The verdict by the table above, for a counter with this rule. Both series have a value. */
pb_verdict_id pb_exact_verdict(const pb_series *base, const pb_series *cand, const pb_exact_counter *counter,
                               bool comparable);
#endif
