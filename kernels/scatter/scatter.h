/* scatter.h - adds one row x to each of the rows of y that a list of indices names. It measures the least cost of a
 * scattered sum, and so gives the ceiling for the backward pass of sparse attention.
 *
 *     y[idx[s]] += x      for every s of 0 .. S-1 with 0 <= idx[s] < R
 *
 * The order of the additions is not fixed in implementations with `varies`. EINVAL: S < 0, R < 0, D < 1, a NULL tensor
 * (idx may be NULL if S is 0, y if R is 0). */
#ifndef PB_SCATTER_H
#define PB_SCATTER_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_scatter_add_args {
    const float *x;     /* [D] */
    const int32_t *idx; /* [S]; values outside [0,R) are skipped */
    float *y;           /* [R,D], read and written */
    int S, R, D;
} pb_scatter_add_args;

PB_DECLARE_OP(scatter, add)

#ifdef __cplusplus
}
#endif
#endif
