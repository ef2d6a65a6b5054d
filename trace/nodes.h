/* nodes.h - the ranges in which the nodes of graphs were captured, by CUPTI's node number: a hash table with its own
 * lock. Private to trace. */
#ifndef PB_TRACE_NODES_H
#define PB_TRACE_NODES_H
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"
#include "profiles/ranges.h"

/* Notes that node `id` was captured in the ranges `place`. Without memory the node is forgotten. */
void pb_nodes_add(uint64_t id, const pb_range_stack *place);
/* Notes that node `copy` is a copy of `original`, so in the same ranges. */
void pb_nodes_copy(uint64_t copy, uint64_t original);
/* NULL: not known. The pointer stays valid until the process ends. */
const pb_range_stack *pb_nodes_find(uint64_t id);

/* The latest note of a node. */
typedef struct pb_node_note {
    uint64_t id, original;       /* original: 0 if the node was captured itself */
    const pb_range_stack *place; /* as pb_nodes_find() returns it */
} pb_node_note;
/* Lists what is known, in the order in which it was noted, so that an original comes before its copies. The caller
 * frees *out. ENOMEM. */
pb_status pb_nodes_list(pb_node_note **out, size_t *n);
#endif
