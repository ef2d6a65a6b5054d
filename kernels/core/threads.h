/* threads.h - how many threads of OpenMP the scratch has room for. */
#ifndef PB_THREADS_H
#define PB_THREADS_H
#include <omp.h>

#include "kernels/core/ctx.h"

/* As many threads as the scratch has tiles of `each` floats for behind its first `shared` ones. `each` may be 0. */
static inline int pb_threads_for(const pb_ctx *ctx, size_t shared, size_t each)
{
    const size_t most = (size_t)omp_get_max_threads();
    const size_t fit = each ? (ctx->scratch_bytes / sizeof(float) - shared) / each : most;
    return (int)(fit < most ? fit : most);
}
#endif
