/* chunks.h - divides a list of tensors of very different sizes into chunks, so that threads get equal amounts of work.
 *
 * first[i] is the number of chunks in all tensors before tensor i; first[n] is the total. An
 * empty tensor has no chunks. */
#ifndef PB_CHUNKS_H
#define PB_CHUNKS_H
#include <stddef.h>

static inline size_t pb_chunks_workspace(int n) { return ((size_t)n + 1) * sizeof(size_t); }

/* Returns the tensor that chunk c < first[n] belongs to: the last i with first[i] <= c. */
static inline int pb_chunk_tensor(const size_t *first, int n, size_t c)
{
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (first[mid] <= c) lo = mid;
        else hi = mid;
    }
    return lo;
}
#endif
