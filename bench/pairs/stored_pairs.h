/* stored_pairs.h - reads sessions of pairs in their stored form: a CSV with one row for each session, key and metric.
 *
 * scripts/validate writes this form. These columns are read; others are ignored:
 *
 *   bench_version, machine_id  as in results.csv
 *   session                    name of the session
 *   key, metric                as in results.csv
 *   pairs                      number of pairs of the row, 1 to PB_SIGN_FLIP_MAX
 *   ratios                     ln(candidate/base) of each pair, in the order of measurement, separated by blanks
 *
 * Rows are sorted by session, then key, then metric, without duplicates. */
#ifndef PB_STORED_PAIRS_H
#define PB_STORED_PAIRS_H
#include "bench/rows/rows.h"
#include "bench/stats/stats.h"

typedef struct pb_stored_pairs {
    /* The rows. run_id: the session; process: the number of pairs; samples: 2, because only metrics with samples are
     * stored; value: NaN. */
    pb_table t;
    double (*log_ratio)[PB_SIGN_FLIP_MAX]; /* [t.n] */
} pb_stored_pairs;

/* True if the file exists and its first line has the column `ratios`. */
bool pb_stored_pairs_are(const char *path);
/* Reads a file; free with pb_stored_pairs_free. EPATH, EIO: it cannot be read. EINVAL, with file and line: a column is
 * missing, an unknown metric, another number of ratios than `pairs`, a ratio that is not finite, or rows that are not
 * sorted. ENOMEM. On failure *out holds nothing that needs freeing. */
pb_status pb_stored_pairs_read(const char *path, pb_stored_pairs *out);
void pb_stored_pairs_free(pb_stored_pairs *s);
#endif
