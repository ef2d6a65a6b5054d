/* mla_mass.c - the attention mass of listed keys (their weights, summed over the heads): the reference in double
 * precision, and the pb_op descriptor. */
#include "kernels/mla_mass/mla_mass.h"

#include <omp.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/mla_mass/problem.h"

/* ---- reference in double precision ---------------------------------------------------------------------- */

static double dot(const void *x, size_t at, const void *y, size_t to, int n, pb_dtype t)
{
    double sum = 0;
    for (int d = 0; d < n; d++) sum += pb_load(x, at + d, t) * pb_load(y, to + d, t);
    return sum;
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla_mass_fwd_args *a = args;
    (void)ctx;
    for (size_t t = 0; t < (size_t)a->B * a->S; t++)
        for (int j = 0; j < a->n; j++) {
            const int32_t r = a->idx[t * a->W + a->from + j];
            const size_t row = (t / a->S * a->S_kv + (size_t)(r < 0 ? 0 : r)) * a->D;
            double sum = 0;
            for (size_t h = t * a->H; r >= 0 && r < a->S_kv && h < (t + 1) * a->H; h++)
                if (a->lse[h] != -INFINITY)
                    sum += exp((double)a->scale * dot(a->q, h * a->D, a->kv, row, a->D, a->dtype) - (double)a->lse[h]);
            a->mass[t * a->n + j] = (float)sum;
        }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs --------------------------------- */

PB_FAST_DECLARE(pb_mla_mass_fwd)

static size_t fwd_workspace(const void *args)
{
    return (size_t)omp_get_max_threads() * pb_mla_mass_tiles(((const pb_mla_mass_fwd_args *)args)->D) * sizeof(float);
}

const pb_impl pb_mla_mass_fwd_cpu[] = {PB_FAST_IMPLS(pb_mla_mass_fwd, .workspace = fwd_workspace){"ref", fwd_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs -------------------------------------- */

static const char axes[] = "BSKHDWfn";
/* One shape in the tables below: a pb_dims whose numbers have names, in the order of `axes`. */
typedef struct shape {
    int B, S, S_kv, H, D, W, from, n; /* the masses of slots from .. from + n - 1 are computed */
    int unused[2];
} shape;
_Static_assert(sizeof(shape) == sizeof(pb_dims), "a shape is a pb_dims with names");
static const shape edge[] = {
    {.B = 2, .S = 3, .S_kv = 37, .H = 3, .D = 16, .W = 13, .from = 4, .n = 9},
    {.B = 1, .S = 5, .S_kv = 160, .H = 8, .D = 512, .W = 64, .n = 64},
    {.B = 2, .S = 4, .S_kv = 67, .H = 8, .D = 512, .W = 50, .from = 11, .n = 37},
    {.B = 1, .S = 3, .S_kv = 200, .H = 16, .D = 512, .W = 130, .from = 30, .n = 97},
    {.B = 1, .S = 2, .S_kv = 131, .H = 64, .D = 512, .W = 97, .from = 1, .n = 95},
    {.B = 1, .S = 2, .S_kv = 70, .H = 128, .D = 512, .W = 40, .from = 5, .n = 33},
    {.B = 1, .S = 3, .S_kv = 90, .H = 64, .D = 576, .W = 70, .n = 33},
    {.B = 2, .S = 9, .S_kv = 20, .H = 5, .D = 24, .W = 7, .from = 2, .n = 3},
    {.B = 1, .S = 3, .S_kv = 1, .H = 2, .D = 8, .W = 4, .n = 4},
    {.B = 2, .S = 2, .S_kv = 50, .H = 4, .D = 7, .W = 9, .from = 8, .n = 1},
    {.B = 1, .S = 4, .S_kv = 30, .H = 2, .D = 16, .W = 5, .from = 4, .n = 1},
    {.B = 1, .S = 20, .S_kv = 95, .H = 65, .D = 40, .W = 40, .from = 8, .n = 32},
    {0},
};
static const shape grid[] = {
    {.B = 1, .S = 128, .S_kv = 256, .H = 16, .D = 512, .W = 128, .from = 64, .n = 64},
    {0},
};
static const shape device_grid[] = {
    {.B = 1, .S = 4096, .S_kv = 5120, .H = 64, .D = 512, .W = 640, .from = 128, .n = 512},
    {0},
};

static pb_status fwd_check(const void *args)
{
    const pb_mla_mass_fwd_args *a = args;
    if (a->B < 1 || a->S < 1 || a->S_kv < 1 || a->H < 1 || a->D < 1)
        return pb_fail(PB_EINVAL, "mla_mass_fwd: B=%d S=%d S_kv=%d H=%d D=%d, need at least 1", a->B, a->S, a->S_kv,
                       a->H, a->D);
    if (a->from < 0 || a->n < 0 || a->n > a->W - a->from)
        return pb_fail(PB_EINVAL, "mla_mass_fwd: from=%d n=%d, need a range of slots within W=%d", a->from, a->n, a->W);
    if (!isfinite(a->scale))
        return pb_fail(PB_EINVAL, "mla_mass_fwd: scale=%g, need a finite number", (double)a->scale);
    if (!a->q || !a->kv || !a->idx || !a->lse || (!a->mass && a->n))
        return pb_fail(PB_EINVAL, "mla_mass_fwd: a tensor is NULL");
    return PB_OK;
}

/* Makes key lists of random rows with a fifth of the slots masked. The last row of kv is in no list. */
static const int32_t *bind_lists(pb_binder *b, const pb_mla_mass_fwd_args *a)
{
    const size_t n = (size_t)a->B * a->S * a->W;
    int32_t *idx = malloc(n * sizeof *idx + 1);
    const int32_t *bound = NULL;
    if (idx) {
        for (size_t i = 0; i < n; i++) {
            const int32_t row = (int32_t)(pb_uniform(5, i) * (a->S_kv - 1));
            idx[i] = pb_uniform(6, i) > 0.2 && a->S_kv > 1 ? row : i % 2 ? -1 : a->S_kv;
        }
        bound = pb_in_raw(b, "idx", idx, n * sizeof *idx);
    } else if (b->status == PB_OK) {
        b->status = pb_fail(PB_ENOMEM, "mla_mass: no host memory for %zu indices", n);
    }
    free(idx);
    return bound;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const double unit = sqrt(3); /* values in [-unit, unit) have variance 1, as normalised q and kv have */
    pb_mla_mass_fwd_args a = {.B = dim[0], .S = dim[1], .S_kv = dim[2], .H = dim[3], .D = dim[4], .W = dim[5]};
    const size_t heads = (size_t)a.B * a.S * a.H;
    a.from = dim[6], a.n = dim[7], a.dtype = b->dtype, a.scale = 1 / sqrtf((float)a.D);
    a.q = pb_in_range(b, "q", a.dtype, heads * a.D, -unit, unit);
    a.kv = pb_in_range(b, "kv", a.dtype, (size_t)a.B * a.S_kv * a.D, -unit, unit);
    a.idx = bind_lists(b, &a);
    a.lse = pb_in_range(b, "lse", PB_F32, heads, 2, 5);
    a.mass = pb_out(b, "mass", PB_F32, (size_t)a.B * a.S * a.n);
    *(pb_mla_mass_fwd_args *)args = a;
    return b->status;
}

/* Fills the row of kv that is in no list with NaN and infinity, which must not be read. With more than two heads, sets
 * the lse of head 1 in batch row 0 to -inf, the lse of a query without visible keys. */
static pb_status fwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_mla_mass_fwd_args *a = args;
    (void)cpu;
    for (int b = 0; b < a->B; b++)
        for (int d = 0; d < a->D; d++)
            pb_store((void *)a->kv, (((size_t)b + 1) * a->S_kv - 1) * a->D + d, a->dtype,
                     (double)(d % 2 ? NAN : INFINITY));
    for (int h = 0; a->H > 2 && h < a->S; h++) ((float *)a->lse)[(size_t)h * a->H + 1] = -INFINITY;
    return PB_OK;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_mla_mass_fwd_args *a = args;
    const double slots = (double)a->B * a->S * a->n, heads = (double)a->B * a->S * a->H;
    return (pb_cost){.flops = 2.0 * a->H * a->D * slots,
                     .bytes = (double)pb_dtype_size(a->dtype) * a->D * (heads + (double)a->B * a->S_kv) + 4 * heads +
                              8 * slots};
}

const pb_op pb_op_mla_mass_fwd = {
    .name = "mla_mass_fwd",
    .axes = axes,
    .edge = (const pb_dims *)edge,
    .grid = (const pb_dims *)grid,
    .device_grid = (const pb_dims *)device_grid,
    .args_size = sizeof(pb_mla_mass_fwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_mla_mass_fwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(mla_mass, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 2e-6, [PB_BF16] = 5e-6}, /* f32 rounds exponents of magnitude 10 by up to 5e-7 */
};
