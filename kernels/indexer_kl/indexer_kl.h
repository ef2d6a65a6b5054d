/* indexer_kl.h - the loss that trains a lightning indexer: its softmax over the picked groups against where attention's
 * mass went (DeepSeek-V3.2, equation 4), and its gradient.
 *
 * Over the slots j of query r whose pick is not negative, with y_j = mass_j / sum mass (a constant) and
 * p = softmax(score):
 *
 *     loss = sum_r sum_j y_j (max(ln y_j, -100) - max(ln p_j, -100))          y ln y = 0 where y = 0
 *     dscore_j = scale (p_j sum_i y_i c_i - y_j c_j),   c_j = 1 where ln p_j >= -100, else 0
 *
 * the clipping of the public implementation (tilelang, examples/dsa_sparse_finetune). A query without a picked slot, or
 * whose mass sums to 0, adds nothing and has no gradient; dscore is 0 in masked slots, whose score and mass are not
 * read. The sum is over queries, in a fixed order; a mean is the caller's, through `scale` (read from device memory, as
 * xent's inv_count). A NaN among picked scores or masses makes loss and that query's gradient NaN.
 *
 * Off unless called: a model that does not call it and indexer_bwd leaves its indexer untrained, as V4's fine-tuning
 * does. EINVAL: R or K below 0, a NULL tensor where there are elements. */
#ifndef PB_INDEXER_KL_H
#define PB_INDEXER_KL_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_indexer_kl_fwd_args {
    const float *score;  /* [R,K] of pb_indexer_at */
    const float *mass;   /* [R,K] of pb_mla_mass_fwd, >= 0, in any unit */
    const int32_t *pick; /* [R,K] */
    float *loss;         /* [1], out; without `scale` */
    int R, K;
} pb_indexer_kl_fwd_args;

typedef struct pb_indexer_kl_bwd_args {
    const float *score, *mass; /* as in the forward pass */
    const int32_t *pick;
    const float *scale; /* [1], or NULL: 1 */
    float *dscore;      /* [R,K], out; may be score */
    int R, K;
} pb_indexer_kl_bwd_args;

PB_DECLARE_OP(indexer_kl, fwd)
PB_DECLARE_OP(indexer_kl, bwd)

#ifdef __cplusplus
}
#endif
#endif
