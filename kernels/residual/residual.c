/* residual.c - the residual stream times a learned vector: the references in double precision, and the pb_op
 * descriptors of the forward and the backward op. */
#include "kernels/residual/residual.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_residual_fwd_args *a = args;
    (void)ctx;
    for (size_t i = 0; i < (size_t)a->T * a->D; i++)
        pb_store(a->y, i, a->dtype, (double)a->s[i % a->D] * pb_load(a->x, i, a->dtype));
    return PB_OK;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_residual_bwd_args *a = args;
    (void)ctx;
    for (int d = 0; a->ds && d < a->D; d++) { /* before dx, which may overwrite dy */
        double sum = 0;
        for (int t = 0; t < a->T; t++) {
            const size_t i = (size_t)t * a->D + d;
            sum += pb_load(a->dy, i, a->dtype) * pb_load(a->x, i, a->dtype);
        }
        a->ds[d] = (float)(a->accumulate ? (double)a->ds[d] + sum : sum);
    }
    for (size_t i = 0; i < (size_t)a->T * a->D; i++)
        pb_store(a->dx, i, a->dtype, (double)a->s[i % a->D] * pb_load(a->dy, i, a->dtype));
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_residual_fwd)
PB_FAST_DECLARE(pb_residual_bwd)

static size_t bwd_workspace(const void *args)
{
    const pb_residual_bwd_args *a = args;
    return a->ds ? pb_dw_workspace(a->T, a->D) : 0;
}

const pb_impl pb_residual_fwd_cpu[] = {PB_FAST_IMPLS(pb_residual_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_residual_bwd_cpu[] = {PB_FAST_IMPLS(pb_residual_bwd, .workspace = bwd_workspace){"ref", bwd_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: a = 1: ds is added to (accumulate); f = 1: s is frozen, and ds is NULL. */
static const char axes[] = "BSDaf";
static const pb_dims edge[] = {
    {2, 3, 7},   {1, 5, 1000, 1},  {3, 3, 64, 1},    {1, 1, 1}, {2, 3, 16, 0, 1}, {2, 70, 40, 1},
    {2, 70, 33}, {1, 3, 17, 0, 1}, {1, 700, 264, 1}, /* on a GPU several runs of rows, whose sums are added */
    {0}};
static const pb_dims grid[] = {{1, 256, 576}, {8, 1024, 768}, {0}};
static const pb_dims device_grid[] = {{4, 4096, 4096}, {0}};

static pb_status check_sizes(const char *op, int T, int D)
{
    return T < 0 || D < 1 ? pb_fail(PB_EINVAL, "%s: T=%d D=%d, need T >= 0 and D >= 1", op, T, D) : PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_residual_fwd_args *a = args;
    return check_sizes("residual_fwd", a->T, a->D);
}

static pb_status bwd_check(const void *args)
{
    const pb_residual_bwd_args *a = args;
    return check_sizes("residual_bwd", a->T, a->D);
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], n = T * dim[2];
    *(pb_residual_fwd_args *)args = (pb_residual_fwd_args){
        .x = pb_in(b, "x", b->dtype, n),
        .s = pb_in(b, "s", PB_F32, dim[2]),
        .y = pb_out(b, "y", b->dtype, n),
        .T = (int)T,
        .D = dim[2],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], n = T * dim[2];
    *(pb_residual_bwd_args *)args = (pb_residual_bwd_args){
        .dy = pb_in(b, "dy", b->dtype, n),
        .x = pb_in(b, "x", b->dtype, n),
        .s = pb_in(b, "s", PB_F32, dim[2]),
        .dx = pb_out(b, "dx", b->dtype, n),
        .ds = dim[4]   ? NULL
              : dim[3] ? pb_inout(b, "ds", PB_F32, dim[2], -1, 1)
                       : pb_out(b, "ds", PB_F32, dim[2]),
        .T = (int)T,
        .D = dim[2],
        .accumulate = dim[3],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_residual_fwd_args *a = args;
    const double n = (double)a->T * a->D;
    return (pb_cost){.flops = n, .bytes = 2 * n * (double)pb_dtype_size(a->dtype) + 4.0 * a->D};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_residual_bwd_args *a = args;
    const double n = (double)a->T * a->D, e = (double)pb_dtype_size(a->dtype);
    return a->ds ? (pb_cost){.flops = 3 * n, .bytes = 3 * n * e + 8.0 * a->D}
                 : (pb_cost){.flops = n, .bytes = 2 * n * e + 4.0 * a->D};
}

const pb_op pb_op_residual_fwd = {
    .name = "residual_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_residual_fwd_args),
    .impls = PB_BOTH_BACKENDS(residual, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_residual_bwd = {
    .name = "residual_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_residual_bwd_args),
    .impls = PB_BOTH_BACKENDS(residual, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_residual_fwd,
};
