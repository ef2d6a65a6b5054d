/* kv_qat.c - FP8 quantise-dequantise: the pb_op descriptor, and the reference, which rounds with its own formula in
 * double. */
#include "kernels/kv_qat/kv_qat.h"

#include <math.h>

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------- */

/* Returns the nearest E4M3 value, ties to even. |v| must be at most 448. */
static double e4m3(double v)
{
    int e;
    (void)frexp(v, &e); /* |v| is in [2^(e-1), 2^e) */
    const double step = ldexp(1, (e - 1 > -6 ? e - 1 : -6) - 3);
    return rint(v / step) * step;
}

/* Returns the scale of a block. It is computed in f32, because kv_qat.h defines it so. */
static float scale_of(float amax, pb_qat_scale kind)
{
    const float t = amax * (1.0f / 448.0f);
    int e;
    if (kind == PB_QAT_F32) return t;
    const float m = frexpf(t, &e); /* t = m 2^e with m in [1/2, 1) */
    return ldexpf(1, m > 0.5f ? e : e - 1);
}

static void block_ref(const pb_kv_qat_fwd_args *a, size_t x, size_t y)
{
    float amax = 1e-4f;
    bool finite = true;
    for (int i = 0; i < a->block; i++) {
        const float v = (float)pb_load(a->x, x + i, a->dtype);
        amax = fmaxf(amax, fabsf(v));
        finite = finite && isfinite(v);
    }
    const float s = finite ? scale_of(amax, a->scale) : NAN;
    for (int i = 0; i < a->block; i++) {
        const float v = (float)pb_load(a->x, x + i, a->dtype) / s;
        const double q = finite ? e4m3(fmin(fmax((double)v, -448), 448)) : (double)NAN;
        pb_store(a->y, y + i, a->dtype, q * (double)s);
    }
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_kv_qat_fwd_args *a = args;
    const size_t e = pb_dtype_size(a->dtype);
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->T; t++) {
        const size_t x = t * a->ldx, y = t * a->ldy, n = (size_t)(a->D - a->R);
        for (size_t i = 0; i < n; i += (size_t)a->block) block_ref(a, x + i, y + i);
        memcpy((char *)a->y + (y + n) * e, (const char *)a->x + (x + n) * e, (size_t)a->R * e);
    }
    return PB_OK;
}

/* ---- CPU implementations, best first --------------------------------------------------------- */

PB_FAST_DECLARE(pb_kv_qat_fwd)

const pb_impl pb_kv_qat_fwd_cpu[] = {PB_FAST_IMPLS(pb_kv_qat_fwd){"ref", fwd_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ---------------------------- */

/* Axes of the shapes below: b: block size; p: padding between rows, in elements; f: 1: PB_QAT_F32, 0: PB_QAT_UE8M0. */
static const char axes[] = "BSDRbpf";
static const pb_dims edge[] = {
    {2, 3, 512, 64, 64},  {1, 5, 128, 0, 128, 0, 1}, {2, 3, 96, 32, 64, 8, 0}, {3, 3, 512, 64, 64, 16, 1},
    {2, 4, 40, 8, 16, 3}, {1, 7, 13, 6, 7, 1, 1},    {2, 2, 64, 64, 64},       {1, 2, 1, 0, 1, 0, 0},
    {1, 3, 68, 4, 64},    {1, 2, 1024, 0, 512},      {1, 9, 200, 8, 96, 8},    {0},
};
static const pb_dims grid[] = {
    {1, 4096, 512, 64, 64}, {1, 4096, 512, 64, 64, 0, 1}, {64, 1024, 128, 0, 128}, {1, 16, 512, 64, 64}, {0}};
static const pb_dims device_grid[] = {{1, 65536, 512, 64, 64}, {0}};

static size_t bytes_of(const pb_kv_qat_fwd_args *a, size_t ld)
{
    return a->T ? (((size_t)a->T - 1) * ld + (size_t)a->D) * pb_dtype_size(a->dtype) : 0;
}

static pb_status fwd_check(const void *args)
{
    const pb_kv_qat_fwd_args *a = args;
    const uintptr_t x = (uintptr_t)a->x, y = (uintptr_t)a->y;
    if (a->T < 0 || a->D < 1 || a->R < 0 || a->R > a->D || a->block < 1 || (a->D - a->R) % a->block)
        return pb_fail(
            PB_EINVAL,
            "kv_qat: T=%d D=%d R=%d block=%d, need T >= 0, D, block >= 1, 0 <= R <= D and block to divide D - R", a->T,
            a->D, a->R, a->block);
    if (a->ldx < (size_t)a->D || a->ldy < (size_t)a->D)
        return pb_fail(PB_EINVAL, "kv_qat: rows of x and y are %zu and %zu elements apart, need at least D = %d",
                       a->ldx, a->ldy, a->D);
    if (a->scale != PB_QAT_UE8M0 && a->scale != PB_QAT_F32)
        return pb_fail(PB_EINVAL, "kv_qat: scale=%d is neither UE8M0 nor f32", (int)a->scale);
    if (a->T && (!a->x || !a->y)) return pb_fail(PB_EINVAL, "kv_qat: a tensor is NULL");
    if (x < y + bytes_of(a, a->ldy) && y < x + bytes_of(a, a->ldx))
        return pb_fail(PB_EINVAL, "kv_qat: y overlaps x, but the op must not change x");
    return PB_OK;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], D = (size_t)dim[2], p = (size_t)dim[5];
    *(pb_kv_qat_fwd_args *)args = (pb_kv_qat_fwd_args){
        .x = pb_in_ld(b, "x", b->dtype, T, D, D + p),
        .y = pb_out_ld(b, "y", b->dtype, T, D, D + 2 * p),
        .T = (int)T,
        .D = dim[2],
        .R = dim[3],
        .block = dim[4],
        .ldx = D + p,
        .ldy = D + 2 * p,
        .scale = dim[6] ? PB_QAT_F32 : PB_QAT_UE8M0,
        .dtype = b->dtype,
    };
    return b->status;
}

/* Scales the input so that blocks have many magnitudes: all zeros, below the minimum of amax, and up to 2^20. Within a
 * block elements are scaled down by up to 2^-11, so that E4M3 subnormals occur. */
static pb_status fwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_kv_qat_fwd_args *a = args;
    (void)cpu;
    for (size_t t = 0; t < (size_t)a->T; t++)
        for (int i = 0; i < a->D; i++) {
            const size_t at = t * a->ldx + (size_t)i;
            const int k = (int)((t * 7 + (size_t)(i / a->block) * 3) % 10);
            const double v = pb_load(a->x, at, a->dtype);
            pb_store((void *)a->x, at, a->dtype, k == 9 ? 0 : ldexp(v, 5 * k - 20 - i % 12));
        }
    return PB_OK;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_kv_qat_fwd_args *a = args;
    return (pb_cost){.bytes = 2.0 * a->T * a->D * (double)pb_dtype_size(a->dtype)};
}

const pb_op pb_op_kv_qat_fwd = {
    .name = "kv_qat_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_kv_qat_fwd_args),
    .impls = PB_BOTH_BACKENDS(kv_qat, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = {0}, /* bit-identical to the reference */
};
