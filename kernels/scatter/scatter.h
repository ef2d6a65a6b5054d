/* scatter.h - one row added to many rows: what a sum that is scattered over rows costs at least, and the ceiling of the
 * backward pass of sparse attention.
 *
 *     y[idx[s]] += x      for every s of 0 .. S-1 with 0 <= idx[s] < R
 *
 * The order of the sums is not fixed where an implementation says that it varies. EINVAL: S or R below 0, D below 1, a
 * NULL tensor. */
#ifndef PB_SCATTER_H
#define PB_SCATTER_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_scatter_add_args {
    const float *x;     /* [D] */
    const int32_t *idx; /* [S] any value */
    float *y;           /* [R,D], read and written */
    int S, R, D;
} pb_scatter_add_args;

PB_DECLARE_OP(scatter, add)

#ifdef __cplusplus
}
#endif
#endif
