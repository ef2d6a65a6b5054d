/* loss.h - the head and its gradients, for rows of a batch.
 *
 * Without pb_train_config.loss_chunk the forward phase computes the logits z [T,V] of all tokens, the loss phase turns
 * them into their gradient, and the backward phase begins with the gradients of the head:
 *
 *     z = nf W^T      dz = inv_count mask (softmax(z) - target)      dn = dz W      dW (+)= dz^T nf
 *
 * With loss_chunk = C, the loss phase does all of this for C tokens at a time, in memory for C rows of logits.
 * inv_count is in device memory before the forward phase, so the gradient of a chunk needs no other chunk. The sums of
 * the loss and of dW are those of the chunks, in their order: they may differ from those of one chunk by rounding.
 *
 * The same idea without a gradient: Wijmans et al. 2024, "Cut Your Losses in Large-Vocabulary Language Models",
 * arXiv:2411.09009; with a gradient in the forward pass: Hsu et al. 2024, "Liger Kernel", arXiv:2410.10989, section
 * 3. */
#ifndef PB_LOSS_H
#define PB_LOSS_H
#include "trainer/step/trainer_impl.h"

/* For the n tokens from `first` on: pb_head_forward computes t->logits [n,V] from rows of t->nf. pb_head_backward
 * computes rows of t->dn from t->logits, which hold their gradient, and, if the head is trained, its gradient: that of
 * the first rows is written or added as pb_adds() says, others are added. */
pb_status pb_head_forward(pb_ctx *ctx, const pb_trainer *t, int first, int n);
pb_status pb_head_backward(pb_ctx *ctx, const pb_trainer *t, int first, int n);
#endif
