/* nf4_linear.h - a dense layer whose weight is stored in NF4, and the gradient of its input.
 *
 *     y = x W^T + bias        dx (+)= dy W        W = dequantise(q, scales), [N,K]
 *
 * The weight is frozen (QLoRA, arXiv:2305.14314, eq. 5), so there is no dw. The reference uses the dequantised weight
 * in f32; implementations on bf16 tensor cores round it to bf16. nf4.h describes the layout of q and scales. */
#ifndef PB_NF4_LINEAR_H
#define PB_NF4_LINEAR_H
#include "kernels/cpu/gemm.h"
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_nf4_linear_fwd_args {
    const void *x;    /* [T,K] dtype */
    const uint8_t *q; /* [ceil(N*K/2)]; element n*K + k is W[n,k] */
    pb_nf4_scales scales;
    const float *bias; /* [N]; NULL: no bias */
    void *y;           /* [T,N] dtype, out */
    int T, N, K;
    pb_dtype dtype;
} pb_nf4_linear_fwd_args;

typedef struct pb_nf4_linear_dx_args {
    const void *dy; /* [T,N] dtype */
    const uint8_t *q;
    pb_nf4_scales scales;
    void *dx; /* [T,K] dtype, out */
    int T, N, K;
    bool accumulate; /* true: dx +=; false: dx = */
    pb_dtype dtype;
} pb_nf4_linear_dx_args;

PB_DECLARE_OP(nf4_linear, fwd)
PB_DECLARE_OP(nf4_linear, dx)

#ifdef __cplusplus
}
#endif
#endif
