/* nan_command.h - `bench analyze nan`: where a value that is not finite first appeared in a training run. */
#ifndef PB_NAN_COMMAND_H
#define PB_NAN_COMMAND_H
#include <stdio.h>

#include "bench/rows/rows.h"

/* Reads the statistics FOLDER/tensors/stepN-rankR.csv that `train --capture-tensors` wrote, and prints step, rank,
 * layer, tensor, row and column of the first NaN or infinity: of the earliest step, and in it, in the order in which a
 * step computes: activations from the first layer to the last, then gradients from the last layer to the first, then
 * momentum, second moment and weight. A weight that an activation of the same step must have read comes before all of
 * these. If ranks share that place, the lowest one is named and the others are listed. If the rank did not capture the
 * step before, the fault may be older: a further line says with which option to run again. PB_EXIT_OK: printed, or all
 * values are finite. PB_EXIT_USAGE: no such files, or one is not such a table. */
pb_exit pb_analyze_nan(const char *folder, FILE *out);
#endif
