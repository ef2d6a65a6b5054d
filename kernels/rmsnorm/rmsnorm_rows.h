/* rmsnorm_rows.h - one row of RMSNorm, forward and backward, in vectors; rmsnorm_fast.c and addnorm_fast.c use it.
 *
 * A row is read twice; the second time it comes from the L1 cache, so memory is read once. Outputs are written in the
 * second pass only, so large ones can be streamed. */
#ifndef PB_RMSNORM_ROWS_H
#define PB_RMSNORM_ROWS_H
#include <math.h>

#include "kernels/cpu/simd.h"

static inline void *pb_at(const void *p, size_t i, pb_dtype t) { return (unsigned char *)p + i * pb_dtype_size(t); }

/* Returns elements d .. d+n-1 of the weights; ones if w is NULL. */
PB_INLINE vf norm_weight(const float *w, int d, int n) { return w ? vf_get(w, d, PB_F32, n) : vf_set(1); }

typedef struct norm_fwd_row {
    const void *x, *r; /* [D]; r NULL: no residual */
    const float *w;    /* [D], or NULL: ones */
    void *h, *y;       /* [D]; h receives x + r and may be x or r; it is NULL without r */
    int D;
    float eps;
    bool stream_h, stream_y;
} norm_fwd_row;

/* Returns x + r, rounded to dtype, so that forward and backward pass use the same numbers. */
PB_INLINE vf norm_input(const norm_fwd_row *a, int d, int n, pb_dtype t)
{
    vf x = vf_get(a->x, d, t, n);
    return a->r ? vf_round(x + vf_get(a->r, d, t, n), t) : x;
}

PB_INLINE void norm_fwd_step(const norm_fwd_row *a, float rstd, int d, int n, pb_dtype t)
{
    vf h = norm_input(a, d, n, t);
    if (a->r) vf_out(a->h, d, t, h, n, a->stream_h);
    vf_out(a->y, d, t, h * rstd * norm_weight(a->w, d, n), n, a->stream_y);
}

/* Normalises one row; returns rstd. */
PB_INLINE float norm_fwd(const norm_fwd_row *a, pb_dtype t)
{
    const int D = a->D, whole = D - D % PB_VLEN;
    vf s0 = {0}, s1 = {0};
    int d = 0;
    for (; d + 2 * PB_VLEN <= D; d += 2 * PB_VLEN) {
        vf u = norm_input(a, d, PB_VLEN, t), v = norm_input(a, d + PB_VLEN, PB_VLEN, t);
        s0 += u * u;
        s1 += v * v;
    }
    for (; d < D; d += PB_VLEN) {
        vf u = norm_input(a, d, D - d < PB_VLEN ? D - d : PB_VLEN, t);
        s0 += u * u;
    }
    const float rstd = 1 / sqrtf(vf_sum(s0 + s1) / (float)D + a->eps);
    for (d = 0; d < whole; d += PB_VLEN) norm_fwd_step(a, rstd, d, PB_VLEN, t);
    if (d < D) norm_fwd_step(a, rstd, d, D - d, t);
    return rstd;
}

typedef struct norm_bwd_row {
    const void *dy, *x, *dres; /* [D]; dres: gradient that reaches x through the residual; NULL: none */
    const float *w;            /* [D], or NULL: ones */
    void *dx;                  /* [D]; may be dy or dres */
    float *dw;                 /* [D], the row's contribution is added to it; NULL: not computed */
    float rstd;
    int D;
    bool stream;
} norm_bwd_row;

/* Adds dy*xh to dw and returns dy*w*xh, for elements d .. d+n-1. xh = x*rstd, as in rmsnorm.h. */
PB_INLINE vf norm_bwd_dot(const norm_bwd_row *a, int d, int n, pb_dtype t)
{
    vf p = vf_get(a->dy, d, t, n) * (vf_get(a->x, d, t, n) * a->rstd);
    if (a->dw) vf_put(a->dw, d, PB_F32, vf_get(a->dw, d, PB_F32, n) + p, n);
    return p * norm_weight(a->w, d, n);
}

PB_INLINE void norm_bwd_step(const norm_bwd_row *a, float c, int d, int n, pb_dtype t)
{
    vf wdy = vf_get(a->dy, d, t, n) * norm_weight(a->w, d, n), xh = vf_get(a->x, d, t, n) * a->rstd;
    vf dx = (wdy - xh * c) * a->rstd;
    if (a->dres) dx += vf_get(a->dres, d, t, n);
    vf_out(a->dx, d, t, dx, n, a->stream);
}

PB_INLINE void norm_bwd(const norm_bwd_row *a, pb_dtype t)
{
    const int D = a->D, whole = D - D % PB_VLEN;
    vf dot = {0};
    int d = 0;
    for (; d < whole; d += PB_VLEN) dot += norm_bwd_dot(a, d, PB_VLEN, t);
    if (d < D) dot += norm_bwd_dot(a, d, D - d, t);
    const float c = vf_sum(dot) / (float)D;
    for (d = 0; d < whole; d += PB_VLEN) norm_bwd_step(a, c, d, PB_VLEN, t);
    if (d < D) norm_bwd_step(a, c, d, D - d, t);
}
#endif
