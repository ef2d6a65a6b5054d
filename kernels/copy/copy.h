/* copy.h - copies rows between tensors whose rows are different distances apart, or fills rows with zeros. Context
 * parallelism packs keys and values with it before they are gathered, and puts gathered blocks in the order of the row.
 *
 * The T rows are blocks of `block` rows, n = T / block of them. With row t = q block + r, in block q:
 *
 *     y[t' ldy + d] = x[t ldx + d]        t' = t, or with `reversed` (n-1-q) block + r
 *
 * Bits are copied, NaN too. The gaps between rows of y are not written. x and y do not overlap. EINVAL: T < 0, D < 1,
 * ldx or ldy below D, a negative block, or one that does not divide T. */
#ifndef PB_COPY_H
#define PB_COPY_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_copy_rows_args {
    const void *x; /* [T,D] dtype, rows ldx elements apart; NULL: zeros */
    void *y;       /* [T,D] dtype, rows ldy elements apart, out */
    int T, D;
    int block; /* rows per block; 0: T, one block */
    size_t ldx, ldy;
    bool reversed; /* the last block of x is the first of y */
    pb_dtype dtype;
} pb_copy_rows_args;

PB_DECLARE_OP(copy, rows)

#ifdef __cplusplus
}
#endif
#endif
