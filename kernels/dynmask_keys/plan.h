/* plan.h - shared by the implementations of dynmask_keys: the conversations of a row, the check of the biases, and the
 * workspace. */
#ifndef PB_DYNMASK_KEYS_PLAN_H
#define PB_DYNMASK_KEYS_PLAN_H
#include "kernels/dynmask_keys/dynmask_keys.h"
#include "kernels/topk/topk_fast.h"

/* Returns the end of the conversation that begins at token `from` of a row. start: of the row, or NULL. */
static inline int pb_dynmask_end(const int32_t *start, int from, int S)
{
    int end = from + 1;
    while (end < S && !(start && start[end] == end)) end++;
    return end;
}

/* Fails if a bias is NaN or +inf, which have no place in an order of keys. */
static inline pb_status pb_dynmask_keys_ranked(const pb_dynmask_keys_build_args *a)
{
    const size_t n = (size_t)a->B * a->K * a->S;
    size_t bad = n;
#pragma omp parallel for reduction(min : bad) if (n > 65536)
    for (size_t i = 0; i < n; i++)
        if (!(a->bias[i] < INFINITY) && i < bad) bad = i;
    if (bad == n) return PB_OK;
    return pb_fail(PB_EINVAL, "dynmask_keys: the bias of row %zu, kv head %zu, key %zu is %g, which has no rank",
                   bad / a->S / a->K, bad / a->S % a->K, bad % a->S, (double)a->bias[bad]);
}

/* Returns the scratch of one thread in elements of 4 bytes: `until` of every key of a row, then the heap of the kept
 * keys (exact) or the keys of topk (union). */
static inline size_t pb_dynmask_keys_room(const pb_dynmask_keys_build_args *a) { return 2 * pb_topk_row_room(a->S); }
#endif
