/* linear.h - a dense layer and its two products of the backward pass.
 *
 *     y = x w^T + bias        dx (+)= dy w        dw (+)= dy^T x,  dbias (+)= sum over t of dy
 *
 * w is [N,K] row-major, as Hugging Face stores it; several weights that share x are one op when they
 * lie behind each other (q, k, v; gate, up). T = B*S. x, y, w and the gradients of activations share
 * `dtype`; bias, dw and dbias are f32. Sums are f32 at least. */
#ifndef PB_LINEAR_H
#define PB_LINEAR_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_linear_fwd_args {
    const void *x;     /* [T,K] dtype */
    const void *w;     /* [N,K] dtype */
    const float *bias; /* [N] or NULL */
    void *y;           /* [T,N] dtype, out */
    int T, N, K;
    pb_dtype dtype;
} pb_linear_fwd_args;

typedef struct pb_linear_dx_args {
    const void *dy; /* [T,N] dtype */
    const void *w;  /* [N,K] dtype */
    void *dx;       /* [T,K] dtype, out */
    int T, N, K;
    bool accumulate; /* dx += instead of = */
    pb_dtype dtype;
} pb_linear_dx_args;

typedef struct pb_linear_dw_args {
    const void *dy; /* [T,N] dtype */
    const void *x;  /* [T,K] dtype */
    float *dw;      /* [N,K] f32, out */
    float *dbias;   /* [N] f32, out; NULL: no bias */
    int T, N, K;
    bool accumulate; /* dw, dbias += instead of = */
    pb_dtype dtype;
} pb_linear_dw_args;

PB_DECLARE_OP(linear, fwd)
PB_DECLARE_OP(linear, dx)
PB_DECLARE_OP(linear, dw)

#ifdef __cplusplus
}
#endif
#endif
