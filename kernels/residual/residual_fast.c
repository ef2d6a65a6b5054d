/* residual_fast.c - the vectorised product with a vector, forward and backward. Each thread computes whole rows.
 * Limited by memory bandwidth. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/residual/residual.h"

PB_INLINE void fwd_row(const pb_residual_fwd_args *a, size_t row, bool stream, pb_dtype t)
{
    const size_t at = row * a->D;
    int d = 0;
    for (; d + PB_VLEN <= a->D; d += PB_VLEN)
        vf_out(a->y, at + d, t, vf_get(a->x, at + d, t, PB_VLEN) * vf_get(a->s, d, PB_F32, PB_VLEN), PB_VLEN, stream);
    if (d < a->D)
        vf_out(a->y, at + d, t, vf_get(a->x, at + d, t, a->D - d) * vf_get(a->s, d, PB_F32, a->D - d), a->D - d, false);
}

pb_status PB_FAST(pb_residual_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_residual_fwd_args *a = args;
    const size_t row_bytes = a->D * pb_dtype_size(a->dtype);
    const bool stream = a->y != a->x && pb_should_stream(a->y, a->T * row_bytes, row_bytes);
    (void)ctx;
#pragma omp parallel if ((size_t)a->T * a->D > 8192)
    {
#pragma omp for schedule(static)
        for (int r = 0; r < a->T; r++) PB_PER_DTYPE(a->dtype, fwd_row, a, r, stream);
        pb_stream_fence();
    }
    return PB_OK;
}

/* Computes n elements of dx, and adds to ds [D] unless it is NULL. */
PB_INLINE void bwd_step(const pb_residual_bwd_args *a, size_t at, float *ds, int d, int n, bool stream, pb_dtype t)
{
    const vf dy = vf_get(a->dy, at + d, t, n);
    if (ds) vf_put(ds, d, PB_F32, vf_get(ds, d, PB_F32, n) + dy * vf_get(a->x, at + d, t, n), n);
    vf_out(a->dx, at + d, t, dy * vf_get(a->s, d, PB_F32, n), n, stream);
}

PB_INLINE void bwd_row(const pb_residual_bwd_args *a, size_t row, float *ds, bool stream, pb_dtype t)
{
    int d = 0;
    for (; d + PB_VLEN <= a->D; d += PB_VLEN) bwd_step(a, row * a->D, ds, d, PB_VLEN, stream, t);
    if (d < a->D) bwd_step(a, row * a->D, ds, d, a->D - d, false, t);
}

pb_status PB_FAST(pb_residual_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_residual_bwd_args *a = args;
    const size_t row_bytes = a->D * pb_dtype_size(a->dtype), rows = a->T;
    const bool stream = a->dx != a->dy && pb_should_stream(a->dx, rows * row_bytes, row_bytes);
    const int parts = pb_dw_parts(rows);
    float *ds = ctx->scratch;
#pragma omp parallel if (rows * a->D > 8192)
    {
#pragma omp for schedule(static)
        for (int p = 0; p < parts; p++) {
            float *mine = a->ds ? ds + (size_t)p * a->D : NULL;
            if (mine) memset(mine, 0, (size_t)a->D * sizeof *mine);
            for (size_t r = pb_dw_first(rows, parts, p); r < pb_dw_first(rows, parts, p + 1); r++)
                PB_PER_DTYPE(a->dtype, bwd_row, a, r, mine, stream);
        }
        pb_stream_fence();
    }
    if (a->ds) pb_dw_finish(a->ds, ds, parts, a->D, a->accumulate);
    return PB_OK;
}
