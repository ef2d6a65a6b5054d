/* verdict_impl.h - functions for the list of rows that verdict.c, verdict_decide.c, verdict_all_rows.c and exact.c
 * share. */
#ifndef PB_VERDICT_IMPL_H
#define PB_VERDICT_IMPL_H
#include "bench/compare/verdict.h"

/* Appends a row. ENOMEM. */
pb_status pb_verdicts_append(pb_verdicts *out, pb_verdict v);

/* True if both rows are of one suite and metric. */
bool pb_verdicts_alike(const pb_verdict *a, const pb_verdict *b);
/* True for a row whose values are averaged in a row `all rows`: it gates, and the rule compares it with sessions. */
bool pb_verdict_averaged(const pb_verdict *v);
/* c2 of stored_rule.h: the variance that all rows of a session share because the machine's speed varies. It is the
 * smaller of two values for a metric that is no time or rate, such as a count of bytes, and on a machine of one's own
 * or with locked clocks. */
double pb_verdict_shared_variance(const pb_series *s, bool locked_clocks);
/* The logarithm of a series' median, negated if higher is better. */
double pb_series_log(const pb_series *s);

/* An element of the linked list pb_verdicts.all_rows: owns both series of one row `all rows`. */
typedef struct pb_all_rows pb_all_rows;
/* Appends a row `all rows` for every suite and metric of which at least two rows satisfy pb_verdict_averaged() and have
 * a session in common. Its values are geometric means; its sessions are those that all its rows have. ENOMEM. */
pb_status pb_all_rows_append(pb_verdicts *vs);
void pb_all_rows_free(pb_all_rows *list);
#endif
