/* graph_requirement.h - requirements F-GRAPH-BWD-001, 001-QLORA, 002 and 004: a step as a graph trains like an eager
 * step, can be captured, and clips gradients. */
#ifndef PB_GRAPH_REQUIREMENT_H
#define PB_GRAPH_REQUIREMENT_H
#include "bench/measure/measure.h"

/* Trains the model `tiny` eagerly and as a graph, and emits a row for each of F-GRAPH-BWD-001, 002 and 004. If
 * pb_interrupted() turns true during the 100 steps, 001 and 004 get no row. On a CPU F-GRAPH-BWD-001-QLORA gets a row
 * of status unsupported. */
pb_status pb_graph_requirements(pb_ctx *ctx, pb_emitter *emitter);

/* The case `losses` of suite backward on a GPU: two trainers of the case take 50 steps, one eagerly and one as a graph,
 * and the row of F-GRAPH-BWD-001-QLORA compares their losses. It is unsupported for any other model or tuning than
 * those of the requirement, and on a CPU. After an interrupt there is no row. */
pb_status pb_graph_losses(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter);
/* True if the case has this name. */
bool pb_graph_losses_is(const pb_case *c);
/* Checks a case `losses`. EINVAL: it is not the case of F-GRAPH-BWD-001-QLORA. */
pb_status pb_graph_losses_check(const pb_case *c);
double pb_graph_losses_seconds(const pb_case *c); /* estimate for a GPU */
#endif
