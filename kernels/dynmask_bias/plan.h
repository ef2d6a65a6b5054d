/* plan.h - how the vectorised backward pass of dynmask_bias divides the tokens, and its workspace. */
#ifndef PB_DYNMASK_BIAS_PLAN_H
#define PB_DYNMASK_BIAS_PLAN_H
#include "kernels/cpu/rows.h"

/* The tokens are divided into parts (rows.h). Each part has its own sums of dw, ddt and da, which are added in the
 * order of the parts. Returns the workspace in floats: sums of dw [parts,K,K*D], of ddt [parts,K] and of da [parts,K];
 * then du [tokens,K]. */
static inline size_t pb_dynmask_bias_sums(size_t tokens, int K, int D)
{
    const size_t k = (size_t)K;
    return (size_t)pb_dw_parts(tokens) * (k * k * (size_t)D + 2 * k) + tokens * k;
}
#endif
