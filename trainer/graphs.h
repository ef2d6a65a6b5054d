/* graphs.h - the recordings of a training loop: one for every shape of its steps, made when it is needed.
 *
 * A recording holds its arguments by value, so another row length, or micro-batches that add to the gradients of others
 * instead of beginning them, want one of their own. What only changes numbers in device memory (batch, learning rate,
 * step number, loss scale, 1/tokens) does not. */
#ifndef PB_GRAPHS_H
#define PB_GRAPHS_H
#include "trainer/trainer.h"

enum { PB_GRAPHS_MOST = 64 }; /* shapes that are kept; beyond, the one that was not used for longest goes */

typedef struct pb_graph_shape {
    pb_fn fn;
    int B, S;
    bool accumulate;
    pb_graph *graph; /* NULL: run once, not recorded yet */
    uint64_t used;   /* runs of all shapes up to its last one */
} pb_graph_shape;

/* {0} to begin with; of one trainer, whose clip arm stays as it is. */
typedef struct pb_graphs {
    pb_graph_shape shape[PB_GRAPHS_MOST];
    int n;
    uint64_t runs, recorded, replayed; /* by pb_graphs_run; runs - replayed were eager */
    size_t nodes;                      /* of all recordings */
    double seconds;                    /* that making them took */
} pb_graphs;

/* pb_train_step, pb_train_micro or pb_train_finish of the trainer's present batch: eagerly for the first run of its
 * shape, which readies what a recording finds ready; then recorded and replayed; from then on replayed. When it cannot
 * be recorded nothing has run, the status is pb_record's and its line names the shape; eager steps go on working. */
pb_status pb_graphs_run(pb_graphs *g, pb_ctx *ctx, pb_trainer *t, pb_fn fn);
void pb_graphs_free(pb_graphs *g, pb_ctx *ctx); /* the recordings; the counts stay */
#endif
