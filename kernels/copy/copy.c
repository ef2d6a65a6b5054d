/* copy.c - copies rows on a CPU: the reference, the implementation with memcpy, and the pb_op descriptor. */
#include "kernels/copy/copy.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

/* The row of y that gets row t of x. */
static size_t target(const pb_copy_rows_args *a, size_t t)
{
    const size_t block = a->block ? (size_t)a->block : (size_t)a->T, last = (size_t)a->T / block - 1;
    return a->reversed ? (last - t / block) * block + t % block : t;
}

static pb_status copy_ref(pb_ctx *ctx, const void *args)
{
    const pb_copy_rows_args *a = args;
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->T; t++)
        for (size_t d = 0; d < (size_t)a->D; d++)
            pb_store(a->y, target(a, t) * a->ldy + d, a->dtype, a->x ? pb_load(a->x, t * a->ldx + d, a->dtype) : 0);
    return PB_OK;
}

static pb_status copy_memcpy(pb_ctx *ctx, const void *args)
{
    const pb_copy_rows_args *a = args;
    const size_t e = pb_dtype_size(a->dtype), bytes = (size_t)a->D * e;
    (void)ctx;
#pragma omp parallel for schedule(static) if ((size_t)a->T * bytes > 32768)
    for (size_t t = 0; t < (size_t)a->T; t++) {
        unsigned char *y = (unsigned char *)a->y + target(a, t) * a->ldy * e;
        if (a->x) memcpy(y, (const unsigned char *)a->x + t * a->ldx * e, bytes);
        else memset(y, 0, bytes);
    }
    return PB_OK;
}

const pb_impl pb_copy_rows_cpu[] = {{"memcpy", copy_memcpy}, {"ref", copy_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ----------------------------- */

/* Axes: n: rows per block (0: one block); r = 1: blocks are reversed; p: gap between rows, in elements; z = 1:
 * zeros. */
static const char axes[] = "BSDnrpz";
static const pb_dims edge[] = {
    {1, 12, 7, 3, 1, 1}, {2, 8, 64, 4, 1, 8},    {1, 5, 33, 0, 0, 3},      {1, 1, 1}, {3, 40, 16, 8, 1},
    {1, 6, 24, 2, 0, 0}, {1, 9, 40, 3, 1, 8, 1}, {2, 300, 256, 100, 1, 8}, {0}};
static const pb_dims grid[] = {{1, 2048, 256, 0, 0, 640}, {1, 2048, 256, 512, 1, 0}, {0}};
static const pb_dims device_grid[] = {{1, 32768, 512, 0, 0, 3072}, {1, 32768, 2048, 8192, 1, 0}, {0}};

static pb_status copy_check(const void *args)
{
    const pb_copy_rows_args *a = args;
    if (a->T < 0 || a->D < 1) return pb_fail(PB_EINVAL, "copy_rows: T=%d D=%d, need T >= 0 and D >= 1", a->T, a->D);
    if (a->block < 0 || (a->block && a->T % a->block))
        return pb_fail(PB_EINVAL, "copy_rows: block=%d, need 0 or a divisor of T=%d", a->block, a->T);
    if (a->T > 0 && !a->y) return pb_fail(PB_EINVAL, "copy_rows: y is NULL");
    if ((a->x && a->ldx < (size_t)a->D) || a->ldy < (size_t)a->D)
        return pb_fail(PB_EINVAL, "copy_rows: rows are %zu and %zu elements apart, need at least D=%d", a->ldx, a->ldy,
                       a->D);
    return PB_OK;
}

static pb_status copy_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], D = (size_t)dim[2], p = (size_t)dim[5];
    *(pb_copy_rows_args *)args = (pb_copy_rows_args){
        .x = dim[6] ? NULL : pb_in_ld(b, "x", b->dtype, T, D, D + p),
        .y = pb_out_ld(b, "y", b->dtype, T, D, D + 2 * p),
        .T = (int)T,
        .D = dim[2],
        .block = dim[3] && T % (size_t)dim[3] == 0 ? dim[3] : 0, /* a sweep over sizes has other T */
        .ldx = D + p,
        .ldy = D + 2 * p,
        .reversed = dim[4],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_cost copy_cost(const void *args)
{
    const pb_copy_rows_args *a = args;
    return (pb_cost){.bytes = (a->x ? 2.0 : 1.0) * a->T * a->D * (double)pb_dtype_size(a->dtype)};
}

const pb_op pb_op_copy_rows = {
    .name = "copy_rows",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_copy_rows_args),
    .impls = PB_BOTH_BACKENDS(copy, rows),
    .check = copy_check,
    .bind = copy_bind,
    .cost = copy_cost,
    .tol = {[PB_F32] = 0, [PB_BF16] = 0},
};
