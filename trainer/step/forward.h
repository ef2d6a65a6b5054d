/* forward.h - operations of the forward phase that the backward phase repeats to compute activations again. */
#ifndef PB_FORWARD_H
#define PB_FORWARD_H
#include "trainer/step/trainer_impl.h"

/* pb_norm: y = RMSNorm(x) with the given gain. pb_add_and_norm: h = x + t->proj, or
 * h = factor x + t->proj (residual.h) unless factor is NULL, and y = RMSNorm(h). All are [T,D] but rstd [T].
 * Applied to h, pb_norm gives the y and rstd of pb_add_and_norm, bit for bit (addnorm.h). */
pb_status pb_norm(pb_ctx *ctx, const pb_trainer *t, const void *x, const pb_param *gain, void *y, float *rstd);
pb_status pb_add_and_norm(pb_ctx *ctx, const pb_trainer *t, const void *x, const pb_param *factor, const pb_param *gain,
                          void *h, void *y, float *rstd);

/* The forward phase in pieces, in this order: the embedding and the first norm; each layer 0 .. L-1, which reads the
 * layer's h and n1 and writes those of the next one, or hf and nf; the logits, unless they are computed by chunks. */
pb_status pb_forward_begin(pb_ctx *ctx, const pb_trainer *t);
pb_status pb_forward_layer(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_forward_end(pb_ctx *ctx, const pb_trainer *t);
#endif
