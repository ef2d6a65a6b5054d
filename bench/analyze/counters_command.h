/* counters_command.h - `bench analyze counters`: hardware events of the steps, phases or ops of a training run. */
#ifndef PB_COUNTERS_COMMAND_H
#define PB_COUNTERS_COMMAND_H
#include "bench/analyze/analyze_command.h"

/* Reads FOLDER/counters/stepN-rankR.csv that `train --profile-counters` wrote (trace/range_counts.h), and prints, for
 * each range by its name, means per step over steps and ranks:
 *     the metrics of the group: its formulas with the sums of the events, so that shares are weighted by their parts
 *     roofline: the least FLOPs and bytes of its ops by their models, the bytes that device memory moved, the rates of
 *     both in the counted time, and the share of the ceilings (ceilings.h): by the model's FLOPs and bytes, and by its
 *     FLOPs and the counted bytes. Only if the group has the metrics counted_time and dram_bytes.
 * ceilings: a run with the machine's ceilings; NULL: none, and the shares are empty. PB_EXIT_OK: printed.
 * PB_EXIT_USAGE: no such files, one is not such a table, or of another group or mode than the first, the group is not
 * among those of this program or has other events, or the ceilings cannot be used. */
pb_exit pb_analyze_counters(const char *folder, const char *ceilings, pb_analyze_format format, FILE *out);
#endif
