/* launch_values.h - what a pair compares of recorded launches: one logarithm a launch, key and metric. */
#ifndef PB_LAUNCH_VALUES_H
#define PB_LAUNCH_VALUES_H
#include "bench/rows/read.h"

typedef struct pb_launch_values {
    pb_table t;
    /* [t.n], beside the rows: pb_log_median of the row's samples, or ln(value) where samples.csv has none of it. NaN
     * where there is no logarithm: a status that is not ok, a value that is not positive. */
    double *log_value;
} pb_launch_values;

/* `path`: a run folder, whose samples.csv is read when it is there, or a results CSV by itself. EIO, EINVAL with file
 * and line, ENOMEM: as pb_table_read; also samples of one row in two places, and a sample of an ok row that is no
 * positive number. Samples without a row are of a case that did not come to its end: they count for nothing. On
 * failure *out holds nothing that needs freeing. */
pb_status pb_launch_values_read(const char *path, pb_launch_values *out);
void pb_launch_values_free(pb_launch_values *v);
#endif
