/* graphs.h - a cache of the CUDA graphs (on a CPU: recorded call lists) of a training loop, one per shape of a step.
 *
 * A graph holds kernel arguments by value. Another row length, or a micro-batch that accumulates gradients instead of
 * overwriting them, or that adds them over the ranks, therefore needs its own graph. Values that kernels read from
 * device memory (the batch, learning rate, step number, loss scale, 1/tokens) may change between replays of one
 * graph. */
#ifndef PB_GRAPHS_H
#define PB_GRAPHS_H
#include "trainer/step/trainer.h"

enum { PB_GRAPHS_MOST = 64 }; /* capacity of the cache; the least recently used shape is evicted */

typedef struct pb_graph_shape {
    pb_fn fn; /* fn, B, S, accumulate and reduce form the cache key */
    int B, S;
    bool accumulate, reduce;
    pb_graph *graph; /* NULL: this shape ran once eagerly and is not captured yet */
    uint64_t used;   /* value of pb_graphs.runs at the last use of this shape */
} pb_graph_shape;

/* Initialise with {0}. One cache serves one trainer, and the trainer's clip variant must not change meanwhile. */
typedef struct pb_graphs {
    pb_graph_shape shape[PB_GRAPHS_MOST];
    int n;
    /* runs: calls of pb_graphs_run that succeeded; recorded: graphs captured; replayed: calls that replayed a graph.
     * The other runs - replayed calls were eager. */
    uint64_t runs, recorded, replayed;
    size_t nodes;   /* sum over all graphs captured, evicted ones included */
    double seconds; /* total time spent on capturing and instantiating graphs */
} pb_graphs;

/* Runs `fn` (pb_train_step, pb_train_micro or pb_train_finish) on the trainer's current batch. The first run of a shape
 * is eager: it allocates scratch memory, which is not possible during capture. The second run captures a graph and
 * replays it; later runs replay. If capture fails, no work has run, the status is that of pb_record and the message
 * names the shape; eager steps still work afterwards. */
pb_status pb_graphs_run(pb_graphs *g, pb_ctx *ctx, pb_trainer *t, pb_fn fn);
/* Calls pb_graph_trace() for every graph. */
pb_status pb_graphs_trace(pb_graphs *g, pb_ctx *ctx, pb_graph_node_fn node);
void pb_graphs_free(pb_graphs *g, pb_ctx *ctx); /* frees the graphs; the counters keep their values */
#endif
