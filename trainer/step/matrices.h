/* matrices.h - the part of the optimizer phase that trains matrices with NorMuon (normuon_config.h).
 *
 * The updates of all blocks are one vector, in which the blocks of one shape are next to each other, so that they are
 * orthogonalised in one call. With N ranks each orthogonalises about 1/N of the blocks of a shape, and an all-gather
 * gives the results to all; every rank has all momenta, second moments and weights. Results do not depend on the number
 * of ranks, because a block's factor does not depend on the other blocks of its call. */
#ifndef PB_MATRICES_H
#define PB_MATRICES_H
#include "trainer/step/trainer_impl.h"

/* A block: rows first .. first+rows-1 of tensor p, which is in clip group `group`. */
struct pb_matrix_block {
    const pb_param *p;
    size_t first, rows;
    int group, shape;
    size_t at; /* its first element in the vector of updates */
};

#define PB_MATRICES_EPS 1e-8f /* eps of newton_schulz.h, as in dion's optimizers */

/* EINVAL: settings outside their range, or sharded state, of which a rank does not have whole matrices. */
pb_status pb_matrices_check(const pb_train_config *c);
/* Lists the blocks and allocates their updates; does nothing without NorMuon. */
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
