/* grouped_linear.h - G dense layers side by side, each on its own part of the row, and their backward products.
 *
 *     y_g = x_g w_g^T        dx_g (+)= dy_g w_g        dw_g (+)= dy_g^T x_g        for g < G
 *
 * x_g is columns g K .. g K + K - 1 of x, y_g columns g N .. g N + N - 1 of y, and w_g rows g N .. g N + N - 1 of w.
 * It is the first half of DeepSeek-V4's low-rank output projection: attention's o [B,S,H,D] seen as T = B*S rows of G
 * groups of K = H/G D, and wo_a [G N, K]; the second half, wo_b, is an ordinary linear on y. Flash: G 8, K 4096, N
 * 1024. x, y, w and the gradients of activations share `dtype`; dw is f32. Sums are f32 at least. No bias. EINVAL: T <
 * 0, G, N or K < 1, a NULL tensor. */
#ifndef PB_GROUPED_LINEAR_H
#define PB_GROUPED_LINEAR_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_grouped_linear_fwd_args {
    const void *x; /* [T,G,K] dtype */
    const void *w; /* [G,N,K] dtype */
    void *y;       /* [T,G,N] dtype, out */
    int T, G, N, K;
    pb_dtype dtype;
} pb_grouped_linear_fwd_args;

typedef struct pb_grouped_linear_dx_args {
    const void *dy; /* [T,G,N] dtype */
    const void *w;  /* [G,N,K] dtype */
    void *dx;       /* [T,G,K] dtype, out */
    int T, G, N, K;
    bool accumulate; /* dx += instead of = */
    pb_dtype dtype;
} pb_grouped_linear_dx_args;

typedef struct pb_grouped_linear_dw_args {
    const void *dy; /* [T,G,N] dtype */
    const void *x;  /* [T,G,K] dtype */
    float *dw;      /* [G,N,K] f32, out */
    int T, G, N, K;
    bool accumulate; /* dw += instead of = */
    pb_dtype dtype;
} pb_grouped_linear_dw_args;

PB_DECLARE_OP(grouped_linear, fwd)
PB_DECLARE_OP(grouped_linear, dx)
PB_DECLARE_OP(grouped_linear, dw)

#ifdef __cplusplus
}
#endif
#endif
