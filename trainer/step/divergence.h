/* divergence.h - runs a step of two trainers side by side, piece by piece, and compares the tensors that each piece
 * writes: where two backends, or two implementations, first part.
 *
 * The pieces are the embedding, each layer, the logits, the loss, and the backward pass. After each piece but the last,
 * the tensors of the second trainer are replaced by those of the first, so that a layer gets equal inputs on both
 * sides, and the error of one layer does not become that of the next. Within a layer, tensors are compared in the order
 * in which they are computed: those of trainer/step/tensors.h, and after them the outputs of SwiGLU (act) and of the
 * product down (proj), which all layers share. The first tensor beyond its bound names the ops between it and the
 * tensor before. Of the backward pass the gradients of parameters are compared, in the order in which it completes
 * them.
 *
 *     error = |y - x| / |x|      L2 norms over a tensor, x of the first trainer, in double precision; |y| where x is 0.
 *
 * Elements that are the same infinity, or both NaN, are equal; others that are not finite make the error infinite.
 * Bounds: of models in f32 1e-5, gradients of parameters 1e-4; of models in bf16 2e-2, their f32 tensors 1e-3,
 * gradients 5e-2. Weights are compared before the step and must be the same bits. Tensors of integers are not compared:
 * where an indexer selects other rows, the output of attention differs. */
#ifndef PB_DIVERGENCE_H
#define PB_DIVERGENCE_H
#include "trainer/step/tensors.h"

typedef struct pb_divergence {
    char name[80];         /* of the tensor */
    char ops[PB_OPS_TEXT]; /* see pb_tensor; of a gradient "backward", of a weight "weight" */
    int layer;             /* -1: of no layer */
    double error, bound;
    double row_error; /* the largest error of a row, with the norms over that row alone */
    size_t worst_row; /* the row that has it */
    size_t row, col;  /* the element with the largest difference */
    double is, want;  /* its values: actual (second trainer) and expected (first) */
    pb_tensor_place place;
} pb_divergence;

/* True if a tensor differs by more than its bound. */
static inline bool pb_diverges(const pb_divergence *d) { return !(d->error <= d->bound); }

/* Calls each(self, d) for every tensor that is compared. The trainers have the same configuration, weights and batch,
 * keep all activations (pb_train_config.keep_unread, no recompute), and have no loss chunk. EINVAL: they do not. ENOMEM.
 * Host syncs. */
typedef void (*pb_divergence_fn)(void *self, const pb_divergence *d);
pb_status pb_diverge(pb_trainer *first, pb_trainer *second, pb_divergence_fn each, void *self);
/* The same for the forward pass only; weights are not compared. */
pb_status pb_diverge_forward(pb_trainer *first, pb_trainer *second, pb_divergence_fn each, void *self);
#endif
