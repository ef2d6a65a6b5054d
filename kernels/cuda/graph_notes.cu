/* graph_notes.cu - implements graph_notes.h: a hash set of node handles with open addressing, each with its ranges. */
#include "kernels/cuda/graph_notes.h"

#include <stdlib.h>

typedef struct note {
    cudaGraphNode_t node; /* NULL: free */
    size_t place;
    bool first; /* of its op's nodes: it has the op's work */
} note;

struct pb_graph_notes {
    note *table; /* [room], at most half full */
    size_t room, used;
    pb_range_stack *places; /* [nplaces]: of each op */
    size_t nplaces, places_room;
    cudaGraphNode_t *all; /* [all_room] */
    size_t all_room;
};

pb_graph_notes *pb_graph_notes_new(void) { return (pb_graph_notes *)calloc(1, sizeof(pb_graph_notes)); }

void pb_graph_notes_free(pb_graph_notes *n)
{
    if (!n) return;
    free(n->table);
    free(n->places);
    free(n->all);
    free(n);
}

static note *slot_of(note *in, size_t room, cudaGraphNode_t node)
{
    size_t at = (size_t)((uintptr_t)node * 0x9e3779b97f4a7c15ull >> 20) & (room - 1);
    while (in[at].node && in[at].node != node) at = (at + 1) & (room - 1);
    return &in[at];
}

static bool room_for_node(pb_graph_notes *n)
{
    if (2 * (n->used + 1) <= n->room) return true;
    const size_t more = n->room ? 2 * n->room : 1024;
    note *bigger = (note *)calloc(more, sizeof *bigger);
    if (!bigger) return false;
    for (size_t i = 0; i < n->room; i++)
        if (n->table[i].node) *slot_of(bigger, more, n->table[i].node) = n->table[i];
    free(n->table);
    n->table = bigger;
    n->room = more;
    return true;
}

template <class T> static bool room_for(T **array, size_t *room, size_t n)
{
    if (n <= *room) return true;
    const size_t more = 2 * n + 64;
    T *bigger = (T *)realloc(*array, more * sizeof **array);
    if (!bigger) return false;
    *array = bigger;
    *room = more;
    return true;
}

void pb_graph_notes_add(pb_graph_notes *n, cudaGraph_t graph)
{
    size_t count = 0;
    if (cudaGraphGetNodes(graph, NULL, &count) != cudaSuccess || count == n->used) return;
    if (!room_for(&n->all, &n->all_room, count) || !room_for(&n->places, &n->places_room, n->nplaces + 1)) return;
    if (cudaGraphGetNodes(graph, n->all, &count) != cudaSuccess) return;
    n->places[n->nplaces] = pb_range_stack_now();
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        if (!room_for_node(n)) return;
        note *at = slot_of(n->table, n->room, n->all[i]);
        if (at->node) continue;
        at->node = n->all[i];
        at->place = n->nplaces;
        at->first = first;
        first = false;
        n->used++;
    }
    n->nplaces++;
}

void pb_graph_notes_tell(const pb_graph_notes *n, pb_graph_node_fn node)
{
    for (size_t i = 0; i < n->room; i++) {
        if (!n->table[i].node) continue;
        pb_range_stack place = n->places[n->table[i].place];
        if (!n->table[i].first && place.depth) place.at[place.depth - 1].flops = place.at[place.depth - 1].bytes = 0;
        node(n->table[i].node, &place);
    }
}
