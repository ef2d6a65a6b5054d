/* pair_run.h - measures pairs of launches until the rule is content, the time is up or somebody interrupts. */
#ifndef PB_PAIR_RUN_H
#define PB_PAIR_RUN_H
#include "bench/pairs/pair_report.h"

typedef struct pb_pair_run {
    pb_pair_folder *folder;
    const pb_pair_plan *plan;
    const pb_gates *gates;
    bool allow_mismatch, quiet;
    double budget; /* seconds; < 0: none */
} pb_pair_run;

/* What is drawn for an attempt at a pair, from the comparison's seed alone: so that --resume draws the same. */
void pb_pair_draw(uint64_t seed, int pair, int attempt, pb_pair_line *out);

/* *code PB_EXIT_OK: there are pairs to judge (*late: the budget ended it); else why there are none to judge, with a
 * line on stderr. A failure has its reason in pb_error(). */
pb_status pb_pair_run_all(const pb_pair_run *r, bool *late, pb_exit *code);
#endif
