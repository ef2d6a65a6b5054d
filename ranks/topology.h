/* topology.h - how the ranks of a job are arranged along axes of parallelism; pure functions.
 *
 * Every rank has a coordinate on each axis. The rank number is the number with these digits, the axis that is first in
 * PB_AXIS_MAP varies fastest (Megatron-LM's order, https://github.com/NVIDIA/Megatron-LM, parallel_state.py):
 *     rank = tp + size[tp] (cp + size[cp] (ep + size[ep] (dp + size[dp] pp)))
 * so with dp=4,cp=2 the ranks 0 and 1 share one sequence, and 0, 2, 4 and 6 hold the same part of different sequences.
 *
 * A group is the set of ranks that differ on some axes only. Examples: PB_ON(DP) is a rank's data-parallel group;
 * PB_ON(DP) | PB_ON(CP) are all ranks whose gradients are added. */
#ifndef PB_RANKS_TOPOLOGY_H
#define PB_RANKS_TOPOLOGY_H
#include <stddef.h>

#include "os/status.h"
#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, word in --topology, largest supported size (0: any), what it divides) */
#define PB_AXIS_MAP(X)                                                                                                 \
    X(TP, "tp", 1, "matrices")                                                                                         \
    X(CP, "cp", 0, "sequences")                                                                                        \
    X(EP, "ep", 1, "experts")                                                                                          \
    X(DP, "dp", 0, "batches")                                                                                          \
    X(PP, "pp", 1, "layers")

typedef enum pb_axis {
#define X(id, word, most, what) PB_AXIS_##id,
    PB_AXIS_MAP(X)
#undef X
        PB_NAXES
} pb_axis;
#define PB_ON(id) (1u << PB_AXIS_##id) /* an element of a set of axes */

typedef struct pb_topology {
    int ranks;          /* product of size */
    int size[PB_NAXES]; /* >= 1 */
} pb_topology;

/* Parses text such as "dp=4,cp=2" for a job of `ranks` ranks. Axes that are not named have size 1, except dp, which
 * gets the ranks that the other axes leave. NULL or "": dp=ranks. EINVAL, with the numbers: a word that is no axis, an
 * axis twice, a size that is not a positive integer or not supported, ranks that do not divide. */
pb_status pb_topology_parse(const char *text, int ranks, pb_topology *out);
/* Writes "dp=4,cp=2": the axes larger than 1, or "dp=1". At most n bytes, including the final 0. */
void pb_topology_text(const pb_topology *t, char *out, size_t n);

/* The coordinate of a rank on an axis, 0..size-1. */
int pb_topology_at(const pb_topology *t, int rank, pb_axis axis);
/* The rank with these coordinates. */
int pb_topology_rank(const pb_topology *t, const int at[PB_NAXES]);

/* Groups over a set of axes. Ranks with equal colour form a group; `index` is the rank's place in it, in the order of
 * rank numbers. These are the colour and key of pb_comm_open. */
int pb_topology_group_size(const pb_topology *t, unsigned axes);
int pb_topology_colour(const pb_topology *t, int rank, unsigned axes);
int pb_topology_index(const pb_topology *t, int rank, unsigned axes);
/* The rank at place `index` of the group of `rank`. */
int pb_topology_member(const pb_topology *t, int rank, unsigned axes, int index);
#ifdef __cplusplus
}
#endif
#endif
