/* self_compare.h - the comparison of two large results CSVs, for suite self, which measures the benchmark program
 * itself. */
#ifndef PB_SELF_COMPARE_H
#define PB_SELF_COMPARE_H
#include "os/status.h"

#include <stddef.h>

/* Two results CSVs of `rows` rows each and a gates.csv, in a new temporary folder. Each CSV holds three processes.
 * Every case has a time, which gates and whose ceiling is matmul_rate, a rate and a counter. In the second CSV every
 * time is 0.1 % longer. */
typedef struct pb_self_files pb_self_files;
/* Makes the files. EINVAL: rows outside [100, 10000000]; EPATH, EIO, ENOMEM. pb_self_files_free() removes the
 * folder. */
pb_status pb_self_files_make(size_t rows, pb_self_files **out);
void pb_self_files_free(pb_self_files *f);

typedef struct pb_self_figures {
    double seconds, peak_bytes; /* peak_bytes: peak resident memory of the whole process during the comparison */
} pb_self_figures;
/* Runs the comparison once in this process, including reading the files and printing, as `bench compare` does. The
 * output is discarded. EWRONG: the verdict is not SAME for every case. */
pb_status pb_self_compare(const pb_self_files *f, pb_self_figures *out);
#endif
