/* mlp.h - the MLP of a layer: down(SwiGLU(gate_up(n2))).
 *
 * With pb_train_config.mlp_chunk = C, each function works on C tokens at a time, and only C rows of gu [C,2,I] and of
 * SwiGLU's output [C,I] are in memory; the backward pass then also computes gu of the chunk again. Each row of the
 * outputs is the same sum as with all tokens at once, but a library may choose another kernel for fewer rows, which
 * rounds differently. Gradients of weights are sums of the chunks' gradients. */
#ifndef PB_MLP_H
#define PB_MLP_H
#include "trainer/step/trainer_impl.h"

/* Computes t->proj from the layer's n2. */
pb_status pb_mlp_forward(pb_ctx *ctx, const pb_trainer *t, int layer);
/* Computes gu of the layer again, unless the backward pass does so chunk by chunk. */
pb_status pb_mlp_recompute(pb_ctx *ctx, const pb_trainer *t, int layer);
/* Computes t->dn, the gradient of n2, from t->dcur, the gradient of the MLP's output, and the gradients of its weights
 * and adapters. */
pb_status pb_mlp_backward(pb_ctx *ctx, const pb_trainer *t, int layer);
#endif
