/* graph_requirement.h - requirements F-GRAPH-BWD-001, 002 and 004: a step as a graph trains like an eager step, can be
 * captured, and clips gradients. */
#ifndef PB_GRAPH_REQUIREMENT_H
#define PB_GRAPH_REQUIREMENT_H
#include "bench/measure/emit.h"

/* Trains the model `tiny` eagerly and as a graph, and emits a row for each of the three requirements. If
 * pb_interrupted() turns true during the 100 steps, F-GRAPH-BWD-001 and 004 get no row. */
pb_status pb_graph_requirements(pb_ctx *ctx, pb_sink *sink);
#endif
