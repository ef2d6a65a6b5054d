/* verdict_impl.h - what the files verdict*.c share. */
#ifndef PB_VERDICT_IMPL_H
#define PB_VERDICT_IMPL_H
#include "bench/compare/verdict.h"

/* Appends a row. ENOMEM. */
pb_status pb_verdicts_append(pb_verdicts *out, pb_verdict v);

/* True if both rows are of one suite and metric. */
bool pb_verdicts_alike(const pb_verdict *a, const pb_verdict *b);
/* True for a row that enters a row `all rows`: it gates, and its sessions are compared by the rule. */
bool pb_verdict_averaged(const pb_verdict *v);
/* The logarithm of a series' median, negated if higher is better. */
double pb_series_log(const pb_series *s);

/* The series of one row `all rows`, and the next one of the list. */
typedef struct pb_all_rows pb_all_rows;
/* Appends a row `all rows` for every suite and metric with at least two rows that pb_verdict_averaged() and a session in
 * common. Its values are geometric means; its sessions are those that all its rows have. ENOMEM. */
pb_status pb_all_rows_append(pb_verdicts *vs);
void pb_all_rows_free(pb_all_rows *list);
#endif
