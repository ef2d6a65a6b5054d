/* topk.h - top-k of every row of scores, as a list in column order.
 *
 * pick[r] holds the columns of the k largest scores of row r in ascending order; unused slots at the end are -1. Of
 * equal scores (-0 equals 0) the lower columns are selected, so that every implementation gives the same list. A score
 * of -inf is never selected: it marks a column that must not be seen. A NaN of either sign ranks above +inf. NaN is an
 * error of the caller; because it is selected, it shows up in everything computed from the list.
 *
 * R, G and k may have any value >= 0, also k > G. Rows are contiguous. EINVAL: R, G or k is negative, or a tensor
 * that has elements is NULL. */
#ifndef PB_TOPK_H
#define PB_TOPK_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_topk_fwd_args {
    const float *score; /* [R,G] */
    int32_t *pick;      /* [R,k], out */
    int R, G, k;
} pb_topk_fwd_args;

PB_DECLARE_OP(topk, fwd)

#ifdef __cplusplus
}
#endif
#endif
