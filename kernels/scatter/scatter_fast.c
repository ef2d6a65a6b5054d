/* scatter_fast.c - computes y[idx[s],:] += x with SIMD. A thread owns STRETCH rows of y and reads all of idx, so every
 * row is summed in the order of idx. Limited by the caches: 8 D bytes per added row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/scatter/scatter.h"

enum { STRETCH = 64 };

pb_status PB_FAST(pb_scatter_add)(pb_ctx *ctx, const void *args)
{
    const pb_scatter_add_args *a = args;
    const size_t D = (size_t)a->D;
    (void)ctx;
#pragma omp parallel for schedule(static)
    for (int first = 0; first < a->R; first += STRETCH) {
        const int end = a->R - first < STRETCH ? a->R : first + STRETCH;
        for (int s = 0; s < a->S; s++) {
            if (a->idx[s] < first || a->idx[s] >= end) continue;
            float *y = a->y + (size_t)a->idx[s] * D;
#pragma omp simd
            for (size_t d = 0; d < D; d++) y[d] += a->x[d];
        }
    }
    return PB_OK;
}
