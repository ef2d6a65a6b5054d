/* indexer_kl.h - the loss that trains a lightning indexer, and its gradient: the KL divergence of the indexer's softmax
 * from the distribution of attention's mass over the listed groups (DeepSeek-V3.2, equation 4).
 *
 * For query r the sums run over the slots j with pick >= 0. With the target y_j = mass_j / sum mass (a constant) and p
 * = softmax(score):
 *
 *     loss = sum_r sum_j y_j (max(ln y_j, -100) - max(ln p_j, -100))          y ln y = 0 where y = 0
 *     dscore_j = scale (p_j sum_i y_i c_i - y_j c_j),   c_j = 1 where ln p_j >= -100, else 0
 *
 * Logarithms are clipped at -100 as in the public implementation (tilelang, examples/dsa_sparse_finetune). A query
 * without a listed group, or whose mass sums to 0, has loss 0 and gradient 0. Slots with pick < 0 are masked: their
 * score and mass are not read, and their dscore is 0. The loss is a sum over queries in a fixed order. For a mean, the
 * caller passes `scale`, which is read from device memory (like inv_count of xent). A NaN in a score or mass of a
 * listed slot makes the loss and that query's gradient NaN.
 *
 * A model trains its indexer only if it calls this op and indexer_bwd; fine-tuning of DeepSeek-V4 does not. EINVAL: R
 * or K below 0, or a tensor that has elements is NULL. */
#ifndef PB_INDEXER_KL_H
#define PB_INDEXER_KL_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_indexer_kl_fwd_args {
    const float *score;  /* [R,K] from pb_indexer_at */
    const float *mass;   /* [R,K] >= 0 from pb_mla_mass_fwd; each row is divided by its sum */
    const int32_t *pick; /* [R,K] */
    float *loss;         /* [1], out; not multiplied by scale */
    int R, K;
} pb_indexer_kl_fwd_args;

typedef struct pb_indexer_kl_bwd_args {
    const float *score, *mass; /* as in the forward pass */
    const int32_t *pick;
    const float *scale; /* [1]; NULL: 1 */
    float *dscore;      /* [R,K], out; may be score */
    int R, K;
} pb_indexer_kl_bwd_args;

PB_DECLARE_OP(indexer_kl, fwd)
PB_DECLARE_OP(indexer_kl, bwd)

#ifdef __cplusplus
}
#endif
#endif
