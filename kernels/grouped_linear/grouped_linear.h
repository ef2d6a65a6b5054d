/* grouped_linear.h - G independent dense layers, each on its own range of columns, and their backward products.
 *
 *     y_g = x_g w_g^T        dx_g (+)= dy_g w_g        dw_g (+)= dy_g^T x_g        for g < G
 *
 * x_g is columns g K .. g K + K - 1 of x, y_g is columns g N .. g N + N - 1 of y, and w_g is rows g N .. g N + N - 1 of
 * w. x, y, w and the gradients of activations have type `dtype`; dw is f32. Sums are accumulated in f32 or better.
 * There is no bias. EINVAL: T < 0; G, N or K < 1; a tensor is NULL.
 *
 * DeepSeek-V4 uses it for the first half of its low-rank output projection: attention's o [B,S,H,D] is T = B*S rows of
 * G groups with K = H/G*D, and w is wo_a [G N, K]. The second half, wo_b, is an ordinary linear layer on y.
 * DeepSeek-V4-Flash has G 8, K 4096, N 1024. */
#ifndef PB_GROUPED_LINEAR_H
#define PB_GROUPED_LINEAR_H
#include "kernels/engine/op.h"
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
    bool accumulate; /* true: dx +=; false: dx = */
    pb_dtype dtype;
} pb_grouped_linear_dx_args;

typedef struct pb_grouped_linear_dw_args {
    const void *dy; /* [T,G,N] dtype */
    const void *x;  /* [T,G,K] dtype */
    float *dw;      /* [G,N,K] f32, out */
    int T, G, N, K;
    bool accumulate; /* true: dw +=; false: dw = */
    pb_dtype dtype;
} pb_grouped_linear_dw_args;

PB_DECLARE_OP(grouped_linear, fwd)
PB_DECLARE_OP(grouped_linear, dx)
PB_DECLARE_OP(grouped_linear, dw)

#ifdef __cplusplus
}
#endif
#endif
