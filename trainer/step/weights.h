/* weights.h - weights of which each rank keeps its slices only (--shard parameters; ZeRO stage 3, arXiv:1910.02054).
 *
 * Units of weights (trainer/parallel/units.h) are gathered before their use: an all-gather on the communicator's own
 * stream or thread copies the slices of all ranks into a buffer of fixed address, next to the computation of the unit
 * before it. p->w, p->q and p->scales are addresses in these buffers, so that eager steps and recorded graphs enqueue
 * the same calls. Units and buffers, L layers:
 *
 *     buffer          units that take turns in it
 *     even, odd       the layers of even and of odd number; as large as the largest of them
 *     outer           the embedding (unit L+1), then the last norm and the head (unit 0). Tied: unit 0 is after the
 *                     embedding, and both stay
 *
 * A step with layers 0, 1, 2, 3 = units 4, 3, 2, 1. "w" is a wait (pb_weights_ready); the gathers of a row are enqueued
 * at its beginning (pb_weights_fetch) and complete at its w. A unit is valid from the w after its gather until the next
 * gather into its buffer is enqueued, which is after the last computation that reads it:
 *
 *     computation               enqueues gather of   even         odd          outer
 *     begin of forward          embedding, w         -            -            embedding
 *     embedding                 layer 0, w           -            -            embedding
 *     layer 0, but last norm    layer 1, w           0            gathering 1  embedding
 *       norm1 of layer 1                             0            1
 *     layer 1, but last norm    layer 2, w           gathering 2  1
 *       norm1 of layer 2                             2            1
 *     layer 2, ...              layer 3, w           2            gathering 3
 *     layer 3, but last norm    unit 0, w            2            3            gathering unit 0
 *       last norm, head, loss                        2            3            unit 0
 *     begin of backward, head   layer 3, w           2            gathering 3  unit 0
 *     layer 3                   layer 2, w           gathering 2  3
 *     layer 2                   layer 1, w           2            gathering 1
 *     layer 1                   layer 0, w           gathering 0  1
 *     layer 0                   -                    0            1
 *
 * Untied, unit 0 overwrites the embedding, which only the first two rows need.
 *
 * The backward pass gathers every layer again, also the last two, so that it depends on nothing that it overwrites
 * itself and can be repeated. The waits are before the reduction of the unit's gradients is enqueued (grad_slices.h),
 * so that reductions run next to the computation of the following unit too.
 *
 * The optimizer updates the slices. While a model is filled or loaded, the buffers are scratch memory: what is written
 * to a parameter is copied to the slices of this rank at once (pb_model_keep), and a trained bf16 tensor has its f32
 * master in memory that all share. To read weights outside a step, all ranks call pb_trainer_read (trainer.h). */
#ifndef PB_WEIGHTS_H
#define PB_WEIGHTS_H
#include "trainer/step/trainer_impl.h"

/* Allocates slices and buffers, and sets p->w, p->q and p->scales. Call it after pb_gradients_open and
 * pb_shards_open. Does nothing unless t->cfg.model.no_weights. ENOMEM. */
pb_status pb_weights_open(pb_trainer *t);
void pb_weights_close(pb_trainer *t);
/* Frees the masters' scratch memory when the weights have been loaded. */
void pb_weights_loaded(pb_trainer *t);

/* Enqueues the gather of a unit, named by its place in the forward pass: 0 the embedding, 1..L the layers in order, L+1
 * the last norm and the head. Another place, or weights that are not sharded: does nothing. */
pb_status pb_weights_fetch(pb_ctx *ctx, const pb_trainer *t, int place);
/* Waits (in stream order) for what has been enqueued on the communicator; nothing if the weights are not sharded. */
pb_status pb_weights_ready(pb_ctx *ctx, const pb_trainer *t);

/* This rank's slice of a trained tensor, at x->first. */
void *pb_weights_own(const pb_trainer *t, const pb_piece *x);
#endif
