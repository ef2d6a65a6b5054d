/* topk_fast.h - one row of topk on the CPU, for the ops that pick from scores that they have just made. */
#ifndef PB_TOPK_FAST_H
#define PB_TOPK_FAST_H
#include <omp.h>

#include "kernels/core/cpu.h"

/* pick [k] of score [G]; room is [G]. */
void pb_topk_row_ref(const float *score, int G, int k, int32_t *pick, uint64_t *room);

/* Floats of room for the vectorised row, PB_FAST(pb_topk_row): keys, rounded up to whole vectors. */
static inline size_t pb_topk_row_room(int G) { return ((size_t)G + 15) / 16 * 16; }
static inline size_t pb_topk_fast_workspace(int G)
{
    return (size_t)omp_get_max_threads() * pb_topk_row_room(G) * sizeof(uint32_t);
}
#ifdef PB_ISA
/* As pb_topk_row_ref. */
void PB_FAST(pb_topk_row)(const float *score, int G, int k, int32_t *pick, uint32_t *room);
#endif
#endif
