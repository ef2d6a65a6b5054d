/* cast_fast.c - columns as f32 with vectors, a thread a stretch of rows. Bound: memory. */
#include "kernels/cast/cast.h"
#include "kernels/core/cpu.h"
#include "kernels/core/simd.h"

PB_INLINE void row(float *y, const void *x, size_t at, size_t D, float scale, pb_dtype t)
{
    const vf s = vf_set(scale);
    size_t d = 0;
    for (; d + PB_VLEN <= D; d += PB_VLEN) vf_store(y, d, PB_F32, s * vf_load(x, at + d, t));
    if (d < D) vf_store_n(y, d, PB_F32, s * vf_load_n(x, at + d, t, D - d), D - d);
}

pb_status PB_FAST(pb_cast_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_cast_fwd_args *a = args;
    const size_t D = (size_t)a->D;
    (void)ctx;
#pragma omp parallel for schedule(static) if ((size_t)a->T * D > 1 << 14)
    for (size_t t = 0; t < (size_t)a->T; t++) PB_PER_DTYPE(a->dtype, row, a->y + t * D, a->x, t * a->ldx, D, a->scale);
    return PB_OK;
}
