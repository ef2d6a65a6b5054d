/* swiglu.h - SwiGLU, the gated activation of the MLP.
 *
 *     y = silu(gate) * up        silu(z) = z * sigmoid(z)        gu = [gate | up]
 *
 * Shazeer 2020, arXiv:2002.05202, eq. 6. gate and up are the halves of one row, because one matrix product computes
 * both. Backward, with s = sigmoid(gate):
 *
 *     dgate = dy * up * s * (1 + gate*(1-s))        dup = dy * gate * s */
#ifndef PB_SWIGLU_H
#define PB_SWIGLU_H
#include "kernels/engine/op.h"
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
    void *y;        /* [T,I] dtype, out; may be dy; NULL: not written. The activation is computed again for the weight
                       gradient of the down projection, so that the forward pass need not keep it. */
    int T, I;
    pb_dtype dtype;
} pb_swiglu_bwd_args;

PB_DECLARE_OP(swiglu, fwd)
PB_DECLARE_OP(swiglu, bwd)

#ifdef __cplusplus
}
#endif
#endif
