/* gradient_fast.c - the vectorised sum of gradients; threads take chunks. Limited by memory bandwidth. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/gradient/gradient.h"

enum { CHUNK = 16384 };

PB_INLINE void add_range(float *y, const float *x, size_t i, size_t end)
{
    for (; i + PB_VLEN <= end; i += PB_VLEN) vf_store(y, i, PB_F32, vf_load(y, i, PB_F32) + vf_load(x, i, PB_F32));
    for (; i < end; i++) y[i] += x[i];
}

pb_status PB_FAST(pb_gradient_add)(pb_ctx *ctx, const void *args)
{
    const pb_gradient_add_args *a = args;
    (void)ctx;
#pragma omp parallel for schedule(static) if (a->n > CHUNK)
    for (size_t i = 0; i < a->n; i += CHUNK) {
        const size_t end = a->n - i < CHUNK ? a->n : i + CHUNK;
        if (a->add) add_range(a->y, a->x, i, end);
        else memcpy(a->y + i, a->x + i, (end - i) * sizeof *a->y);
    }
    return PB_OK;
}
