/* cast_fast.c - vectorised conversion of columns to f32; each thread converts a range of consecutive rows. Limited by
 * memory bandwidth. */
#include "kernels/cast/cast.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

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

PB_INLINE void row_back(void *dx, const float *dy, size_t at, size_t D, float scale, pb_dtype t)
{
    const vf s = vf_set(scale);
    size_t d = 0;
    for (; d + PB_VLEN <= D; d += PB_VLEN) vf_store(dx, at + d, t, s * vf_load(dy, d, PB_F32));
    if (d < D) vf_store_n(dx, at + d, t, s * vf_load_n(dy, d, PB_F32, D - d), D - d);
}

pb_status PB_FAST(pb_cast_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_cast_bwd_args *a = args;
    const size_t D = (size_t)a->D;
    (void)ctx;
#pragma omp parallel for schedule(static) if ((size_t)a->T * D > 1 << 14)
    for (size_t t = 0; t < (size_t)a->T; t++)
        PB_PER_DTYPE(a->dtype, row_back, a->dx, a->dy + t * D, t * a->lddx, D, a->scale);
    return PB_OK;
}
