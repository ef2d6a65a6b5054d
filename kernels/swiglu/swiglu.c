/* swiglu.c - SwiGLU: the references in double precision, and the pb_op descriptors of the two ops. */
#include "kernels/swiglu/swiglu.h"

#include <math.h>

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_swiglu_fwd_args *a = args;
    (void)ctx;
    for (int t = 0; t < a->T; t++)
        for (int i = 0; i < a->I; i++) {
            size_t row = (size_t)t * a->I;
            double gate = pb_load(a->gu, 2 * row + i, a->dtype), up = pb_load(a->gu, 2 * row + a->I + i, a->dtype);
            pb_store(a->y, row + i, a->dtype, gate * sigmoid(gate) * up);
        }
    return PB_OK;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_swiglu_bwd_args *a = args;
    (void)ctx;
    for (int t = 0; t < a->T; t++)
        for (int i = 0; i < a->I; i++) {
            size_t row = (size_t)t * a->I, g = 2 * row + i, u = g + a->I;
            double gate = pb_load(a->gu, g, a->dtype), up = pb_load(a->gu, u, a->dtype),
                   dy = pb_load(a->dy, row + i, a->dtype), s = sigmoid(gate);
            pb_store(a->dgu, g, a->dtype, dy * up * s * (1 + gate * (1 - s)));
            pb_store(a->dgu, u, a->dtype, dy * gate * s);
            if (a->y) pb_store(a->y, row + i, a->dtype, gate * s * up);
        }
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_swiglu_fwd)
PB_FAST_DECLARE(pb_swiglu_bwd)

const pb_impl pb_swiglu_fwd_cpu[] = {PB_FAST_IMPLS(pb_swiglu_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_swiglu_bwd_cpu[] = {PB_FAST_IMPLS(pb_swiglu_bwd){"ref", bwd_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axis y of the shapes below: 1: the backward pass also writes the activation. */
static const char axes[] = "BSIy";
static const pb_dims edge[] = {
    {2, 3, 7, 1}, {1, 5, 1000}, {2, 2, 1536, 1}, {3, 3, 64}, {1, 1, 1, 1}, {2, 70, 33, 0}, {1, 130, 96, 1}, {0},
};
static const pb_dims grid[] = {
    {1, 256, 1536, 1},
    {8, 1024, 1536, 1},
    {4, 1024, 4864, 1},
    {2, 1024, 8960, 1},
    {2, 1024, 8960, 0},
    {1, 16, 1536, 1},
    {0},
};
static const pb_dims device_grid[] = {{2, 4096, 8960, 1}, {0}};

static pb_status check_sizes(const char *op, int T, int I)
{
    return T < 0 || I < 1 ? pb_fail(PB_EINVAL, "%s: T=%d I=%d, need T >= 0 and I >= 1", op, T, I) : PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_swiglu_fwd_args *a = args;
    return check_sizes("swiglu", a->T, a->I);
}

static pb_status bwd_check(const void *args)
{
    const pb_swiglu_bwd_args *a = args;
    return check_sizes("swiglu_bwd", a->T, a->I);
}

/* The range [-8,8) is wide enough to saturate the sigmoid on both sides. */
static const void *bind_gu(pb_binder *b, size_t n) { return pb_in_range(b, "gu", b->dtype, n, -8, 8); }

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], n = T * dim[2];
    *(pb_swiglu_fwd_args *)args = (pb_swiglu_fwd_args){
        .gu = bind_gu(b, 2 * n), .y = pb_out(b, "y", b->dtype, n), .T = (int)T, .I = dim[2], .dtype = b->dtype};
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    size_t T = (size_t)dim[0] * dim[1], n = T * dim[2];
    *(pb_swiglu_bwd_args *)args = (pb_swiglu_bwd_args){
        .dy = pb_in(b, "dy", b->dtype, n),
        .gu = bind_gu(b, 2 * n),
        .dgu = pb_out(b, "dgu", b->dtype, 2 * n),
        .y = dim[3] ? pb_out(b, "y", b->dtype, n) : NULL,
        .T = (int)T,
        .I = dim[2],
        .dtype = b->dtype,
    };
    return b->status;
}

/* An exponential and a division count as one operation each. */
static pb_cost fwd_cost(const void *args)
{
    const pb_swiglu_fwd_args *a = args;
    double n = (double)a->T * a->I, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = 5 * n, .bytes = 3 * n * e};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_swiglu_bwd_args *a = args;
    double n = (double)a->T * a->I, e = (double)pb_dtype_size(a->dtype);
    return (pb_cost){.flops = (a->y ? 12 : 11) * n, .bytes = (a->y ? 6 : 5) * n * e};
}

const pb_op pb_op_swiglu_fwd = {
    .name = "swiglu_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_swiglu_fwd_args),
    .impls = PB_BOTH_BACKENDS(swiglu, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_swiglu_bwd = {
    .name = "swiglu_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_swiglu_bwd_args),
    .impls = PB_BOTH_BACKENDS(swiglu, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_swiglu_fwd,
};
