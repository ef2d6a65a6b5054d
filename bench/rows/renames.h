/* renames.h - translates names of bench_version 1 into those of bench_version 2 (renames.def). Only names changed
 * between the two: a value of version 1 means the same in version 2, so rows of both can be compared. */
#ifndef PB_RENAMES_H
#define PB_RENAMES_H
#include "bench/rows/row.h"

#define PB_RENAMED_VERSION "1" /* the bench_version whose names are translated */

/* The current name of a column, a metric or an axis. A name that did not change is returned as it is. */
const char *pb_renamed_column(const char *name);
const char *pb_renamed_metric(const char *name);
const char *pb_renamed_axis(const char *name);
/* Writes the current form of a key of version 1, with its axes sorted anew. EINVAL: not a key, or it becomes too
 * long. */
pb_status pb_renamed_key(const char *key, char out[PB_KEY_TEXT]);
#endif
