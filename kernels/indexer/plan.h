/* plan.h - tiles and tasks of the indexer on the CPU, and the scratch they need, in floats. They are equal for all
 * instruction sets; sums do not depend on the number of threads. */
#ifndef PB_INDEXER_PLAN_H
#define PB_INDEXER_PLAN_H
#include <omp.h>

#include "kernels/indexer/indexer.h"
#include "kernels/sparse_mla/plan.h"
#include "kernels/topk/topk_fast.h"

/* In `scores` and `pick` a task owns QUERIES consecutive queries of a batch row and processes KEYS groups at a time. */
enum { QUERIES = 16 };

/* Returns H rounded up to a multiple of the longest vector. */
static inline size_t pb_indexer_wide(int H) { return ((size_t)H + 15) / 16 * 16; }

/* Returns the floats of scratch per thread for `scores`: q of one token, a transposed tile of k, and their products. */
static inline size_t pb_indexer_scores_tiles(const pb_indexer *x)
{
    return x->H * pb_mla_width(x->D) + (size_t)x->D * KEYS + (size_t)x->H * KEYS;
}
/* Returns the floats of scratch per thread for `pick`: those of `scores`, the scores of a task's queries, and the top-k
 * keys of one row. */
static inline size_t pb_indexer_pick_tiles(const pb_indexer *x)
{
    return pb_indexer_scores_tiles(x) + (QUERIES + 1) * pb_topk_row_room(x->G);
}
/* Returns the floats of scratch per thread for `at`: q of one token transposed, a tile of k, their products, and w. */
static inline size_t pb_indexer_at_tiles(const pb_indexer *x)
{
    return (x->D + KEYS + 1) * pb_indexer_wide(x->H) + KEYS * pb_mla_width(x->D);
}
/* Returns the floats of scratch per thread for `bwd`: those of `at`, q and dq not transposed, a tile of dk, and dw. */
static inline size_t pb_indexer_bwd_tiles(const pb_indexer *x)
{
    return pb_indexer_at_tiles(x) + (2 * (size_t)x->H + KEYS) * pb_mla_width(x->D) + pb_indexer_wide(x->H);
}

/* Returns the number of partial sums of dk per batch row. One task computes each; they are added in order. */
static inline int pb_indexer_parts(const pb_indexer *x) { return x->G ? pb_mla_parts(x->B, x->S, x->G, x->D) : 1; }
static inline size_t pb_indexer_sums(const pb_indexer *x)
{
    return (size_t)x->B * pb_indexer_parts(x) * x->G * pb_mla_width(x->D);
}

static inline size_t pb_indexer_scores_room(const pb_indexer *x)
{
    return (size_t)omp_get_max_threads() * pb_indexer_scores_tiles(x);
}
/* Returns the floats of scratch for `pick`, which needs about 17 G per thread. The total is bounded: with long contexts
 * fewer threads work, but at least one. */
static inline size_t pb_indexer_pick_room(const pb_indexer *x)
{
    const size_t most = ((size_t)256 << 20) / sizeof(float), each = pb_indexer_pick_tiles(x), fit = most / each;
    const size_t threads = (size_t)omp_get_max_threads();
    return (fit < 1 ? 1 : fit < threads ? fit : threads) * each;
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
