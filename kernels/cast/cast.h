/* cast.h - converts columns of a wider tensor to packed f32 and multiplies them by a number. It connects a bf16 matrix
 * product to code that reads f32, such as the head weights of an indexer (indexer.h).
 *
 *     y[t,d] = scale x[t ldx + d]        exact where scale is 1, else one f32 product
 *     dx[t lddx + d] = scale dy[t,d]     rounded once; the gaps between rows are not written
 *
 * EINVAL: T < 0, D < 1, ldx < D, scale not finite, a NULL tensor (unless T is 0). */
#ifndef PB_CAST_H
#define PB_CAST_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_cast_fwd_args {
    const void *x; /* [T,D] dtype, rows ldx elements apart */
    float *y;      /* [T,D], out */
    int T, D;
    size_t ldx;
    float scale;
    pb_dtype dtype;
} pb_cast_fwd_args;

typedef struct pb_cast_bwd_args {
    const float *dy; /* [T,D] */
    void *dx;        /* [T,D] dtype, rows lddx elements apart, out */
    int T, D;
    size_t lddx;
    float scale;
    pb_dtype dtype;
} pb_cast_bwd_args;

PB_DECLARE_OP(cast, fwd)
PB_DECLARE_OP(cast, bwd)

#ifdef __cplusplus
}
#endif
#endif
