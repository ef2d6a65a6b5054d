/* gradients.h - sums the gradients of a step over its micro-batches and over the ranks (data parallel training).
 *
 * With N ranks, each of which runs A micro-batches of b rows in a step, the global batch is the N A micro-batches
 *
 *     0 .. N A - 1        micro-batch k N + r is the k-th one of rank r
 *
 * and the gradient of the step is the sum of theirs. All divide by the loss tokens of the whole global batch
 * (pb_batch.count).
 *
 * The vector of gradients (pb_model.order) is divided into buckets of at least 25 MiB. When the backward pass of the
 * last micro-batch has completed the gradients of a bucket, an all-reduce of the bucket is enqueued that runs next to
 * the rest of the backward pass; the phase backward ends with a wait. The gradient of a tied embedding is complete
 * last, except where its parts travel separately (token_rows.h). Nothing is enqueued with one rank, unless `ordered`
 * needs it.
 *
 * Order of the additions. With pb_train_config.ordered the gradient is ((g_0 + g_1) + g_2) + ... over the global
 * micro-batches, each addition rounded to f32, whatever N is. So N ranks give the bits of one rank that runs all N A
 * micro-batches: with A = 1 the ranks' vectors are added by an ordered all-reduce. With A > 1 the backward pass writes
 * each micro-batch to a vector of its own; rank 0 adds its micro-batch to the sum so far, and the ordered all-reduce
 * adds those of the other ranks, once per micro-batch. Without `ordered` each rank adds its micro-batches in the
 * kernels, and the order between the ranks is the library's.
 *
 * Skipped steps. The losses are added over the ranks on the device, like the gradients. A loss or a gradient that is
 * not finite on one rank is therefore not finite on all, and the clip states and the optimizer of all ranks decide
 * alike; no host reads it. */
#ifndef PB_GRADIENTS_H
#define PB_GRADIENTS_H
#include "trainer/step/trainer_impl.h"

/* Divides the gradients into buckets and allocates what the reduction needs. EINVAL: `ordered` with another type than
 * f32. ENOMEM. */
pb_status pb_gradients_open(pb_trainer *t);
void pb_gradients_close(pb_trainer *t);

/* Called by the phase backward: before it, after each of its stages 0 .. L+1 (pb_model.order), and at its end. They
 * only enqueue. */
pb_status pb_gradients_begin(pb_ctx *ctx, const pb_trainer *t);
pb_status pb_gradients_complete(pb_ctx *ctx, const pb_trainer *t, int stage);
pb_status pb_gradients_end(pb_ctx *ctx, const pb_trainer *t);

/* Returns the gradients of the last micro-batch in bucket b, [b->n]. */
const float *pb_bucket_grad(const pb_trainer *t, const pb_bucket *b);
/* Returns the device memory that has the sum of p's gradient over the ranks after the backward phase, and its dtype.
 * With --reduce bf16 this is the bf16 sum as it was reduced; p->sum is then not valid. It is p->sum, in f32, if
 * any of these holds: the state is sharded, the optimizer is NorMuon, the clip is neither none nor multi. */
void *pb_gradient_sum(const pb_trainer *t, const pb_param *p, pb_dtype *dtype);
/* Returns where the backward pass of this micro-batch writes the gradient of p, and its dtype. This is p->grad, in f32,
 * unless all of these hold: --reduce bf16, a model in bf16, a step of one micro-batch, and one op computes the whole
 * gradient. The op then writes bf16 into the buffer that is summed over the ranks, and p->grad is not valid. For
 * weights of pb_product, the head and the embedding. NULL: p is not trained. */
void *pb_gradient_written(const pb_trainer *t, const pb_param *p, pb_dtype *dtype);
/* Rounds n elements to bf16; converts them back. */
pb_status pb_narrow(pb_ctx *ctx, const float *from, uint16_t *to, size_t n);
pb_status pb_widen(pb_ctx *ctx, const uint16_t *from, float *to, size_t n);
#endif
