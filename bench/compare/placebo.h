/* placebo.h - pairs of cases that do the same work: the difference of their times is noise. */
#ifndef PB_PLACEBO_H
#define PB_PLACEBO_H
#include "bench/rows/rows.h"

/* X(axis, first, second, on): two cases whose keys differ only in that one has axis=first and the other axis=second do
 * the same work, on machines whose machine_id begins with `on`. Eager and graph run the same calls on a CPU, where a
 * graph is a list of calls. Control cases are measured twice on purpose; their pair goes before that of eager and
 * graph, so that a control of an eager case is compared with itself. */
#define PB_PLACEBO_MAP(X)                                                                                              \
    X(PB_CONTROL_AXIS, PB_CONTROL_FIRST, PB_CONTROL_SECOND, "")                                                        \
    X("mode", "eager", "graph", "cpu-")

/* If the case of `s` is the first case of a placebo pair, returns the series of the second case with the metric of `s`.
 * NULL: it is no first case, or one of the two series has no positive value with status ok. */
const pb_series *pb_placebo_of(const pb_series_set *set, const pb_series *s);
typedef struct pb_placebo {
    const pb_series *first, *second;
} pb_placebo;
/* Lists the placebo pairs in the series of a key's suite that have this metric. Returns their number, at most max. */
int pb_placebo_pairs(const pb_series_set *set, const char *key, const char *metric, pb_placebo *out, int max);
/* Writes ln(first) - ln(second) of every pair that does not contain the case `key`: a change of that case must not
 * widen its own bound. Returns the number of differences. */
int pb_placebo_differences(const pb_placebo *pair, int n, const char *key, double *out);
#endif
