/* mla_index.h - builds the key lists that sparse_mla reads in DeepSeek-V4: a window of the last rows, then compressed
 * rows.
 *
 * kv holds the S tokens of a sequence, followed by one compressed row for every `ratio` tokens: row S + g represents
 * the group of tokens g ratio .. g ratio + ratio - 1. With wide = min(S, window), the list of query i is
 *
 *     w < wide:             r = max(i - wide + 1, first) + w;      -1 where r > i
 *     wide <= w < wide + T: g = pick[b,i,w - wide], or w - wide;   S + g, or -1 where g is not visible
 *     later:                -1
 *
 * first = start[b,i], the first token of the conversation of i (negative or NULL: 0). A group is visible when g >= 0
 * and all its tokens are in first .. i. So a query always attends to itself, and masked slots occur within a list as
 * well as at its end. In a packed row each query attends to its own conversation only; if the starts are multiples of
 * ratio, the lists equal those of each conversation in a row of its own.
 *
 * Where ranks share a row, the queries are its tokens offset .. offset + S - 1, and kv holds the `keys` tokens of the
 * whole row. In the formulas S is then `keys`, i is a token of the row, and query i - offset of pick and start belongs
 * to it. Values of start are indices in the whole row.
 *
 * Errors: EINVAL for B, S, window or ratio below 1, T < 0, W < wide + T, offset < 0, keys below offset + S (unless both
 * are 0), a NULL `idx`. */
#ifndef PB_MLA_INDEX_H
#define PB_MLA_INDEX_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_mla_index_build_args {
    const int32_t *pick;  /* [B,S,T] top-k groups of an indexer, or any other numbers; NULL: groups 0 .. T-1 */
    const int32_t *start; /* [B,S] first token of the query's conversation (negative: 0); NULL: 0 for all */
    int32_t *idx;         /* [B,S,W], out */
    int B, S, T, W;
    int window, ratio;
    int offset, keys; /* offset: token of the row that query 0 is; keys: tokens of the row, 0: S */
} pb_mla_index_build_args;

PB_DECLARE_OP(mla_index, build)

#ifndef PB_MLA_INDEX_FN /* .cu files define it before they include this header, to add __host__ __device__ */
#define PB_MLA_INDEX_FN static inline
#endif
/* Returns the number of tokens of a row. */
PB_MLA_INDEX_FN int pb_mla_index_keys(const pb_mla_index_build_args *a) { return a->keys ? a->keys : a->S; }
/* Returns the number of slots for the tokens of the window. */
PB_MLA_INDEX_FN int pb_mla_index_wide(const pb_mla_index_build_args *a)
{
    const int keys = pb_mla_index_keys(a);
    return keys < a->window ? keys : a->window;
}
/* Returns slot w of the list of the query that is token i of its row. pick: the T groups of this query, or NULL; start:
 * the `start` of this query. */
PB_MLA_INDEX_FN int32_t pb_mla_index_slot(const pb_mla_index_build_args *a, const int32_t *pick, int32_t start, int i,
                                          int w)
{
    const int wide = pb_mla_index_wide(a), first = start > 0 ? start : 0;
    if (w < wide) {
        const int from = i - wide + 1 > first ? i - wide + 1 : first;
        return from + w <= i ? from + w : -1;
    }
    if (w >= wide + a->T) return -1;
    const int32_t g = pick ? pick[w - wide] : w - wide;
    const int64_t token = (int64_t)g * a->ratio; /* 64 bits, because g may be any number */
    return g >= 0 && token >= first && token + a->ratio <= (int64_t)i + 1 ? pb_mla_index_keys(a) + g : -1;
}

#ifdef __cplusplus
}
#endif
#endif
