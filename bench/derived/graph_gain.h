/* graph_gain.h - computes from the rows of one process how much graphs gain: after how many calls the time to record a
 * graph is regained (break_even), and from how many tokens per step a graph no longer gains enough (crossover). */
#ifndef PB_GRAPH_GAIN_H
#define PB_GRAPH_GAIN_H
#include "bench/measure/measure.h"
#include "kernels/engine/op.h"

/* A graph pays if eager time / graph time is at least this. */
#define PB_GRAPH_PAYS 1.05

typedef struct pb_gain_point {
    double tokens, ratio; /* tokens per step; eager over graph time, or sparse over dense (attention_crossover.c) */
} pb_gain_point;

typedef enum pb_crossing { PB_CROSSES, PB_ALWAYS_PAYS, PB_NEVER_PAYS } pb_crossing;
/* Finds where the ratio falls below `least` for good, as the number of tokens increases. PB_CROSSES: *tokens is set, by
 * linear interpolation over log(tokens) between the last point with ratio >= least and the next. PB_ALWAYS_PAYS: the
 * point with the most tokens has ratio >= least. PB_NEVER_PAYS: no point has. Requires n >= 1. Sorts p and averages
 * points with equal tokens in place. */
pb_crossing pb_crossover(pb_gain_point *p, int n, double least, double *tokens);

/* A measured point of a crossover. Points of one family differ only in size. */
typedef struct pb_family_point {
    pb_case family; /* the case that the crossover is reported under */
    pb_gain_point at;
} pb_family_point;

/* Emits the row of one family: n >= 1 points, sorted by tokens, all with different tokens. */
typedef pb_status pb_family_emit(pb_emitter *emitter, const pb_case *family, pb_gain_point *p, int n);
/* Calls `emit` once for each family among the n points, in the order of their first points. Points of a family with
 * equal tokens are averaged. ENOMEM, and what `emit` returns. */
pb_status pb_crossover_families(pb_emitter *emitter, const pb_family_point *all, int n, pb_family_emit *emit);

/* Sets *eager to the eager case that a mode=graph case is compared with. False: `c` has no mode=graph. */
bool pb_graph_twin(const pb_case *c, pb_case *eager);
/* The case that a crossover is reported under: crossover/SUITE with the axes of `c` except batch, seq and mode. */
pb_status pb_graph_family(const pb_case *c, pb_case *out);

/* Emits the metric break_even for each mode=graph case of the suite, and the metric crossover, in tokens, for each
 * set of cases that differ only in batch and seq. `metric` is the time to compare, such as step_time. */
pb_status pb_graph_gain_conclude(pb_emitter *emitter, const char *suite, const char *metric);
#endif
