/* rmsnorm.c - RMSNorm: the references in double precision, and the pb_op descriptors of the two ops. */
#include "kernels/rmsnorm/rmsnorm.h"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static double weight(const float *w, int d) { return w ? (double)w[d] : 1; }

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_fwd_args *a = args;
    (void)ctx;
    for (int t = 0; t < a->T; t++)
        for (int g = 0; g < a->G; g++) {
            size_t x = t * a->ldx + (size_t)g * a->D, y = t * a->ldy + (size_t)g * a->D;
            double sum = 0;
            for (int d = 0; d < a->D; d++) sum += pb_load(a->x, x + d, a->dtype) * pb_load(a->x, x + d, a->dtype);
            double rstd = 1 / sqrt(sum / a->D + (double)a->eps);
            a->rstd[(size_t)t * a->G + g] = (float)rstd;
            for (int d = 0; d < a->D; d++)
                pb_store(a->y, y + d, a->dtype, pb_load(a->x, x + d, a->dtype) * rstd * weight(a->w, d));
        }
    return PB_OK;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_rmsnorm_bwd_args *a = args;
    (void)ctx;
    for (int d = 0; a->dw && d < a->D; d++) { /* before dx, which may overwrite dy */
        double sum = 0;
        for (int t = 0; t < a->T; t++)
            for (int g = 0; g < a->G; g++)
                sum += pb_load(a->dy, t * a->lddy + (size_t)g * a->D + d, a->dtype) *
                       pb_load(a->x, t * a->ldx + (size_t)g * a->D + d, a->dtype) *
                       (double)a->rstd[(size_t)t * a->G + g];
        a->dw[d] = (float)(a->accumulate ? (double)a->dw[d] + sum : sum);
    }
    for (int t = 0; t < a->T; t++)
        for (int g = 0; g < a->G; g++) {
            size_t dy = t * a->lddy + (size_t)g * a->D, x = t * a->ldx + (size_t)g * a->D,
                   dx = t * a->lddx + (size_t)g * a->D;
            double dot = 0, rstd = (double)a->rstd[(size_t)t * a->G + g];
            for (int d = 0; d < a->D; d++)
                dot += pb_load(a->dy, dy + d, a->dtype) * weight(a->w, d) * pb_load(a->x, x + d, a->dtype) * rstd;
            for (int d = 0; d < a->D; d++) {
                double wdy = pb_load(a->dy, dy + d, a->dtype) * weight(a->w, d),
                       xh = pb_load(a->x, x + d, a->dtype) * rstd;
                pb_store(a->dx, dx + d, a->dtype, rstd * (wdy - xh * dot / a->D));
            }
        }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_rmsnorm_fwd)
PB_FAST_DECLARE(pb_rmsnorm_bwd)

static size_t bwd_workspace(const void *args)
{
    const pb_rmsnorm_bwd_args *a = args;
    return pb_dw_workspace((size_t)a->T * a->G, a->D);
}

