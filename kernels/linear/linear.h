/* linear.h - a dense layer: forward pass, gradient of the input, gradients of weight and bias.
 *
 *     y = x w^T + bias        dx (+)= dy w        dw (+)= dy^T x,  dbias (+)= sum over t of dy
 *
 * T = B*S tokens. w is [N,K] row-major, as Hugging Face stores it. Several weights that share x (q, k, v; gate, up) can
 * be one op: store them contiguously and let N be the sum of their rows. x, y, w and the gradients of activations have
 * type `dtype`; bias and dbias are f32. dw is f32, or bf16 where the caller wants the gradient rounded, for example to add
 * it over ranks in bf16. Sums are accumulated in f32 or better and rounded once. */
#ifndef PB_LINEAR_H
#define PB_LINEAR_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_linear_fwd_args {
    const void *x;     /* [T,K] dtype */
    const void *w;     /* [N,K] dtype */
    const float *bias; /* [N]; NULL: no bias */
    void *y;           /* [T,N] dtype, out */
    int T, N, K;
    pb_dtype dtype;
} pb_linear_fwd_args;

typedef struct pb_linear_dx_args {
    const void *dy; /* [T,N] dtype */
    const void *w;  /* [N,K] dtype */
    void *dx;       /* [T,K] dtype, out */
    int T, N, K;
    bool accumulate; /* true: dx +=; false: dx = */
    pb_dtype dtype;
} pb_linear_dx_args;

typedef struct pb_linear_dw_args {
    const void *dy; /* [T,N] dtype */
    const void *x;  /* [T,K] dtype */
    void *dw;       /* [N,K] dw_dtype, out */
    float *dbias;   /* [N] f32, out; NULL: the layer has no bias */
    int T, N, K;
    bool accumulate; /* true: dw, dbias +=; false: = */
    pb_dtype dtype;
    pb_dtype dw_dtype; /* PB_F32, which is 0, or PB_BF16 */
} pb_linear_dw_args;

PB_DECLARE_OP(linear, fwd)
PB_DECLARE_OP(linear, dx)
PB_DECLARE_OP(linear, dw)

#ifdef __cplusplus
}
#endif
#endif
