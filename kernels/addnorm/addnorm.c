/* addnorm.c - residual addition and RMSNorm: the references in double precision, and the pb_op descriptors of the
 * forward and the backward op. */
#include "kernels/addnorm/addnorm.h"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_addnorm_fwd_args *a = args;
    (void)ctx;
    for (int t = 0; t < a->T; t++) {
        size_t row = (size_t)t * a->D;
        double sum = 0;
        for (size_t i = row; i < row + a->D; i++)
            pb_store(a->h, i, a->dtype, pb_load(a->x, i, a->dtype) + pb_load(a->r, i, a->dtype));
        for (size_t i = row; i < row + a->D; i++) sum += pb_load(a->h, i, a->dtype) * pb_load(a->h, i, a->dtype);
        double rstd = 1 / sqrt(sum / a->D + (double)a->eps);
        a->rstd[t] = (float)rstd;
        for (int d = 0; d < a->D; d++)
            pb_store(a->y, row + d, a->dtype, pb_load(a->h, row + d, a->dtype) * rstd * (double)a->w[d]);
    }
    return PB_OK;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_addnorm_bwd_args *a = args;
    (void)ctx;
    for (int d = 0; a->dw && d < a->D; d++) { /* before dx, which may overwrite dy */
        double sum = 0;
        for (int t = 0; t < a->T; t++) {
            size_t i = (size_t)t * a->D + d;
            sum += pb_load(a->dy, i, a->dtype) * pb_load(a->h, i, a->dtype) * (double)a->rstd[t];
        }
        a->dw[d] = (float)(a->accumulate ? (double)a->dw[d] + sum : sum);
    }
    for (int t = 0; t < a->T; t++) {
        size_t row = (size_t)t * a->D;
        double dot = 0, rstd = (double)a->rstd[t];
        for (int d = 0; d < a->D; d++)
            dot += pb_load(a->dy, row + d, a->dtype) * (double)a->w[d] * pb_load(a->h, row + d, a->dtype) * rstd;
        for (int d = 0; d < a->D; d++) {
            double wdy = pb_load(a->dy, row + d, a->dtype) * (double)a->w[d],
                   hh = pb_load(a->h, row + d, a->dtype) * rstd;
            pb_store(a->dx, row + d, a->dtype, pb_load(a->dh, row + d, a->dtype) + rstd * (wdy - hh * dot / a->D));
        }
    }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_addnorm_fwd)
PB_FAST_DECLARE(pb_addnorm_bwd)

static size_t bwd_workspace(const void *args)
{
    const pb_addnorm_bwd_args *a = args;
    return pb_dw_workspace(a->T, a->D);
}

const pb_impl pb_addnorm_fwd_cpu[] = {PB_FAST_IMPLS(pb_addnorm_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_addnorm_bwd_cpu[] = {PB_FAST_IMPLS(pb_addnorm_bwd, .workspace = bwd_workspace){"ref", bwd_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: a = 1: dw is added to (accumulate); f = 1: w is frozen, and dw is NULL. */
static const char axes[] = "BSDaf";
static const pb_dims edge[] = {
    {2, 3, 7},   {1, 5, 1000, 1},  {2, 2, 576},   {3, 3, 64, 1}, {1, 1, 1}, {2, 3, 16, 0, 1}, {2, 70, 40, 1},
    {2, 70, 33}, {1, 3, 17, 0, 1}, {1, 530, 896}, /* on a GPU the last shape takes several rows per CTA, four vectors
                                                     per thread and just over 48 KB of shared memory */
    {0},
};
static const pb_dims grid[] = {{1, 256, 576}, {8, 1024, 576}, {8, 1024, 896}, {8, 1024, 1536}, {1, 16, 576}, {0}};
static const pb_dims device_grid[] = {{4, 4096, 4096}, {4, 2048, 1536}, {0}};

static const float bound_eps = 1e-2f; /* large, so that a wrong use of eps shows */

static pb_status check_sizes(const char *op, int T, int D)
{
    return T < 0 || D < 1 ? pb_fail(PB_EINVAL, "%s: T=%d D=%d, need T >= 0 and D >= 1", op, T, D) : PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_addnorm_fwd_args *a = args;
    if (!(a->eps > 0)) return pb_fail(PB_EINVAL, "addnorm: eps=%g, need > 0", (double)a->eps);
    return check_sizes("addnorm", a->T, a->D);
}

static pb_status bwd_check(const void *args)
{
    const pb_addnorm_bwd_args *a = args;
    return check_sizes("addnorm_bwd", a->T, a->D);
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], n = T * dim[2];
    *(pb_addnorm_fwd_args *)args = (pb_addnorm_fwd_args){
        .x = pb_in(b, "x", b->dtype, n),
        .r = pb_in(b, "r", b->dtype, n),
        .w = pb_in(b, "w", PB_F32, dim[2]),
        .h = pb_out(b, "h", b->dtype, n),
        .y = pb_out(b, "y", b->dtype, n),
        .rstd = pb_out(b, "rstd", PB_F32, T),
        .T = (int)T,
        .D = dim[2],
        .eps = bound_eps,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], n = T * dim[2];
    *(pb_addnorm_bwd_args *)args = (pb_addnorm_bwd_args){
        .dy = pb_in(b, "dy", b->dtype, n),
        .dh = pb_in(b, "dh", b->dtype, n),
        .h = pb_in(b, "h", b->dtype, n),
        .w = pb_in(b, "w", PB_F32, dim[2]),
        .rstd = pb_in_range(b, "rstd", PB_F32, T, 1, 2),
        .dx = pb_out(b, "dx", b->dtype, n),
        .dw = dim[4]   ? NULL
              : dim[3] ? pb_inout(b, "dw", PB_F32, dim[2], -1, 1)
                       : pb_out(b, "dw", PB_F32, dim[2]),
        .T = (int)T,
        .D = dim[2],
        .accumulate = dim[3],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_addnorm_fwd_args *a = args;
    double n = (double)a->T * a->D, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 5 * n, .bytes = 4 * n * e + 4.0 * a->T + 4.0 * a->D};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_addnorm_bwd_args *a = args;
    double n = (double)a->T * a->D, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 10 * n, .bytes = 4 * n * e + 4.0 * a->T + 8.0 * a->D};
}

const pb_op pb_op_addnorm_fwd = {
    .name = "addnorm_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_addnorm_fwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_addnorm_fwd_args, eps), {0}},
    .impls = PB_BOTH_BACKENDS(addnorm, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_addnorm_bwd = {
    .name = "addnorm_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_addnorm_bwd_args),
    .impls = PB_BOTH_BACKENDS(addnorm, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_addnorm_fwd,
};
