/* graph_notes.h - in which ranges the nodes of a CUDA graph were captured, noted while it is captured, without a
 * profiler. A profiler that is attached later needs them (trace/gpu.h).
 *
 * After each op, the nodes of the graph that were not there before are found, so the order in which CUDA lists the
 * nodes does not matter. A capture of n nodes and m ops reads n m / 2 handles; a replay reads none. */
#ifndef PB_GRAPH_NOTES_H
#define PB_GRAPH_NOTES_H
#include <cuda_runtime.h>

#include "kernels/engine/ctx.h"

typedef struct pb_graph_notes pb_graph_notes;
pb_graph_notes *pb_graph_notes_new(void); /* NULL: no memory */
void pb_graph_notes_free(pb_graph_notes *n);
/* Notes the ranges that are open for each node of the graph that is new. Without memory, nodes stay unknown. */
void pb_graph_notes_add(pb_graph_notes *n, cudaGraph_t graph);
/* Calls node() for each node. The first node of an op has the op's work (pb_range_work), so that it counts once. */
void pb_graph_notes_tell(const pb_graph_notes *n, pb_graph_node_fn node);
#endif
