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
#endif
