/* topk.h - the k best columns of every row of scores, as a list in the order of the columns.
 *
 * pick[r] holds the columns of the k largest of score[r], the lowest column first; -1 in the slots that remain. Equal
 * scores go to the lower columns (-0 equals 0), so that every implementation gives the same list, whatever its order of
 * work. A score of -inf is never picked: it says that the column is not to be seen. A NaN, of either sign, counts as
 * larger than +inf: it is the caller's error, and picked, it shows in everything that is computed from the list.
 *
 * Any R, G and k, also k > G; rows are [G] packed. EINVAL: R, G or k below 0, a NULL tensor where there are elements.
 */
#ifndef PB_TOPK_H
#define PB_TOPK_H
#include "kernels/core/op.h"
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
