/* visible.h - the groups that a query can see, and the number of queries whose scores the op pick holds at a time. */
#ifndef PB_INDEXER_VISIBLE_H
#define PB_INDEXER_VISIBLE_H
#include <stddef.h>
#include <stdint.h>

#ifndef PB_INDEXER_FN /* device code defines it as __host__ __device__ */
#define PB_INDEXER_FN static inline
#endif

/* The groups lo .. hi-1 that a query can see; empty if hi <= lo. */
typedef struct pb_visible {
    int lo, hi;
} pb_visible;

/* Returns the groups visible to query t of the conversation that begins at `start`: those whose tokens are all in
 * start .. t. */
PB_INDEXER_FN pb_visible pb_visible_to(int t, int start, int ratio, int G)
{
    const int lo = start > 0 ? (int)(((int64_t)start + ratio - 1) / ratio) : 0, hi = (int)(((int64_t)t + 1) / ratio);
    pb_visible v;
    v.lo = lo, v.hi = hi < G ? hi : G;
    return v;
}

/* Returns the number of queries per batch row whose scores `pick` holds at a time on a GPU: as many as fit in 32 MiB,
 * but at least one. */
static inline int pb_indexer_run(int B, int S, int G)
{
    const size_t row = (size_t)B * G * sizeof(float), fit = row ? ((size_t)32 << 20) / row : (size_t)S;
    return fit < 1 ? 1 : fit < (size_t)S ? (int)fit : S;
}
#endif
