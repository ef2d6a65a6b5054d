/* attention_check.h - checks the outputs of a case of suite attention against the CPU's double-precision reference.
 *
 * Every element of every output must be finite and must have been written. A sample, the same on every machine, is
 * compared with the reference; its size is limited by what a CPU can compute in the time of a case:
 *   o, lse, dq  of up to 16 queries, including the first and the last, in up to 8 heads each.
 *   dkv         of up to 6 rows; every second one is a group's row if the lists name groups. Each is the sum over all
 *               heads of all queries that list the row. Rows listed by more than 2^18 pairs of query and head are left
 *               out.
 *   dsink       of every head, summed over all queries.
 * Each comparison is a small problem for implementation `ref` of the CPU ops sparse_mla_fwd and sparse_mla_bwd, with
 * the device's inputs converted to f32. The problem is one query and head with the rows it lists, or one row with the
 * queries that list it, or all queries with empty lists. For a backward case, o and lse are the device's own. */
#ifndef PB_ATTENTION_CHECK_H
#define PB_ATTENTION_CHECK_H
#include "bench/suites/attention_call.h"

/* Accumulates the deviation of two arrays, element by element. Two arrays of zeros, or of no elements, count as
 * equal. */
typedef struct pb_deviation {
    double diff, norm, xy, squares; /* sums of (want - got)^2, want^2, want * got, want^2 + got^2 */
    double most;                    /* largest |want - got| */
    double n;
} pb_deviation;
void pb_deviation_add(pb_deviation *d, double want, double got);
/* Returns ||got - want|| / ||want||, or ||got - want|| if want is all zero. */
double pb_deviation_rel(const pb_deviation *d);
/* Returns max |got - want| / rms(want), or max |got - want| if want is all zero. */
double pb_deviation_most(const pb_deviation *d);
/* Returns 1 - 2 sum(want got) / sum(want^2 + got^2), the measure in the tests of public kernels (FlashMLA). */
double pb_deviation_rel_diff(const pb_deviation *d);

/* outputs compared, at most: forward o, lse; backward dq, dkv, dsink, or dq, dk, dv, dbias */
enum { PB_CHECKED = 4 };
typedef struct pb_attn_error {
    const char *name[PB_CHECKED]; /* NULL: the pass has no such output */
    pb_deviation of[PB_CHECKED];
    /* limit of the relative L2 deviation; the largest deviation (pb_deviation_most) may be 100 times as large */
    double tol[PB_CHECKED];
    double bad;         /* number of elements, in all outputs, that are not finite or were never written */
    const char *bad_in; /* name of the first such output; NULL: none */
} pb_attn_error;

/* Counts in *e the elements of an output that are not finite or still hold PB_UNWRITTEN. */
void pb_attn_look(pb_attn_error *e, const char *name, const void *p, size_t n, pb_dtype t);
/* Checks the outputs after a run of the pass that has completed. EDEVICE, ENOMEM; EUNSUPPORTED: every sampled row of kv
 * is listed too often. */
pb_status pb_attn_check(pb_ctx *ctx, const pb_attn_call *c, pb_attn_error *out);
/* Index of the output with the largest relative L2 deviation; NaN counts as the largest. */
int pb_attn_worst(const pb_attn_error *e);
/* True if all outputs are within their limits; otherwise `why` describes the first that is not. */
bool pb_attn_right(const pb_attn_error *e, char *why, size_t n);
#endif
