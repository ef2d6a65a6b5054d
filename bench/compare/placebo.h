/* placebo.h - pairs of cases that do the same work: the difference of their times is noise. */
#ifndef PB_PLACEBO_H
#define PB_PLACEBO_H
#include "bench/rows/rows.h"

/* X(axis, first, second, on): two cases whose keys differ only in that one has axis=first and the other axis=second do
 * the same work, on machines whose machine_id begins with `on`. Eager and graph run the same calls on a CPU, where a
 * graph is a list of calls. Control cases are measured twice on purpose. */
#define PB_PLACEBO_MAP(X)                                                                                              \
    X("mode", "eager", "graph", "cpu-")                                                                                \
    X("control", "first", "second", "")

/* The series of the case that does the same work as that of s, with the same metric, if s is the first of such a pair.
 * NULL: it is not, or one of them has no positive value with status ok. */
const pb_series *pb_placebo_of(const pb_series_set *set, const pb_series *s);
typedef struct pb_placebo {
    const pb_series *first, *second;
} pb_placebo;
/* Lists the placebo pairs in the series of a key's suite that have this metric. Returns their number, at most max. */
int pb_placebo_pairs(const pb_series_set *set, const char *key, const char *metric, pb_placebo *out, int max);
/* Writes ln first - ln second of every pair except those of the case `key`: what changed in a row must not widen the
 * bound of that row. Returns the number of differences. */
int pb_placebo_differences(const pb_placebo *pair, int n, const char *key, double *out);
#endif
