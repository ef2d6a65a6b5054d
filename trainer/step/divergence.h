/* divergence.h - runs a step of two trainers side by side, piece by piece, and compares the tensors that each piece
 * writes: where two backends, or two implementations, first part.
 *
 * The pieces are the embedding, each layer, the logits, the loss, and the backward pass. After each piece but the last, the
 * tensors of the second trainer are replaced by those of the first, so that a layer gets equal inputs on both sides, and
 * the error of one layer does not become that of the next. Within a layer, tensors are compared in the order in which they
 * are computed (trainer/step/tensors.h): the first one beyond its bound names the ops to blame. Of the backward pass the
 * gradients of parameters are compared, in the order in which it completes them.
 *
 *     error = |y - x| / |x|      L2 norms over the tensor, x of the first trainer, in double precision; where x is zero,
 *                                |y|. Elements that are the same infinity or both NaN are equal; other elements that are
 *                                not finite make the error infinite.
 *
 * Bounds: models in f32 1e-5, gradients of parameters 1e-4; in bf16 2e-2, f32 tensors of them 1e-3, gradients 5e-2.
 *
 * Weights are compared before the step and must be the same bits. Tensors of integers are not compared. */
#ifndef PB_DIVERGENCE_H
#define PB_DIVERGENCE_H
#include "trainer/step/tensors.h"

typedef struct pb_divergence {
    char name[80];   /* of the tensor */
    const char *ops; /* those that write it; of a gradient "backward" */
    int layer;       /* -1: of no layer */
    double error, bound;
    size_t row, col; /* the element with the largest difference */
    double is, want; /* its values: of the second trainer and of the first */
    pb_tensor_place place;
} pb_divergence;

/* True if a tensor differs by more than its bound. */
static inline bool pb_diverges(const pb_divergence *d) { return !(d->error <= d->bound); }

/* Calls each(self, d) for every tensor that is compared. The trainers have the same configuration, weights and batch, keep
 * all activations, and have no loss chunk. EINVAL: they do not. ENOMEM. Host syncs. */
typedef void (*pb_divergence_fn)(void *self, const pb_divergence *d);
pb_status pb_diverge(pb_trainer *first, pb_trainer *second, pb_divergence_fn each, void *self);
#endif
