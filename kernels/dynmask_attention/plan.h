/* plan.h - what the implementations of dynmask_attention share: which queries attend to a slot, and how the vectorised
 * code is divided into tiles and tasks, and its workspace. The division does not depend on the number of threads. */
#ifndef PB_DYNMASK_ATTENTION_PLAN_H
#define PB_DYNMASK_ATTENTION_PLAN_H
#include <math.h>
#include <stdint.h>

#include "kernels/attention/plan.h"

/* Returns the key of slot l if the query at `position` attends to it, else -1. list, until [L], bias [S_kv]: of one
 * batch row and kv head. */
static inline int pb_dynmask_key(const int32_t *list, const int32_t *until, const float *bias, int S_kv, int l,
                                 int64_t position)
{
    const int32_t j = list[l];
    return j >= 0 && j < S_kv && j <= position && position < until[l] && bias[j] != -INFINITY ? j : -1;
}

/* Return the workspace of one thread in floats: f32 tiles, and the slots that some query of the block attends to. */
static inline size_t pb_dynmask_fwd_tiles(int D, int L)
{
    return 2 * (QUERIES + KEYS) * pb_attn_width(D) + KEYS * QUERIES + (size_t)L;
}
static inline size_t pb_dynmask_bwd_tiles(int D, int L)
{
    return (5 * QUERIES + 4 * KEYS) * pb_attn_width(D) + 2 * KEYS * QUERIES + (size_t)L;
}

/* Returns the size of a partial sum of dk, dv [L,width] and dbias [L], in floats. */
static inline size_t pb_dynmask_part(int D, int L) { return (size_t)L * (2 * pb_attn_width(D) + 1); }
/* Returns the workspace that the threads share, in floats: the partial sums [B,K,parts], then the slot of each key
 * [B,K,S_kv]. */
static inline size_t pb_dynmask_shared(int B, int S, int S_kv, int H, int K, int D, int L)
{
    return (size_t)B * K * ((size_t)pb_attn_parts(B, S, H, K) * pb_dynmask_part(D, L) + (size_t)S_kv);
}
#endif
