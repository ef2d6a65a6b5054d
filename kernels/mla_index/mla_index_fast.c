/* mla_index_fast.c - builds the list of keys that each token attends to, on the CPU. The tokens are divided
 * among the threads. Limit: memory bandwidth. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/mla_index/mla_index.h"

pb_status PB_FAST(pb_mla_index_build)(pb_ctx *ctx, const void *args)
{
    const pb_mla_index_build_args *a = args;
    const size_t tokens = (size_t)a->B * a->S;
    (void)ctx;
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < tokens; t++) {
        const int32_t *pick = a->pick ? a->pick + t * a->T : NULL, start = a->start ? a->start[t] : 0;
        const int i = a->offset + (int)(t % a->S);
        for (int w = 0; w < a->W; w++) a->idx[t * a->W + w] = pb_mla_index_slot(a, pick, start, i, w);
    }
    return PB_OK;
}
