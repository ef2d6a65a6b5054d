/* matrices.h - the part of the optimizer phase that trains matrices with NorMuon (normuon_config.h).
 *
 * The updates of the blocks are one vector, in which the blocks of one shape are next to each other, so that they are
 * orthogonalised in one call.
 *
 * Several ranks. Nothing sharded: every rank has all momenta, second moments, weights and updates. The ranks divide the
 * blocks of each shape, and an all-gather per shape gives all of them the orthogonal factors. It runs next to the products
 * of the next shape; shapes go by falling size, so that the gather that nothing hides, the last one, is the smallest. The
 * shapes are divided in the order of falling costs (pb_matrix_cost), and each block goes to the rank with the lowest sum
 * of costs so far. Of a shape of one block every rank computes the factor. The optimizer's state sharded (shards.h):
 * slices end where blocks end (slices.h), so each block has one owner, which alone has its gradient, momentum, second
 * moments and master weights, and computes its factor. NorMuon then needs no collective but the guard's; the weights are
 * gathered as after a step of AdamW. A rank may own no block.
 *
 * Results do not depend on the number of ranks nor on what is sharded, bit for bit, because a block's factor does not
 * depend on the other blocks of its call. Memory of the updates: that of the momenta that a rank has, in `dtype`. */
#ifndef PB_MATRICES_H
#define PB_MATRICES_H
#include "trainer/step/trainer_impl.h"

/* A block: rows first .. first+rows-1 of tensor p, which is in clip group `group`. */
struct pb_matrix_block {
    const pb_param *p;
    const pb_piece *piece; /* the piece of this rank's slices that has it; NULL: the state is not sharded */
    size_t first, rows;
    int group, shape;
    size_t at; /* its first element in the vector of updates */
};

/* Where a block's state begins: its element of the pieces, or of the tensors if the state is not sharded. */
typedef struct pb_matrix_place {
    unsigned char *w;
    float *master, *grad, *m, *v;
} pb_matrix_place;

pb_matrix_place pb_matrices_place(const pb_trainer *t, const pb_matrix_block *b);

#define PB_MATRICES_EPS 1e-8f /* eps of newton_schulz.h, as in dion's optimizers */

/* EINVAL: settings outside their range. */
pb_status pb_matrices_check(const pb_train_config *c);
/* Lists the blocks and allocates their updates; does nothing without NorMuon. Call it after pb_shards_open. ENOMEM. */
pb_status pb_matrices_open(pb_trainer *t);
void pb_matrices_close(pb_trainer *t);
/* Writes the device lists of blocks and pieces; call it again after a change of the clip variant. */
pb_status pb_matrices_write_lists(pb_trainer *t);
/* True if NorMuon trains this tensor. */
static inline bool pb_matrices_take(const pb_trainer *t, const pb_param *p) { return t->matrices.on && p->by_rows; }

/* Momentum, orthogonal factors and the guard's flag. */
pb_status pb_matrices_orthogonalise(pb_ctx *ctx, const pb_trainer *t);
/* Second moments and weights. */
pb_status pb_matrices_update(pb_ctx *ctx, const pb_trainer *t);
/* The flag of the guard, device memory [1]; NULL: the guard is off. */
static inline const float *pb_matrices_guard(const pb_trainer *t)
{
    return t->matrices.on && t->cfg.normuon.guard ? t->matrices.flag : NULL;
}
#endif
