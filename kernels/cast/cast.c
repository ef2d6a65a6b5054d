/* cast.c - conversion of columns to f32: the references, and the pb_op descriptors of the two ops. */
#include "kernels/cast/cast.h"

#include <math.h>

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_cast_fwd_args *a = args;
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->T; t++)
        for (size_t d = 0; d < (size_t)a->D; d++)
            a->y[t * a->D + d] = (float)((double)a->scale * pb_load(a->x, t * a->ldx + d, a->dtype));
    return PB_OK;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_cast_bwd_args *a = args;
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->T; t++)
        for (size_t d = 0; d < (size_t)a->D; d++)
            pb_store(a->dx, t * a->lddx + d, a->dtype, (double)a->scale * (double)a->dy[t * a->D + d]);
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_cast_fwd)
PB_FAST_DECLARE(pb_cast_bwd)

const pb_impl pb_cast_fwd_cpu[] = {PB_FAST_IMPLS(pb_cast_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_cast_bwd_cpu[] = {PB_FAST_IMPLS(pb_cast_bwd){"ref", bwd_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axis g of the shapes below: elements in the gap between two rows. */
static const char axes[] = "BSDg";
static const pb_dims edge[] = {{2, 3, 7, 0}, {1, 5, 64, 9}, {1, 1, 1, 0}, {3, 67, 33, 1}, {1, 300, 16, 2048}, {0}};
static const pb_dims grid[] = {{1, 4096, 64, 512}, {1, 64, 192}, {0}};
static const pb_dims device_grid[] = {{1, 1 << 20, 64}, {0}}; /* as many gradients as a large bucket has */

static pb_status check_args(int T, int D, size_t ld, float scale, const void *from, const void *to)
{
    if (T < 0 || D < 1 || ld < (size_t)D)
        return pb_fail(PB_EINVAL, "cast: T=%d D=%d and rows %zu apart, need T >= 0, D >= 1 and rows at least D apart",
                       T, D, ld);
    if (!isfinite(scale)) return pb_fail(PB_EINVAL, "cast: scale=%g, need a finite number", (double)scale);
    return T && (!from || !to) ? pb_fail(PB_EINVAL, "cast: a tensor is NULL") : PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_cast_fwd_args *a = args;
    return check_args(a->T, a->D, a->ldx, a->scale, a->x, a->y);
}

static pb_status bwd_check(const void *args)
{
    const pb_cast_bwd_args *a = args;
    return check_args(a->T, a->D, a->lddx, a->scale, a->dy, a->dx);
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], D = (size_t)dim[2], ldx = D + dim[3];
    *(pb_cast_fwd_args *)args = (pb_cast_fwd_args){.x = pb_in_ld(b, "x", b->dtype, T, D, ldx),
                                                   .y = pb_out(b, "y", PB_F32, T * D),
                                                   .T = (int)T,
                                                   .D = dim[2],
                                                   .ldx = ldx,
                                                   .scale = 0.3f,
                                                   .dtype = b->dtype};
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], D = (size_t)dim[2], lddx = D + dim[3];
    *(pb_cast_bwd_args *)args = (pb_cast_bwd_args){.dy = pb_in(b, "dy", PB_F32, T * D),
                                                   .dx = pb_out_ld(b, "dx", b->dtype, T, D, lddx),
                                                   .T = (int)T,
                                                   .D = dim[2],
                                                   .lddx = lddx,
                                                   .scale = 0.3f,
                                                   .dtype = b->dtype};
    return b->status;
}

static pb_cost cost(int T, int D, pb_dtype t)
{
    const double n = (double)T * D;
    return (pb_cost){.flops = n, .bytes = n * (double)(pb_dtype_size(t) + sizeof(float))};
}

static pb_cost fwd_cost(const void *args)
{
    const pb_cast_fwd_args *a = args;
    return cost(a->T, a->D, a->dtype);
}

static pb_cost bwd_cost(const void *args)
{
    const pb_cast_bwd_args *a = args;
    return cost(a->T, a->D, a->dtype);
}

const pb_op pb_op_cast_fwd = {
    .name = "cast_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_cast_fwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_cast_fwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(cast, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-7, [PB_BF16] = 1e-7},
};

const pb_op pb_op_cast_bwd = {
    .name = "cast_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_cast_bwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_cast_bwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(cast, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-7, [PB_BF16] = 3e-3},
    .grad_of = &pb_op_cast_fwd,
};
