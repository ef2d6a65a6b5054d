/* pair_rows.h - reads a comparison's folder into rows for pair_rule.h: one row per key and metric, with the logarithm
 * of the ratio of each pair.
 *
 * A process counts with pb_log_median of its samples, or with the logarithm of its value if samples.csv has none. No
 * row is made for the suite `requirement`, nor for a metric without a direction, unless the candidate's values are
 * wrong (pb_verdict_wrong); metrics without a direction are listed in `undirected`. If the candidate lacks a value in
 * every pair, the row is absent. If either side lacks one in some pairs, the row has an obstacle: dropping those pairs
 * would select pairs by their outcome. */
#ifndef PB_PAIR_ROWS_H
#define PB_PAIR_ROWS_H
#include "bench/pairs/process_values.h"
#include "bench/pairs/pair_rule.h"

typedef struct pb_pair_table {
    pb_process_values values[2]; /* [0]: base, [1]: candidate; the rows, and ln(value) of each row */
    pb_series_set set[2];        /* [0]: base, [1]: candidate; the rows joined into series */
    int pairs;
    pb_pair_row *rows; /* [n] */
    /* [n] base and candidate of each row; NULL: that side lacks the row. For a gate without a row both are one entry of
     * `placeholders`. */
    const pb_series *(*series)[2];
    size_t n;
    const pb_series **only_cand; /* [only_cand_n] series that only the candidate measured */
    size_t only_cand_n;
    const pb_series *(*undirected)[2]; /* [undirected_n] metrics without a direction that both sides measured */
    size_t undirected_n;
    double *x[2];            /* x[side][set[side].n * pairs]: logarithm of each process's value; NaN: no value */
    double *log_ratio;       /* [n * pairs] storage of rows[].log_ratio */
    pb_series *placeholders; /* one placeholder for each gate without a row */
    /* Smallest and largest injected delay that the candidate achieved, over all cases; 0: none was injected. */
    double slowdown[2];
} pb_pair_table;

/* Reads the first `pairs` pairs of folder `dir`. EINVAL, EIO: a file cannot be read. ENOMEM. */
pb_status pb_pair_table_read(const char *dir, int pairs, const pb_gates *gates, bool allow_mismatch,
                             pb_pair_table *out);
void pb_pair_table_free(pb_pair_table *t);
#endif
