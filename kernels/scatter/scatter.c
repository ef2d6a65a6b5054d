/* scatter.c - scatter_add, which computes y[idx[s],:] += x for every s: the reference, and the pb_op descriptor. */
#include "kernels/scatter/scatter.h"

#include <stdlib.h>

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static size_t ref_workspace(const void *args)
{
    const pb_scatter_add_args *a = args;
    return (size_t)a->R * sizeof(double);
}

/* Counts how often idx names each row of y, and adds x times this count to the row. */
static pb_status add_ref(pb_ctx *ctx, const void *args)
{
    const pb_scatter_add_args *a = args;
    double *times = ctx->scratch;
    for (int r = 0; r < a->R; r++) times[r] = 0;
    for (int s = 0; s < a->S; s++)
        if (a->idx[s] >= 0 && a->idx[s] < a->R) times[a->idx[s]]++;
    for (size_t r = 0; r < (size_t)a->R; r++)
        for (size_t d = 0; d < (size_t)a->D; d++) {
            float *y = a->y + r * a->D + d;
            *y = (float)((double)*y + times[r] * (double)a->x[d]);
        }
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_scatter_add)

const pb_impl pb_scatter_add_cpu[] = {PB_FAST_IMPLS(pb_scatter_add){"ref", add_ref, .workspace = ref_workspace}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: S: number of additions; R: rows of y; D: elements per row. */
static const char axes[] = "SRD";
static const pb_dims edge[] = {{5, 3, 7},        {40, 1, 4},    {1000, 13, 512}, {333, 50, 576}, {64, 64, 130},
                               {2000, 700, 516}, {17, 9, 1028}, {1, 5, 1},       {300, 4, 64},   {0}};
static const pb_dims grid[] = {{65536, 4096, 512}, {65536, 4096, 128}, {0}};
static const pb_dims device_grid[] = {{1048576, 8192, 512}, {0}};

static pb_status add_check(const void *args)
{
    const pb_scatter_add_args *a = args;
    if (a->S < 0 || a->R < 0 || a->D < 1)
        return pb_fail(PB_EINVAL, "scatter_add: S=%d R=%d D=%d, need S, R >= 0 and D >= 1", a->S, a->R, a->D);
    if (!a->x || (a->S && !a->idx) || (a->R && !a->y)) return pb_fail(PB_EINVAL, "scatter_add: a tensor is NULL");
    return PB_OK;
}

static pb_status add_bind(pb_binder *b, const int *dim, void *args)
{
    pb_scatter_add_args a = {.S = dim[0], .R = dim[1], .D = dim[2]};
    a.x = pb_in(b, "x", PB_F32, a.D);
    a.idx = pb_in_range(b, "idx", PB_I32, a.S, -2, a.R + 2);
    a.y = pb_inout(b, "y", PB_F32, (size_t)a.R * a.D, -1, 1);
    *(pb_scatter_add_args *)args = a;
    return b->status;
}

static pb_cost add_cost(const void *args)
{
    const pb_scatter_add_args *a = args;
    return (pb_cost){.flops = (double)a->S * a->D, .bytes = 4.0 * a->S + 4.0 * a->D + 8.0 * a->R * a->D};
}

const pb_op pb_op_scatter_add = {
    .name = "scatter_add",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_scatter_add_args),
    .impls = PB_BOTH_BACKENDS(scatter, add),
    .check = add_check,
    .bind = add_bind,
    .cost = add_cost,
    .tol = {[PB_F32] = 1e-6},
    .f32_only = true,
};
