/* addnorm_fast.c - vectorised residual addition and RMSNorm; each thread computes whole rows. Limited by memory
 * bandwidth. */
#include "kernels/addnorm/addnorm.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/rmsnorm/rmsnorm_rows.h"

pb_status PB_FAST(pb_addnorm_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_addnorm_fwd_args *a = args;
    const pb_dtype t = a->dtype;
    const size_t rows = a->T, row_bytes = a->D * pb_dtype_size(t), bytes = rows * row_bytes;
    const bool stream_h = a->h != a->x && a->h != a->r && pb_should_stream(a->h, bytes, row_bytes);
    const bool stream_y = pb_should_stream(a->y, bytes, row_bytes);
    (void)ctx;
#pragma omp parallel if (rows * a->D > 8192)
    {
#pragma omp for schedule(static)
        for (size_t i = 0; i < rows; i++) {
            size_t at = i * a->D;
            norm_fwd_row row = {.x = pb_at(a->x, at, t),
                                .r = pb_at(a->r, at, t),
                                .w = a->w,
                                .h = pb_at(a->h, at, t),
                                .y = pb_at(a->y, at, t),
                                .D = a->D,
                                .eps = a->eps,
                                .stream_h = stream_h,
                                .stream_y = stream_y};
            a->rstd[i] = PB_PER_DTYPE(t, norm_fwd, &row);
        }
        pb_stream_fence();
    }
    return PB_OK;
}

static inline void bwd_row(const pb_addnorm_bwd_args *a, size_t i, float *dw, bool stream)
{
    const pb_dtype t = a->dtype;
    const size_t at = i * a->D;
    norm_bwd_row row = {.dy = pb_at(a->dy, at, t),
                        .x = pb_at(a->h, at, t),
                        .dres = pb_at(a->dh, at, t),
                        .w = a->w,
                        .dx = pb_at(a->dx, at, t),
                        .dw = dw,
                        .rstd = a->rstd[i],
                        .D = a->D,
                        .stream = stream};
    PB_PER_DTYPE(t, norm_bwd, &row);
}

pb_status PB_FAST(pb_addnorm_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_addnorm_bwd_args *a = args;
    const size_t rows = a->T, row_bytes = a->D * pb_dtype_size(a->dtype);
    const bool stream = a->dx != a->dy && a->dx != a->dh && pb_should_stream(a->dx, rows * row_bytes, row_bytes);
    const int parts = pb_dw_parts(rows);
    float *dw = ctx->scratch;
#pragma omp parallel if (rows * a->D > 8192)
    {
#pragma omp for schedule(static)
        for (int p = 0; p < parts; p++) {
            float *mine = a->dw ? dw + (size_t)p * a->D : NULL;
            if (mine) memset(mine, 0, (size_t)a->D * sizeof *mine);
            for (size_t i = pb_dw_first(rows, parts, p); i < pb_dw_first(rows, parts, p + 1); i++)
                bwd_row(a, i, mine, stream);
        }
        pb_stream_fence();
    }
    if (a->dw) pb_dw_finish(a->dw, dw, parts, a->D, a->accumulate);
    return PB_OK;
}
