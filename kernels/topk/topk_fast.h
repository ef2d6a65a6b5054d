/* topk_fast.h - top-k of a single row on the CPU, for ops that compute a row of scores and then select from it. */
#ifndef PB_TOPK_FAST_H
#define PB_TOPK_FAST_H
#include <omp.h>

#include "kernels/cpu/cpu.h"

/* Writes the top k of score [G] to pick [k], in column order. room: scratch of G elements. */
void pb_topk_row_ref(const float *score, int G, int k, int32_t *pick, uint64_t *room);

/* Returns the elements of scratch that PB_FAST(pb_topk_row) needs for the keys: G rounded up to whole vectors. */
static inline size_t pb_topk_row_room(int G) { return ((size_t)G + 15) / 16 * 16; }
static inline size_t pb_topk_fast_workspace(int G)
{
    return (size_t)omp_get_max_threads() * pb_topk_row_room(G) * sizeof(uint32_t);
}
#ifdef PB_ISA
/* Gives the same list as pb_topk_row_ref. room: pb_topk_row_room(G) elements. */
void PB_FAST(pb_topk_row)(const float *score, int G, int k, int32_t *pick, uint32_t *room);
#endif
#endif
