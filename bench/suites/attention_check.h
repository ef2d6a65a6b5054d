/* attention_check.h - the outputs of a case of the suite attention against the CPU's reference in double precision.
 *
 * All of every output is looked at for elements that are not finite or were never written. Compared with the reference,
 * as far as a CPU can in the time of a case (the same choice on every machine):
 *   o, lse, dq  of up to 16 queries, the first and the last among them, in up to 8 heads each
 *   dkv         of up to 6 rows, every second one behind the tokens where lists name groups: the sum over all heads of
 *               all queries that list the row. Left out are rows that more than 2^18 pairs of a query and a head list
 *   d_sink      of every head: the sum over all queries
 * Each is a small problem for the ops sparse_mla_fwd and sparse_mla_bwd of the CPU, implementation `ref`, on the
 * device's own inputs in f32: one query and head and the rows that it lists; the queries that list one row, and this
 * row alone; all queries with empty lists. Backward, o and lse are those that the pass was given. */
#ifndef PB_ATTENTION_CHECK_H
#define PB_ATTENTION_CHECK_H
#include "bench/suites/attention_call.h"

/* How far two sets of elements are apart, added to piece by piece. All zeros, and no element, are equal. */
typedef struct pb_deviation {
    double diff, norm, xy, squares; /* sum (x - y)^2, x^2, x y, x^2 + y^2 */
    double most;                    /* |x - y| */
    double n;
} pb_deviation;
void pb_deviation_add(pb_deviation *d, double want, double got);
double pb_deviation_rel(const pb_deviation *d);      /* ||got - want|| / ||want||; absolute where want is all zero */
double pb_deviation_most(const pb_deviation *d);     /* max |got - want| / rms(want), alike */
double pb_deviation_rel_diff(const pb_deviation *d); /* 1 - 2 sum xy / sum (x^2 + y^2): of the public kernels' tests */

enum { PB_CHECKED = 3 }; /* forward o and lse; backward dq, dkv, dsink */
typedef struct pb_attn_error {
    const char *name[PB_CHECKED]; /* NULL: not of this pass */
    pb_deviation of[PB_CHECKED];
    double tol[PB_CHECKED]; /* of the relative L2; 100 times that of the largest */
    double bad;             /* elements of all outputs that are not finite or were never written */
    const char *bad_in;     /* the first output that has one */
} pb_attn_error;

/* After a run of the pass, which has come to its end. ENOMEM, EDEVICE. */
pb_status pb_attn_check(pb_ctx *ctx, const pb_attn_call *c, pb_attn_error *out);
/* The output whose relative L2 is the largest; NaN is. */
int pb_attn_worst(const pb_attn_error *e);
/* Whether all is within the bounds; else a line that says what is not. */
bool pb_attn_right(const pb_attn_error *e, char *why, size_t n);
#endif
