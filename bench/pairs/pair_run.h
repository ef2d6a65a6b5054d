/* pair_run.h - measures pairs until the rule needs no more, the time budget is used up or a signal interrupts. */
#ifndef PB_PAIR_RUN_H
#define PB_PAIR_RUN_H
#include "bench/pairs/pair_report.h"

typedef struct pb_pair_run {
    pb_pair_folder *folder;
    pb_pair_plan *plan; /* a time budget may change the number of pairs, once, after the first pair */
    const pb_gates *gates;
    bool allow_mismatch, quiet;
    double budget; /* seconds; negative: unlimited */
} pb_pair_run;

/* Draws the order, seed and padding for one attempt at a pair. Depends on the arguments only, so that --resume draws
 * the same values again. */
void pb_pair_draw(uint64_t seed, int pair, int attempt, pb_pair_line *out);

/* Measures until no more pairs are needed. With a time budget, and unless plan->pairs_given, the first pair shows how
 * many pairs fit into the budget. If they are fewer than planned, the plan becomes one look after as many as fit, which
 * spends all of alpha; it depends on the time that a pair takes, not on its ratios. *code PB_EXIT_OK: the folder has
 * pairs to judge (*late: the budget ended the measurement). Any other *code: no judgement is possible, and the reason
 * was printed on stderr. A failed status has its reason in pb_error(). */
pb_status pb_pair_run_all(const pb_pair_run *r, bool *late, pb_exit *code);
#endif
