/* rmsnorm_fast.c - RMSNorm with vectors: each thread owns whole rows; a row stays in the first-level
 * cache between its two passes, so that memory is read once. Bound: memory. */
#include <math.h>
#include <string.h>

#include "kernels/core/cpu.h"
#include "kernels/core/rows.h"
#include "kernels/core/simd.h"
#include "kernels/rmsnorm/rmsnorm.h"

static inline float sum_of_squares(const void *x, size_t at, int D, pb_dtype t)
{
    vf s0 = {0}, s1 = {0};
    int d = 0;
    for (; d + 2 * PB_VLEN <= D; d += 2 * PB_VLEN) {
        vf a = vf_load(x, at + d, t), b = vf_load(x, at + d + PB_VLEN, t);
        s0 += a * a;
        s1 += b * b;
    }
    for (; d < D; d += PB_VLEN) {
        vf a = vf_load_n(x, at + d, t, D - d < PB_VLEN ? D - d : PB_VLEN);
        s0 += a * a;
    }
    return vf_sum(s0 + s1);
}

pb_status PB_FAST(pb_rmsnorm_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_fwd_args *a = args;
    const pb_dtype t = a->dtype;
    const int D = a->D;
    const size_t rows = (size_t)a->T * a->G;
    (void)ctx;
#pragma omp parallel for schedule(static) if (rows * D > 8192)
    for (size_t r = 0; r < rows; r++) {
        size_t g = r % a->G * D, x = r / a->G * a->ldx + g, y = r / a->G * a->ldy + g;
        float rstd = 1 / sqrtf(sum_of_squares(a->x, x, D, t) / (float)D + a->eps);
        int d = 0;
        a->rstd[r] = rstd;
        for (; d + PB_VLEN <= D; d += PB_VLEN)
            vf_store(a->y, y + d, t, vf_load(a->x, x + d, t) * rstd * vf_load(a->w, d, PB_F32));
        if (d < D) {
            int n = D - d;
            vf_store_n(a->y, y + d, t, vf_load_n(a->x, x + d, t, n) * rstd * vf_load_n(a->w, d, PB_F32, n), n);
        }
    }
    return PB_OK;
}

/* One row: dx, and dy*xh added to dw when there is one. */
static inline void bwd_row(const pb_rmsnorm_bwd_args *a, size_t r, float *dw)
{
    const pb_dtype t = a->dtype;
    const int D = a->D;
    const size_t g = r % a->G * D, row = r / a->G, dy = row * a->lddy + g, x = row * a->ldx + g, dx = row * a->lddx + g;
    const float rstd = a->rstd[r];
    vf dot = {0};
    for (int d = 0; d < D; d += PB_VLEN) {
        int n = D - d < PB_VLEN ? D - d : PB_VLEN;
        vf g_ = n == PB_VLEN ? vf_load(a->dy, dy + d, t) : vf_load_n(a->dy, dy + d, t, n);
        vf xh = (n == PB_VLEN ? vf_load(a->x, x + d, t) : vf_load_n(a->x, x + d, t, n)) * rstd;
        vf w = n == PB_VLEN ? vf_load(a->w, d, PB_F32) : vf_load_n(a->w, d, PB_F32, n);
        dot += g_ * w * xh;
        if (!dw) continue;
        if (n == PB_VLEN) vf_store(dw, d, PB_F32, vf_load(dw, d, PB_F32) + g_ * xh);
        else vf_store_n(dw, d, PB_F32, vf_load_n(dw, d, PB_F32, n) + g_ * xh, n);
    }
    const float c = vf_sum(dot) / (float)D;
    for (int d = 0; d < D; d += PB_VLEN) {
        int n = D - d < PB_VLEN ? D - d : PB_VLEN;
        if (n == PB_VLEN)
            vf_store(a->dx, dx + d, t,
                     (vf_load(a->dy, dy + d, t) * vf_load(a->w, d, PB_F32) - vf_load(a->x, x + d, t) * rstd * c) *
                         rstd);
        else
            vf_store_n(a->dx, dx + d, t,
                       (vf_load_n(a->dy, dy + d, t, n) * vf_load_n(a->w, d, PB_F32, n) -
                        vf_load_n(a->x, x + d, t, n) * rstd * c) *
                           rstd,
                       n);
    }
}

pb_status PB_FAST(pb_rmsnorm_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_bwd_args *a = args;
    const size_t rows = (size_t)a->T * a->G;
    const int parts = pb_dw_parts(rows);
    float *dw = ctx->scratch;
#pragma omp parallel for schedule(static) if (rows * a->D > 8192)
    for (int p = 0; p < parts; p++) {
        float *mine = a->dw ? dw + (size_t)p * a->D : NULL;
        if (mine) memset(mine, 0, (size_t)a->D * sizeof *mine);
        for (size_t r = pb_dw_first(rows, parts, p); r < pb_dw_first(rows, parts, p + 1); r++) bwd_row(a, r, mine);
    }
    if (a->dw) pb_dw_finish(a->dw, dw, parts, a->D, a->accumulate);
    return PB_OK;
}
