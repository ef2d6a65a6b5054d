/* rmsnorm.h - root-mean-square normalisation of rows of D elements.
 *
 *     y[t,g,:] = x[t,g,:] * rstd[t,g] * w        rstd = 1/sqrt(mean_d(x^2) + eps)
 *
 * Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4 with eps added as in Llama. There are T = B*S tokens of G
 * rows each: G = 1 normalises the hidden state; G = heads with D = head size is the per-head QK-norm of Qwen3.
 * If w is NULL, all weights are 1 (the queries of DeepSeek-V4). Row (t,g) starts at element t*ld + g*D, so it
 * may be part of a wider tensor.
 *
 * Backward, with xh = x*rstd:
 *
 *     dx = rstd * (w*dy - xh * mean_d(w*dy*xh))        dw = sum over (t,g) of dy*xh
 *
 * x, y, dx and dy have the type `dtype`; w, rstd and dw are f32. eps > 0 comes from the model. */
#ifndef PB_RMSNORM_H
#define PB_RMSNORM_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_rmsnorm_fwd_args {
    const void *x;  /* [T,G,D] dtype, tokens ldx elements apart */
    const float *w; /* [D], or NULL: ones */
    void *y;        /* [T,G,D] dtype, tokens ldy elements apart, out; may be x */
    float *rstd;    /* [T,G], out; the backward pass needs it */
    int T, G, D;
    size_t ldx, ldy; /* >= G*D */
    float eps;
    pb_dtype dtype;
} pb_rmsnorm_fwd_args;

typedef struct pb_rmsnorm_bwd_args {
    const void *dy;    /* [T,G,D] dtype, tokens lddy elements apart */
    const void *x;     /* [T,G,D] dtype, tokens ldx elements apart: input of the forward pass */
    const float *w;    /* [D], or NULL: ones */
    const float *rstd; /* [T,G] */
    void *dx;          /* [T,G,D] dtype, tokens lddx elements apart, out; may be dy */
    float *dw;         /* [D] f32, out; NULL: w is frozen, or w is NULL */
    int T, G, D;
    size_t lddy, ldx, lddx;
    bool accumulate; /* dw += instead of dw = */
    pb_dtype dtype;
} pb_rmsnorm_bwd_args;

PB_DECLARE_OP(rmsnorm, fwd)
PB_DECLARE_OP(rmsnorm, bwd)

#ifdef __cplusplus
}
#endif
#endif
