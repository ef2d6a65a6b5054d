/* swiglu.h - the gated activation between the two halves of the MLP.
 *
 *     y = silu(gate) * up        silu(z) = z * sigmoid(z)        gu = [gate | up]
 *
 * Shazeer 2020, arXiv:2002.05202, eq. 6. gate and up lie side by side because one product makes both.
 * Backward: dgate = dy * up * s * (1 + gate*(1-s)), dup = dy * gate * s, with s = sigmoid(gate). */
#ifndef PB_SWIGLU_H
#define PB_SWIGLU_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_swiglu_fwd_args {
    const void *gu; /* [T,2,I] dtype */
    void *y;        /* [T,I] dtype, out */
    int T, I;
    pb_dtype dtype;
} pb_swiglu_fwd_args;

typedef struct pb_swiglu_bwd_args {
    const void *dy; /* [T,I] dtype */
    const void *gu; /* [T,2,I] dtype */
    void *dgu;      /* [T,2,I] dtype, out; may be gu */
    void *y;        /* [T,I] dtype, out: the activation once more, for the down projection's dw, so that
                       the forward pass need not keep it; NULL: not wanted; may be dy */
    int T, I;
    pb_dtype dtype;
} pb_swiglu_bwd_args;

PB_DECLARE_OP(swiglu, fwd)
PB_DECLARE_OP(swiglu, bwd)

#ifdef __cplusplus
}
#endif
#endif
