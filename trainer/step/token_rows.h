/* token_rows.h - the gradient of a tied embedding over several ranks, without waiting for the end of the backward pass.
 *
 * The gradient [V,D] of a tied embedding is the sum of two parts: that of the head, a dense matrix that is complete
 * after stage 0 of the backward pass, and that of the lookup, the rows dy[t,:] of the T tokens, which is complete after
 * the last stage. If the whole were reduced then, nothing would be left to compute next to it. Here
 *
 *     after stage 0      the head's part (and that of earlier micro-batches) is reduced, next to all layers
 *     after the last     ids [T] and dy [T,D] of all ranks are gathered, in the model's dtype, and every rank adds all
 *                        N T rows to the sums (pb_gradient_sum), in the order of (rank, token)
 *
 * so the last collective sends N T D elements of the model's dtype, not V D of f32. It is used where that is less,
 * and not with pb_train_config.ordered, because the additions have another order: for each element
 * (h_0 + h_1 + ...) + rows instead of (h_0 + rows_0) + (h_1 + rows_1) + .... With sharded gradients the rows are added
 * to the buffer of the embedding, once its head part has left it, and the rank's slice of the buffer to its own
 * sums. */
#ifndef PB_TOKEN_ROWS_H
#define PB_TOKEN_ROWS_H
#include "trainer/step/trainer_impl.h"

/* Chooses whether rows are gathered; call it before the buckets are made. */
void pb_token_rows_open(pb_trainer *t);
/* Reserves [N T] ids and rows in t->gradients.arena. */
void pb_token_rows_carve(pb_trainer *t);
/* True if ids and rows of this micro-batch are gathered from all ranks; false: the backward pass adds the rows to the
 * dense gradient. */
bool pb_token_rows_gathered(const pb_trainer *t);
/* The stage of the backward pass after which bucket b is reduced. */
int pb_bucket_due(const pb_trainer *t, const pb_bucket *b);
/* Enqueues the gather of ids and rows, next to later work. Does nothing unless pb_token_rows_gathered. */
pb_status pb_token_rows_gather(pb_ctx *ctx, const pb_trainer *t);
/* Adds the gathered rows of all ranks to this rank's sums. Call it after waiting for the gather, and when the head's
 * part has been reduced. Does nothing unless pb_token_rows_gathered. */
pb_status pb_token_rows_add(pb_ctx *ctx, const pb_trainer *t);
#endif
