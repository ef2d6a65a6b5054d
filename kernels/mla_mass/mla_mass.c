/* mla_mass.c - the reference in double, and the descriptor. */
#include "kernels/mla_mass/mla_mass.h"

#include <omp.h>
#include <stdlib.h>

#include "kernels/core/cpu.h"
#include "kernels/mla_mass/problem.h"

/* ---- reference ------------------------------------------------------------------------------------------ */

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

/* ---- implementations ------------------------------------------------------------------------------------ */

PB_FAST_DECLARE(pb_mla_mass_fwd)

static size_t fwd_workspace(const void *args)
{
    return (size_t)omp_get_max_threads() * pb_mla_mass_tiles(((const pb_mla_mass_fwd_args *)args)->D) * sizeof(float);
}

const pb_impl pb_mla_mass_fwd_cpu[] = {PB_FAST_IMPLS(pb_mla_mass_fwd, .workspace = fwd_workspace){"ref", fwd_ref}, {0}};

/* ---- descriptor ----------------------------------------------------------------------------------------- */

/* K: rows of kv; f: first slot; n: slots. */
static const char axes[] = "BSKHDWfn";
static const pb_dims edge[] = {
    {2, 3, 37, 3, 16, 13, 4, 9},
    {1, 5, 160, 8, 512, 64, 0, 64},
    {2, 4, 67, 8, 512, 50, 11, 37},
    {1, 3, 200, 16, 512, 130, 30, 97},
    {1, 2, 131, 64, 512, 97, 1, 95},
    {1, 2, 70, 128, 512, 40, 5, 33},
    {1, 3, 90, 64, 576, 70, 0, 33},
    {2, 9, 20, 5, 24, 7, 2, 3},
    {1, 3, 1, 2, 8, 4, 0, 4},
    {2, 2, 50, 4, 7, 9, 8, 1},
    {1, 4, 30, 2, 16, 5, 4, 1},
    {1, 20, 95, 65, 40, 40, 8, 32},
    {0},
};
static const pb_dims grid[] = {{1, 128, 256, 16, 512, 128, 64, 64}, {0}};
static const pb_dims device_grid[] = {{1, 4096, 5120, 64, 512, 640, 128, 512}, {0}};

static pb_status fwd_check(const void *args)
{
    const pb_mla_mass_fwd_args *a = args;
    if (a->B < 1 || a->S < 1 || a->S_kv < 1 || a->H < 1 || a->D < 1)
        return pb_fail(PB_EINVAL, "mla_mass_fwd: B=%d S=%d S_kv=%d H=%d D=%d, need at least 1", a->B, a->S, a->S_kv,
                       a->H, a->D);
    if (a->from < 0 || a->n < 0 || a->n > a->W - a->from)
        return pb_fail(PB_EINVAL, "mla_mass_fwd: slots %d and %d more of W=%d", a->from, a->n, a->W);
    if (!isfinite(a->scale)) return pb_fail(PB_EINVAL, "mla_mass_fwd: scale=%g", (double)a->scale);
    if (!a->q || !a->kv || !a->idx || !a->lse || (!a->mass && a->n))
        return pb_fail(PB_EINVAL, "mla_mass_fwd: a tensor is NULL");
    return PB_OK;
}

/* Random rows, a fifth of the slots masked; the last row of kv is never named. */
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
        b->status = pb_fail(PB_ENOMEM, "mla_mass: no memory for %zu indices", n);
    }
    free(idx);
    return bound;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const double unit = sqrt(3); /* of variance 1, as normalised q and kv are */
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

/* What must not be read; and a head that saw nothing, where there are several. */
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
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_mla_mass_fwd_args),
    .impls = PB_BOTH_BACKENDS(mla_mass, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 2e-6, [PB_BF16] = 5e-6}, /* exponents of size 10 in f32 */
};
