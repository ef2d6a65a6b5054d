/* shards.h - training with the optimizer's state divided between the ranks (--shard).
 *
 * Rank r keeps moments and f32 masters of its slices (trainer/parallel/slices.h) only. In a step
 *     - the gradients of a bucket are reduced to their slices (reduce-scatter) instead of to all ranks, so that each
 *       rank has the sum of its slices only. Where micro-batches are added in a fixed order (gradients.h), the sum goes
 *       to all.
 *     - each rank computes the partial sums of squares of its slices; their sum over the ranks, where all but one term
 *       is 0, gives every rank the partial sums of the whole gradient, and so the norm with the bits of one rank.
 *     - the optimizer updates the slices, and an all-gather per bucket gives all ranks the new weights, except where
 *       they are sharded too (weights.h). */
#ifndef PB_SHARDS_H
#define PB_SHARDS_H
#include "trainer/step/trainer_impl.h"

/* Allocates the slices. EINVAL: the clip variant sync, which reads each norm on the host. */
pb_status pb_shards_open(pb_trainer *t);
void pb_shards_close(pb_trainer *t);
/* The moments of piece x, an element of t->gradients.slices.piece: x->n first moments, and pb_piece_seconds(x) second
 * ones, each as pb_adamw_moment_bytes describes. */
void *pb_shards_m(const pb_trainer *t, const pb_piece *x);
void *pb_shards_v(const pb_trainer *t, const pb_piece *x);
/* The weights that the optimizer updates in piece x, and their f32 masters (NULL in an f32 tensor). */
void *pb_shards_w(const pb_trainer *t, const pb_piece *x);
float *pb_shards_master(const pb_trainer *t, const pb_piece *x);
/* The sum of the gradients of a piece, after the phase backward. */
float *pb_shards_grad(const pb_trainer *t, const pb_piece *x);
/* Computes the partial sums of squares of all gradients to t->partial, on every rank. */
pb_status pb_shards_sums(pb_ctx *ctx, const pb_trainer *t);
/* Multiplies this rank's gradients of a clip group by its scale. */
pb_status pb_shards_scale(pb_ctx *ctx, const pb_trainer *t, int group);
/* Gathers the weights after the optimizer's step. */
pb_status pb_shards_gather(pb_ctx *ctx, const pb_trainer *t);
#endif