const pb_impl pb_rmsnorm_fwd_cpu[] = {PB_FAST_IMPLS(pb_rmsnorm_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_rmsnorm_bwd_cpu[] = {PB_FAST_IMPLS(pb_rmsnorm_bwd, .workspace = bwd_workspace){"ref", bwd_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: p: elements of padding between tokens; a = 1: accumulate; f = 1: w is frozen (dw is NULL);
 * f = 2: w is NULL too. */
static const char axes[] = "BSGDpaf";
static const pb_dims edge[] = {
    {2, 3, 1, 7},
    {1, 5, 1, 1000, 0, 1},
    {2, 2, 1, 576, 3},
    {3, 3, 3, 64, 16, 0, 0},
    {2, 2, 6, 128, 256, 1, 0},
    {1, 1, 1, 1, 0, 0, 0},
    {2, 3, 1, 16, 0, 0, 1},
    {2, 70, 1, 40, 0, 0, 0},
    {1, 530, 1, 896},
    {2, 3, 4, 512, 0, 0, 2},
    {1, 5, 1, 1000, 0, 0, 2},
    {2, 3, 2, 7, 5, 0, 2},
    {0},
};
static const pb_dims grid[] = {{1, 256, 1, 576},   {8, 1024, 1, 1536}, {4, 4096, 1, 4096},
                               {4, 1024, 16, 128}, {1, 16, 1, 576},    {0}};
static const pb_dims device_grid[] = {{4, 4096, 1, 4096}, {4, 2048, 1, 1536}, {1, 4096, 64, 512, 0, 0, 2}, {0}};

/* An eps that is large compared with the inputs' mean x^2 of 1/3: if an implementation omits it, y changes by 14 %,
 * beyond the tolerance of bf16. */
static const float bound_eps = 0.1f;

static pb_status fwd_check(const void *args)
{
    const pb_rmsnorm_fwd_args *a = args;
    if (a->T < 0 || a->G < 1 || a->D < 1)
        return pb_fail(PB_EINVAL, "rmsnorm: T=%d G=%d D=%d, need T >= 0 and G, D >= 1", a->T, a->G, a->D);
    if (!(a->eps > 0)) return pb_fail(PB_EINVAL, "rmsnorm: eps=%g, need > 0", (double)a->eps);
    if (a->ldx < (size_t)a->G * a->D || a->ldy < (size_t)a->G * a->D)
        return pb_fail(PB_EINVAL, "rmsnorm: tokens of x and y are %zu and %zu elements apart, need at least G*D = %zu",
                       a->ldx, a->ldy, (size_t)a->G * a->D);
    return PB_OK;
}

static pb_status bwd_check(const void *args)
{
    const pb_rmsnorm_bwd_args *a = args;
    size_t row = (size_t)a->G * a->D;
    if (a->T < 0 || a->G < 1 || a->D < 1)
        return pb_fail(PB_EINVAL, "rmsnorm_bwd: T=%d G=%d D=%d, need T >= 0 and G, D >= 1", a->T, a->G, a->D);
    if (a->lddy < row || a->ldx < row || a->lddx < row)
        return pb_fail(
            PB_EINVAL,
            "rmsnorm_bwd: tokens of dy, x and dx are %zu, %zu and %zu elements apart, need at least G*D = %zu", a->lddy,
            a->ldx, a->lddx, row);
    if (a->dw && !a->w) return pb_fail(PB_EINVAL, "rmsnorm_bwd: dw is given, but w is NULL");
    return PB_OK;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], row = (size_t)dim[2] * dim[3], ld = row + dim[4];
    *(pb_rmsnorm_fwd_args *)args = (pb_rmsnorm_fwd_args){
        .x = pb_in_ld(b, "x", b->dtype, T, row, ld),
        .w = dim[6] == 2 ? NULL : pb_in(b, "w", PB_F32, dim[3]),
        .y = pb_out_ld(b, "y", b->dtype, T, row, ld),
        .rstd = pb_out(b, "rstd", PB_F32, T * dim[2]),
        .T = (int)T,
        .G = dim[2],
        .D = dim[3],
        .ldx = ld,
        .ldy = ld,
        .eps = bound_eps,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], row = (size_t)dim[2] * dim[3], ld = row + dim[4];
    *(pb_rmsnorm_bwd_args *)args = (pb_rmsnorm_bwd_args){
        .dy = pb_in_ld(b, "dy", b->dtype, T, row, ld),
        .x = pb_in_ld(b, "x", b->dtype, T, row, ld),
        .w = dim[6] == 2 ? NULL : pb_in(b, "w", PB_F32, dim[3]),
        .rstd = pb_in_range(b, "rstd", PB_F32, T * dim[2], 1, 2),
        .dx = pb_out_ld(b, "dx", b->dtype, T, row, ld),
        .dw = dim[6]   ? NULL
              : dim[5] ? pb_inout(b, "dw", PB_F32, dim[3], -1, 1)
                       : pb_out(b, "dw", PB_F32, dim[3]),
        .T = (int)T,
        .G = dim[2],
        .D = dim[3],
        .lddy = ld,
        .ldx = ld,
        .lddx = ld,
        .accumulate = dim[5],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_rmsnorm_fwd_args *a = args;
    double rows = (double)a->T * a->G, n = rows * a->D, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 4 * n, .bytes = 2 * n * e + 4 * rows + 4.0 * a->D};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_rmsnorm_bwd_args *a = args;
    double rows = (double)a->T * a->G, n = rows * a->D, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 9 * n, .bytes = 3 * n * e + 4 * rows + 8.0 * a->D};
}

const pb_op pb_op_rmsnorm_fwd = {
    .name = "rmsnorm_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_rmsnorm_fwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_rmsnorm_fwd_args, eps), {0}},
    .impls = PB_BOTH_BACKENDS(rmsnorm, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_rmsnorm_bwd = {
    .name = "rmsnorm_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_rmsnorm_bwd_args),
    .impls = PB_BOTH_BACKENDS(rmsnorm, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_rmsnorm_fwd,
};
