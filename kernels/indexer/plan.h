/* plan.h - how the vectorised indexer is cut into tiles and tasks, and the floats that takes. The same for every
 * instruction set and any number of threads. */
#ifndef PB_INDEXER_PLAN_H
#define PB_INDEXER_PLAN_H
#include <omp.h>

#include "kernels/indexer/indexer.h"
#include "kernels/sparse_mla/plan.h"
#include "kernels/topk/topk_fast.h"

/* `scores` and `pick`: a task owns so many consecutive queries of a batch row and meets KEYS groups at a time. */
enum { QUERIES = 16 };

/* Heads rounded up to the longest vector. */
static inline size_t pb_indexer_wide(int H) { return ((size_t)H + 15) / 16 * 16; }

/* Of each thread. q of a token, groups on their side, products. */
static inline size_t pb_indexer_scores_tiles(const pb_indexer *x)
{
    return x->H * pb_mla_width(x->D) + (size_t)x->D * KEYS + (size_t)x->H * KEYS;
}
/* These, the scores of a task, and the keys of a row. */
static inline size_t pb_indexer_pick_tiles(const pb_indexer *x)
{
    return pb_indexer_scores_tiles(x) + (QUERIES + 1) * pb_topk_row_room(x->G);
}
/* q of a token on its side, rows of k, products, w. */
static inline size_t pb_indexer_at_tiles(const pb_indexer *x)
{
    return (x->D + KEYS + 1) * pb_indexer_wide(x->H) + KEYS * pb_mla_width(x->D);
}
/* These, q and dq as they lie, rows of dk, dw. */
static inline size_t pb_indexer_bwd_tiles(const pb_indexer *x)
{
    return pb_indexer_at_tiles(x) + (2 * (size_t)x->H + KEYS) * pb_mla_width(x->D) + pb_indexer_wide(x->H);
}

/* dk of a batch row is summed in so many parts, one task each, that are added in order. */
static inline int pb_indexer_parts(const pb_indexer *x) { return x->G ? pb_mla_parts(x->B, x->S, x->G, x->D) : 1; }
static inline size_t pb_indexer_sums(const pb_indexer *x)
{
    return (size_t)x->B * pb_indexer_parts(x) * x->G * pb_mla_width(x->D);
}

static inline size_t pb_indexer_scores_room(const pb_indexer *x)
{
    return (size_t)omp_get_max_threads() * pb_indexer_scores_tiles(x);
}
static inline size_t pb_indexer_pick_room(const pb_indexer *x)
{
    return (size_t)omp_get_max_threads() * pb_indexer_pick_tiles(x);
}
static inline size_t pb_indexer_at_room(const pb_indexer *x)
{
    return (size_t)omp_get_max_threads() * pb_indexer_at_tiles(x);
}
static inline size_t pb_indexer_bwd_room(const pb_indexer *x)
{
    return (size_t)omp_get_max_threads() * pb_indexer_bwd_tiles(x) + pb_indexer_sums(x);
}
#endif
