/* threads.h - the number of OpenMP threads that an op can use with the scratch memory it has. */
#ifndef PB_THREADS_H
#define PB_THREADS_H
#include <omp.h>

#include "kernels/engine/ctx.h"

/* Returns how many threads fit the scratch memory, at most omp_get_max_threads(). The scratch memory begins with
 * `shared` floats; after them each thread needs `each` floats. each = 0: no limit. */
static inline int pb_threads_for(const pb_ctx *ctx, size_t shared, size_t each)
{
    const size_t most = (size_t)omp_get_max_threads();
    const size_t fit = each ? (ctx->scratch_bytes / sizeof(float) - shared) / each : most;
    return (int)(fit < most ? fit : most);
}
#endif
