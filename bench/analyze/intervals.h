/* intervals.h - lists of intervals of time, and how long they overlap. Private to bench/analyze. */
#ifndef PB_INTERVALS_H
#define PB_INTERVALS_H
#include <stddef.h>

typedef struct pb_interval {
    double begin, end;
} pb_interval;

typedef struct pb_intervals {
    pb_interval *at; /* [n]; the caller's memory */
    size_t n;
} pb_intervals;

void pb_intervals_add(pb_intervals *l, double begin, double end);
/* Sorts, and joins intervals that overlap. */
void pb_intervals_unite(pb_intervals *l);
/* The time that a and b have in common. Call pb_intervals_unite() on both first. */
double pb_intervals_common(const pb_intervals *a, const pb_intervals *b);
/* The same time as a list, and the time of `a` that is not in `b`. Both are united, and so is *out, whose memory has
 * room for a->n + b->n and is none of theirs. */
void pb_intervals_cut(const pb_intervals *a, const pb_intervals *b, pb_intervals *out);
void pb_intervals_without(const pb_intervals *a, const pb_intervals *b, pb_intervals *out);
#endif
