/* graph_gain.h - what recorded graphs bought in a launch, from its own rows: after how many calls a recording has paid
 * for itself, and from how many tokens a step on it no longer does. */
#ifndef PB_GRAPH_GAIN_H
#define PB_GRAPH_GAIN_H
#include "bench/measure/emit.h"
#include "kernels/core/op.h"

/* Below this ratio of eager over graphed time a graph is said not to pay. */
#define PB_GRAPH_PAYS 1.05

typedef struct pb_gain_point {
    double tokens, ratio; /* tokens of a step; eager over graphed time */
} pb_gain_point;

typedef enum pb_crossing { PB_CROSSES, PB_ALWAYS_PAYS, PB_NEVER_PAYS } pb_crossing;
/* Where the ratio falls below `least` for good: between the last point that reaches it and the next, by a straight line
 * over log(tokens). Of points with equal tokens the mean counts. p[0..n), n >= 1, is sorted. */
pb_crossing pb_crossover(pb_gain_point *p, int n, double least, double *tokens);

/* The eager case that a graphed one is compared with; false: the case is not graphed. */
bool pb_graph_twin(const pb_case *c, pb_case *eager);
/* crossover/SUITE with the axes of a case but batch, seq and mode: what its points have in common. */
pb_status pb_graph_family(const pb_case *c, pb_case *out);

/* Emits, for every case of the suite with mode=graph, break_even beside its other rows, and for every set of cases that
 * differ in batch and seq alone a row crossover/SUITE. `metric` is the time that is compared. */
pb_status pb_graph_gain_conclude(pb_sink *sink, const char *suite, const char *metric);
#endif
