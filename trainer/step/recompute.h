/* recompute.h - computes activations again that the forward phase has not kept (pb_train_config.recompute).
 *
 * Before the backward pass of a layer, its activations are computed from those that are kept, by the ops of the forward
 * phase with the same arguments, into the buffers that all layers share:
 *
 *     recompute    kept per layer                            computed again
 *     none         all but n2 where nothing reads it         -
 *     norms        all but n1 and n2                         n1 = norm(h), n2 = norm(hm), where they are read
 *     attention    h, hm, gu; n2 where it is read            n1 = norm(h), then the block up to its output projection
 *     mlp          h, n1, the block's activations, hm        n2 = norm(hm), gu
 *     products     h, what attention computes from q, k, v   as layer, without attention itself
 *     layer        h                                         n1 = norm(h), the block, hm = h + proj, n2, gu
 *
 * The statistics of norms and the adapters' x A^T belong to the row of their norm or product. The output projection is
 * computed again only where hm needs it, and the down projection never: no activation depends on it. Since nothing is
 * read that the backward phase writes, the phase can be repeated. */
#ifndef PB_RECOMPUTE_H
#define PB_RECOMPUTE_H
#include "trainer/step/trainer_impl.h"

/* Enqueues the ops that compute again those activations that the layer's backward pass reads and that were not kept. The
 * layer's weights must be ready. */
pb_status pb_recompute_layer(pb_ctx *ctx, const pb_trainer *t, int layer);
#endif
