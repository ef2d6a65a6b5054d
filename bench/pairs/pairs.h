/* pairs.h - the public header of bench/pairs: compares two executables by pairs of fresh processes.
 *
 *   pair_rule.h       the rule: the verdict of each row, and whether more pairs are needed
 *   pair_run.h        measures pairs until the rule needs no more
 *   pair_folder.h     the folder of the comparison, which grows by one pair at a time
 *   pair_report.h     judges the folder, and prints the verdicts
 *   simulate_files.h  how often the rule would be wrong on recorded processes */
#ifndef PB_BENCH_PAIRS_H
#define PB_BENCH_PAIRS_H
#include "bench/pairs/pair_folder.h"
#include "bench/pairs/pair_report.h"
#include "bench/pairs/pair_rule.h"
#include "bench/pairs/pair_run.h"
#include "bench/pairs/simulate_files.h"
#endif
