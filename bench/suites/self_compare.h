/* self_compare.h - the comparison of two large CSVs as something to measure: for the suite that measures the harness.
 */
#ifndef PB_SELF_COMPARE_H
#define PB_SELF_COMPARE_H
#include "os/status.h"

#include <stddef.h>

/* Two results CSVs of `rows` rows each (and a gates.csv) in a new folder: three launches of cases with a time that
 * gates and names a ceiling, a rate and a count. In the second every time is 1 % longer. */
typedef struct pb_self_files pb_self_files;
/* EINVAL: rows outside [100, 10000000]; EPATH, EIO. Free it with pb_self_files_free, which removes the folder. */
pb_status pb_self_files_make(size_t rows, pb_self_files **out);
void pb_self_files_free(pb_self_files *f);

typedef struct pb_self_figures {
    double seconds, peak_bytes; /* the largest resident set of this process meanwhile, program and all */
} pb_self_figures;
/* Compares them once in this process, from reading to the last line, as `bench compare` does; what it prints is thrown
 * away. EWRONG: it did not come to the verdict that the files have. */
pb_status pb_self_compare(const pb_self_files *f, pb_self_figures *out);
#endif
