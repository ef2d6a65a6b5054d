/* placebo.h - pairs of measurements of the same work: the difference of their times is noise. */
#ifndef PB_PLACEBO_H
#define PB_PLACEBO_H
#include "bench/rows/rows.h"

/* X(axis, first, second, on): two cases whose keys differ only in that one has axis=first and the other axis=second do
 * the same work, on machines whose machine_id begins with `on`. first "": the case itself,
 * which is in such a pair only if the run has no copy of it with control=first.
 *
 * Control cases (bench/suites/controls.h) are copies of a case. Two copies are a pair; one copy is a pair with the
 * case itself. Eager and graph run the same calls on a CPU, where a graph is a list of calls. A case may be in a pair
 * of each kind, and all of them count. A copy is in no pair with another case. */
#define PB_PLACEBO_MAP(X)                                                                                              \
    X(PB_CONTROL_AXIS, PB_CONTROL_FIRST, PB_CONTROL_SECOND, "")                                                        \
    X(PB_CONTROL_AXIS, "", PB_CONTROL_SECOND, "")                                                                      \
    X("mode", "eager", "graph", "cpu-")

typedef struct pb_placebo {
    const pb_series *first, *second;
    bool copies; /* two measurements of one case; false: of two cases */
} pb_placebo;
/* Lists the placebo pairs in the series of a key's suite that have this metric, both with a positive value and status
 * ok. Returns their number, at most max. */
int pb_placebo_pairs(const pb_series_set *set, const char *key, const char *metric, pb_placebo *out, int max);
/* Writes ln(first) - ln(second) of the pairs that a change of the case `key` leaves as they are, so that the change
 * does not widen the bound of its own row. Left out are pairs of two cases, such as eager and graph, one of which is
 * `key`: if only the eager step became slower, the two differ by that. Two measurements of one case stay, also where
 * the case is `key`: it is as slow in both, so their difference is noise alone. Returns the number of differences. */
int pb_placebo_differences(const pb_placebo *pair, int n, const char *key, double *out);
#endif
