/* pair_rows.h - what a comparison's folder holds, as pair_rule.h takes it: a row a key and metric, with the logarithm
 * of the ratio of each pair.
 *
 * A launch's value is the median of the logarithms of its samples (samples.csv); where a metric has none, the logarithm
 * of its value. Contracts are no rows, nor are metrics without a direction while the candidate's figures are not wrong
 * (pb_verdict_wrong); they are told beside the rows. A row that the candidate never has is absent;
 * one that a side lacks in some pair has an obstacle, because leaving such pairs out would choose by outcome. */
#ifndef PB_PAIR_ROWS_H
#define PB_PAIR_ROWS_H
#include "bench/pairs/pair_rule.h"

typedef struct pb_pair_table {
    pb_table table[2]; /* base, candidate */
    pb_series_set set[2];
    int pairs;
    pb_pair_row *rows;             /* [n] */
    const pb_series *(*series)[2]; /* [n]; NULL: that side has none. Of a gate that nothing was held against: both */
    size_t n;
    const pb_series **fresh; /* [nfresh] that only the candidate has figures of */
    size_t nfresh;
    const pb_series *(*told)[2]; /* [ntold] metrics without a direction that both sides have */
    size_t ntold;
    double *x[2];      /* [set[side].n * pairs]: what log_ratio is made of; NaN where there is none */
    double *log_ratio; /* [n * pairs] */
    pb_series *demanded;
    double slowdown[2]; /* achieved on purpose, of the candidate: least and largest of all cases; 0: none */
} pb_pair_table;

/* Reads the first `pairs` pairs of DIR. EINVAL, EIO: a file that cannot be read. */
pb_status pb_pair_table_read(const char *dir, int pairs, const pb_gates *gates, bool allow_mismatch,
                             pb_pair_table *out);
void pb_pair_table_free(pb_pair_table *t);
#endif
