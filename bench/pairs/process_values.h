/* process_values.h - reads what recorded processes measured as one logarithm for each process, key and metric: the
 * input of paired comparisons. */
#ifndef PB_PROCESS_VALUES_H
#define PB_PROCESS_VALUES_H
#include <stdbool.h>

#include "bench/rows/rows.h"

typedef struct pb_process_values {
    pb_table t;
    /* [t.n] log_value[i] belongs to t.rows[i]: pb_log_median of the row's samples, or ln(value) if samples.csv has
     * none. -inf if that value is 0; NaN if it is negative or the row's status is not ok. */
    double *log_value;
} pb_process_values;

/* Reads a run folder with its samples.csv, or a results CSV alone. `samples`: samples.csv must exist; otherwise a
 * missing one is not an error. Samples without a row are ignored: they are from a case that did not finish. EPATH, EIO,
 * EINVAL (with file and line), ENOMEM: as pb_table_read; EINVAL also if the samples of a row are not contiguous, or a
 * sample of an ok row is not a positive number. On failure *out holds nothing that needs freeing. */
pb_status pb_process_values_read(const char *path, bool samples, pb_process_values *out);
void pb_process_values_free(pb_process_values *v);
#endif
