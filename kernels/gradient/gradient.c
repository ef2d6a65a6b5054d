/* gradient.c - gradient_add: the reference, and the pb_op descriptor. */
#include "kernels/gradient/gradient.h"

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static pb_status add_ref(pb_ctx *ctx, const void *args)
{
    const pb_gradient_add_args *a = args;
    (void)ctx;
    for (size_t i = 0; i < a->n; i++) a->y[i] = (float)((a->add ? (double)a->y[i] : 0) + (double)a->x[i]);
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_gradient_add)

const pb_impl pb_gradient_add_cpu[] = {PB_FAST_IMPLS(pb_gradient_add){"ref", add_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: S times D is the number of elements; a = 1: add. */
static const pb_dims edge[] = {{1, 7, 0}, {1, 7, 1}, {1, 1, 1}, {3, 341, 1}, {5, 1001, 0}, {1, 300000, 1}, {0}};
static const pb_dims grid[] = {{49152, 576, 1}, {0}};
static const pb_dims device_grid[] = {{125000, 1024, 1}, {0}};

static pb_status add_check(const void *args)
{
    const pb_gradient_add_args *a = args;
    return (a->x && a->y) || !a->n ? PB_OK : pb_fail(PB_EINVAL, "gradient_add: a tensor is NULL");
}

static pb_status add_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = (size_t)dim[0] * dim[1];
    pb_gradient_add_args a = {.x = pb_in(b, "x", PB_F32, n), .n = n, .add = dim[2]};
    a.y = a.add ? pb_inout(b, "y", PB_F32, n, -1, 1) : pb_out(b, "y", PB_F32, n);
    *(pb_gradient_add_args *)args = a;
    return b->status;
}

static pb_cost add_cost(const void *args)
{
    const pb_gradient_add_args *a = args;
    return (pb_cost){.flops = a->add ? (double)a->n : 0, .bytes = (a->add ? 12 : 8) * (double)a->n};
}

const pb_op pb_op_gradient_add = {
    .name = "gradient_add",
    .axes = "SDa",
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_gradient_add_args),
    .impls = PB_BOTH_BACKENDS(gradient, add),
    .check = add_check,
    .bind = add_bind,
    .cost = add_cost,
    .tol = {[PB_F32] = 0}, /* exact: a sum of two f32 in double rounds to the f32 sum */
    .f32_only = true,
};
