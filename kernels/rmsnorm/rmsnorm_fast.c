/* rmsnorm_fast.c - vectorised RMSNorm; each thread computes whole rows. Limited by memory bandwidth. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rmsnorm/rmsnorm_rows.h"

pb_status PB_FAST(pb_rmsnorm_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_fwd_args *a = args;
    const pb_dtype t = a->dtype;
    const size_t rows = (size_t)a->T * a->G, e = pb_dtype_size(t), n = rows * a->D;
    const bool stream = a->y != a->x && pb_should_stream(a->y, n * e, (a->ldy | (size_t)a->D) * e);
    (void)ctx;
#pragma omp parallel if (n > 8192)
    {
#pragma omp for schedule(static)
        for (size_t r = 0; r < rows; r++) {
            size_t g = r % a->G * a->D, token = r / a->G;
            norm_fwd_row row = {.x = pb_at(a->x, token * a->ldx + g, t),
                                .w = a->w,
                                .y = pb_at(a->y, token * a->ldy + g, t),
                                .D = a->D,
                                .eps = a->eps,
                                .stream_y = stream};
            a->rstd[r] = PB_PER_DTYPE(t, norm_fwd, &row);
        }
        pb_stream_fence();
    }
    return PB_OK;
}

static inline void bwd_row(const pb_rmsnorm_bwd_args *a, size_t r, float *dw, bool stream)
{
    const pb_dtype t = a->dtype;
    const size_t g = r % a->G * a->D, token = r / a->G;
    norm_bwd_row row = {.dy = pb_at(a->dy, token * a->lddy + g, t),
                        .x = pb_at(a->x, token * a->ldx + g, t),
                        .w = a->w,
                        .dx = pb_at(a->dx, token * a->lddx + g, t),
                        .dw = dw,
                        .rstd = a->rstd[r],
                        .D = a->D,
                        .stream = stream};
    PB_PER_DTYPE(t, norm_bwd, &row);
}

pb_status PB_FAST(pb_rmsnorm_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_bwd_args *a = args;
    const size_t rows = (size_t)a->T * a->G, e = pb_dtype_size(a->dtype), n = rows * a->D;
    const bool stream = a->dx != a->dy && pb_should_stream(a->dx, n * e, (a->lddx | (size_t)a->D) * e);
    const int parts = pb_dw_parts(rows);
    float *dw = ctx->scratch;
#pragma omp parallel if (n > 8192)
    {
#pragma omp for schedule(static)
        for (int p = 0; p < parts; p++) {
            float *mine = a->dw ? dw + (size_t)p * a->D : NULL;
            if (mine) memset(mine, 0, (size_t)a->D * sizeof *mine);
            for (size_t r = pb_dw_first(rows, parts, p); r < pb_dw_first(rows, parts, p + 1); r++)
                bwd_row(a, r, mine, stream);
        }
        pb_stream_fence();
    }
    if (a->dw) pb_dw_finish(a->dw, dw, parts, a->D, a->accumulate);
    return PB_OK;
}
