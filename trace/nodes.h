/* nodes.h - the places of the nodes of captured graphs, by CUPTI's node number: a hash table with its own lock. Private
 * to trace. */
#ifndef PB_TRACE_NODES_H
#define PB_TRACE_NODES_H
#include <stdint.h>

#include "profiles/ranges.h"

/* Notes that node `id` is at `place`. Without memory the node is forgotten. */
void pb_nodes_add(uint64_t id, const pb_place *place);
/* Notes that node `copy` is a copy of `original`, so at the same place. */
void pb_nodes_copy(uint64_t copy, uint64_t original);
/* NULL: not known. The pointer stays valid until the process ends. */
const pb_place *pb_nodes_find(uint64_t id);
#endif
