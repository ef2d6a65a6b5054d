/* graph_contract.h - contracts F-GRAPH-BWD-001, 002 and 004: a graph trains as eager steps do, can be recorded, and clips. */
#ifndef PB_GRAPH_CONTRACT_H
#define PB_GRAPH_CONTRACT_H
#include "bench/measure/emit.h"

/* Trains the model `tiny` eagerly and with a graph, and emits a row for each of the three contracts. Stops without a
 * row after pb_interrupted() turns true. */
pb_status pb_graph_contracts(pb_ctx *ctx, pb_sink *sink);
#endif
