/* grad_slices.h - gradients of which each rank keeps its slices only (--shard gradients).
 *
 * The gradients of a layer are needed from the layer's backward pass until they are reduced. Buckets consist of whole
 * stages of the backward pass and take turns in two buffers. When a bucket is complete, the pass waits for the bucket
 * before it, and enqueues the reduction of this one, which runs next to the computation of the following bucket in the
 * other buffer. A tied embedding, which the first and the last stage write, and the f32 vectors of a bf16 model, which
 * all stages write, have buffers of their own.
 *
 * With one micro-batch per step, a reduce-scatter writes the sum to the own vector of the rank. With several, each
 * micro-batch is reduced when it is computed: the ranks exchange the blocks of a bucket, and each rank adds the blocks
 * of its slice to the own vector in the order of the ranks, so that the sum is that of gradients.h bit for bit. */
#ifndef PB_GRAD_SLICES_H
#define PB_GRAD_SLICES_H
#include "trainer/step/trainer_impl.h"

/* Reserves memory in t->gradients.arena and, when it has been committed, sets p->grad of all trained tensors. */
void pb_grad_slices_carve(pb_trainer *t);
/* Lists the order of the reductions. ENOMEM. */
pb_status pb_grad_slices_open(pb_trainer *t);
void pb_grad_slices_close(pb_trainer *t);
/* Called when a stage of the backward pass is complete, and at its end. */
pb_status pb_grad_slices_complete(pb_ctx *ctx, const pb_trainer *t, int stage);
pb_status pb_grad_slices_end(pb_ctx *ctx, const pb_trainer *t);
#endif
