/* addnorm.h - residual addition and RMSNorm in one pass over memory.
 *
 *     h = x + r        y = h * rstd * w        rstd = 1/sqrt(mean_d(h^2) + eps)
 *
 * See rmsnorm.h for the norm. In the backward pass, x and r have the same gradient dx; dh is the gradient that reaches
 * h through the residual connection:
 *
 *     dx = dh + rstd * (w*dy - hh * mean_d(w*dy*hh)),  hh = h*rstd        dw = sum over t of dy*hh
 *
 * With dtype bf16, h is rounded to bf16 before the norm reads it, so that forward and backward use the same numbers.
 * y and rstd are those of rmsnorm_fwd of h, bit for bit, with the implementation of the same name. */
#ifndef PB_ADDNORM_H
#define PB_ADDNORM_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_addnorm_fwd_args {
    const void *x, *r; /* [T,D] dtype */
    const float *w;    /* [D] */
    void *h, *y;       /* [T,D] dtype, out; h may be x or r */
    float *rstd;       /* [T], out */
    int T, D;
    float eps;
    pb_dtype dtype;
} pb_addnorm_fwd_args;

typedef struct pb_addnorm_bwd_args {
    const void *dy, *dh; /* [T,D] dtype */
    const void *h;       /* [T,D] dtype, as the forward pass wrote it */
    const float *w;      /* [D] */
    const float *rstd;   /* [T] */
    void *dx;            /* [T,D] dtype, out; may be dy or dh */
    float *dw;           /* [D] f32, out; NULL: w is frozen */
    int T, D;
    bool accumulate; /* dw += instead of dw = */
    pb_dtype dtype;
} pb_addnorm_bwd_args;

PB_DECLARE_OP(addnorm, fwd)
PB_DECLARE_OP(addnorm, bwd)

#ifdef __cplusplus
}
#endif
#endif
