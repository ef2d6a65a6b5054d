/* uniform.c - seeded random values: the reference, and the pb_op descriptor. */
#include "kernels/uniform/uniform.h"

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

static pb_status fill_ref(pb_ctx *ctx, const void *args)
{
    const pb_uniform_fill_args *a = args;
    (void)ctx;
    for (size_t i = 0; i < a->n; i++) {
        /* 2u - 1 is exact; volatile keeps product and sum from being fused into an FMA */
        const volatile double offset = a->half * (2 * pb_uniform(a->stream, a->first + i) - 1);
        double v = a->centre + offset;
        if (a->as_bf16) v = (double)pb_bf16_to_f32(pb_f32_to_bf16((float)v));
        pb_store(a->w, i, a->dtype, v);
        if (a->master) a->master[i] = (float)pb_load(a->w, i, a->dtype);
    }
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_uniform_fill)

const pb_impl pb_uniform_fill_cpu[] = {PB_FAST_IMPLS(pb_uniform_fill){"ref", fill_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: S*D: number of values; f: index of the first value; m = 1: write master; r: the argument
 * as_bf16; c = 1: centre 1 and half 0.1. */
static const char axes[] = "SDfmrc";
static const pb_dims edge[] = {
    {3, 7, 0, 1, 0, 0},     {1, 1, 5, 0, 0, 1},     {5, 1001, 12345, 1, 1, 1},
    {64, 1024, 0, 0, 1, 0}, {2, 8, 3, 1, 0, 1},     {33, 999, 1, 0, 0, 0},
    {1, 4096, 0, 1, 1, 0},  {70, 1031, 7, 1, 0, 1}, {0},
};
static const pb_dims grid[] = {{1024, 1536, 0, 0, 0, 0}, {8960, 1536, 0, 0, 0, 0}, {0}};
static const pb_dims device_grid[] = {{35840, 4096, 0, 0, 0, 0}, {35840, 4096, 0, 1, 0, 0}, {0}};

static pb_status fill_check(const void *args)
{
    const pb_uniform_fill_args *a = args;
    if (a->n && !a->w) return pb_fail(PB_EINVAL, "uniform_fill: w is NULL");
    if (!isfinite(a->centre) || !isfinite(a->half))
        return pb_fail(PB_EINVAL, "uniform_fill: centre=%g half=%g, need finite numbers", a->centre, a->half);
    return PB_OK;
}

static pb_status fill_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = (size_t)dim[0] * (size_t)dim[1];
    *(pb_uniform_fill_args *)args = (pb_uniform_fill_args){
        .w = pb_out(b, "w", b->dtype, n),
        .master = dim[3] ? pb_out(b, "master", PB_F32, n) : NULL,
        .n = n,
        .stream = 0x9e3779b97f4a7c15u + b->seed,
        .first = (uint64_t)dim[2],
        .centre = dim[5],
        .half = dim[5] ? 0.1 : 0.0346410161513775,
        .as_bf16 = dim[4],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_cost fill_cost(const void *args)
{
    const pb_uniform_fill_args *a = args;
    return (pb_cost){.bytes = (double)a->n * (double)(pb_dtype_size(a->dtype) + (a->master ? 4 : 0))};
}

const pb_op pb_op_uniform_fill = {
    .name = "uniform_fill",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_uniform_fill_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_uniform_fill_args, centre), PB_NUMBER(pb_uniform_fill_args, half), {0}},
    .impls = PB_BOTH_BACKENDS(uniform, fill),
    .check = fill_check,
    .bind = fill_bind,
    .cost = fill_cost,
    .tol = {[PB_F32] = 0, [PB_BF16] = 0},
};
