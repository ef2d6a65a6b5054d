/* residual.h - the residual stream times a learned vector, as Doge has it in place of a plain residual connection.
 *
 *     y[t,d] = s[d] x[t,d]
 *
 * Backward:  dx[t,d] = s[d] dy[t,d]        ds[d] (+)= sum over t of dy[t,d] x[t,d]
 *
 * The caller adds the block's output to y (addnorm.h). With dtype bf16 the product is rounded before that addition, as
 * in the source: transformers 5.23, models/doge/modeling_doge.py, `input_residual` and `post_attention_residual`. Sums
 * are accumulated in f32 or better, in an order that does not depend on the number of threads. x, y, dy and dx share
 * `dtype`; s and ds are f32. EINVAL: T < 0 or D < 1. */
#ifndef PB_RESIDUAL_H
#define PB_RESIDUAL_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_residual_fwd_args {
    const void *x;  /* [T,D] dtype */
    const float *s; /* [D] */
    void *y;        /* [T,D] dtype, out; may be x */
    int T, D;
    pb_dtype dtype;
} pb_residual_fwd_args;

typedef struct pb_residual_bwd_args {
    const void *dy; /* [T,D] dtype */
    const void *x;  /* [T,D] dtype, as in the forward pass */
    const float *s; /* [D] */
    void *dx;       /* [T,D] dtype, out; may be dy */
    float *ds;      /* [D] out; NULL: s is frozen, and x is not read */
    int T, D;
    bool accumulate; /* ds += instead of ds = */
    pb_dtype dtype;
} pb_residual_bwd_args;

PB_DECLARE_OP(residual, fwd)
PB_DECLARE_OP(residual, bwd)

#ifdef __cplusplus
}
#endif
#endif
