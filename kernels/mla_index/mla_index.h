/* mla_index.h - the lists that sparse_mla reads: a window of the last rows, then compressed rows (DeepSeek-V4).
 *
 * kv holds the S tokens of a sequence and behind them one row for every `ratio` of them: row S + g stands for the
 * tokens g ratio .. g ratio + ratio - 1. With wide = min(S, window), row i of the lists is
 *
 *     w < wide:             r = max(i - wide + 1, first) + w;      -1 where r > i
 *     wide <= w < wide + T: g = pick[b,i,w - wide], or w - wide;   S + g, or -1 where g is not visible
 *     later:                -1
 *
 * first = start[b,i], the first token of i's own sample (below 0 or NULL: 0). A group is visible when all its tokens
 * lie in first .. i, and g >= 0. So a query always sees itself, masked slots stand within a list as well as at its end,
 * and a packed row sees only its own sample: the same lists as the samples alone when starts are multiples of ratio.
 * EINVAL: B, S, window or ratio below 1, T < 0, W < wide + T, a NULL `idx`. */
#ifndef PB_MLA_INDEX_H
#define PB_MLA_INDEX_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_mla_index_build_args {
    const int32_t *pick;  /* [B,S,T] groups that an indexer chose, any value; NULL: 0 .. T-1 */
    const int32_t *start; /* [B,S] or NULL */
    int32_t *idx;         /* [B,S,W], out */
    int B, S, T, W;
    int window, ratio;
} pb_mla_index_build_args;

PB_DECLARE_OP(mla_index, build)

#ifndef PB_MLA_INDEX_FN /* device code says more */
#define PB_MLA_INDEX_FN static inline
#endif
/* Slot w of row i; `pick` is that row's, or NULL. */
PB_MLA_INDEX_FN int32_t pb_mla_index_slot(const pb_mla_index_build_args *a, const int32_t *pick, int32_t start, int i,
                                          int w)
{
    const int wide = a->S < a->window ? a->S : a->window, first = start > 0 ? start : 0;
    if (w < wide) {
        const int from = i - wide + 1 > first ? i - wide + 1 : first;
        return from + w <= i ? from + w : -1;
    }
    if (w >= wide + a->T) return -1;
    const int32_t g = pick ? pick[w - wide] : w - wide;
    const int64_t token = (int64_t)g * a->ratio; /* g may be anything */
    return g >= 0 && token >= first && token + a->ratio <= (int64_t)i + 1 ? a->S + g : -1;
}

#ifdef __cplusplus
}
#endif
#endif
