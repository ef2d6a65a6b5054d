/* dynmask_keys.c - dynmask_keys: the reference, which counts for each key the keys that rank before it, and the op
 * descriptor. */
#include "kernels/dynmask_keys/dynmask_keys.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/dynmask_keys/plan.h"

/* ---- reference ---------------------------------------------------------------------------------------- */

/* Returns the first position that does not attend to key j, or j if no query attends to it. Its conversation is from ..
 * end - 1. */
static int until_of(const pb_dynmask_keys_build_args *a, const float *bias, int j, int from, int end)
{
    int before = 0; /* keys that rank before j */
    if (bias[j] == -INFINITY) return j;
    for (int i = from; i < j; i++) before += bias[i] >= bias[j];
    if (before >= a->keep) return j;
    for (int i = j + 1; i < end; i++) {
        before += bias[i] > bias[j];
        if (before >= a->keep) return a->exact ? i : j;
    }
    return end;
}

static pb_status build_ref(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_keys_build_args *a = args;
    (void)ctx;
    PB_TRY(pb_dynmask_keys_ranked(a));
    for (size_t r = 0; r < (size_t)a->B * a->K; r++) {
        const float *bias = a->bias + r * a->S;
        const int32_t *start = a->start ? a->start + r / a->K * a->S : NULL;
        int32_t *list = a->list + r * a->L, *until = a->until + r * a->L;
        int n = 0;
        for (int from = 0, end; from < a->S; from = end) {
            end = pb_dynmask_end(start, from, a->S);
            for (int j = from; j < end; j++) {
                const int to = until_of(a, bias, j, from, end);
                if (to > j) list[n] = j, until[n++] = to;
            }
        }
        for (; n < a->L; n++) list[n] = -1, until[n] = 0;
    }
    return PB_OK;
}

/* ---- CPU implementations, best first ------------------------------------------------------------------- */

PB_FAST_DECLARE(pb_dynmask_keys_build)

static size_t build_workspace(const void *args)
{
    return (size_t)omp_get_max_threads() * pb_dynmask_keys_room(args) * sizeof(int32_t);
}

const pb_impl pb_dynmask_keys_build_cpu[] = {
    PB_FAST_IMPLS(pb_dynmask_keys_build, .workspace = build_workspace){"ref", build_ref}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs ------------------------------------- */

enum value_kind { UNIFORM, TIES, HOLES, RISING, FALLING };

/* Axes of the shapes below: w keep, e exact, n conversations of a row (0: start is NULL), t kind of values. */
static const pb_dims edge[] = {
    {1, 9, 1, 3, 1, 0, UNIFORM},     {2, 70, 3, 8, 1, 0, TIES},
    {2, 70, 3, 8, 0, 0, TIES},       {2, 130, 2, 16, 1, 3, TIES},
    {2, 130, 2, 16, 0, 3, TIES},     {1, 90, 2, 20, 1, 0, HOLES},
    {3, 90, 2, 20, 0, 2, HOLES},     {1, 100, 1, 10, 1, 0, RISING},
    {1, 100, 1, 10, 1, 0, FALLING},  {1, 64, 2, 64, 1, 0, UNIFORM},
    {1, 64, 2, 200, 0, 0, TIES},     {2, 50, 1, 1, 1, 4, UNIFORM},
    {1, 1, 1, 1, 0, 0, UNIFORM},     {1, 33, 1, 1, 0, 33, UNIFORM},
    {1, 600, 4, 128, 1, 0, UNIFORM}, {2, 600, 2, 128, 0, 0, UNIFORM},
    {1, 90, 2, 20, 0, 0, HOLES},     {2, 900, 2, 40, 1, 3, TIES},
    {2, 900, 2, 40, 0, 3, TIES},     {1, 1000, 2, 60, 1, 0, RISING},
    {1, 1000, 2, 60, 1, 0, FALLING}, {1, 700, 1, 300, 1, 2, UNIFORM},
    {1, 700, 1, 300, 0, 2, UNIFORM}, {1, 777, 3, 200, 1, 0, HOLES},
    {1, 600, 3, 600, 1, 0, HOLES},   {1, 600, 3, 700, 0, 0, UNIFORM},
    {1, 1100, 2, 20, 1, 9, HOLES},   {0},
};
static const pb_dims grid[] = {{1, 2048, 3, 512, 1, 0, UNIFORM}, {1, 2048, 3, 512, 0, 0, UNIFORM}, {0}};
static const pb_dims device_grid[] = {{1, 8192, 16, 1024, 1, 0, UNIFORM}, {1, 8192, 16, 1024, 0, 0, UNIFORM}, {0}};

static pb_status build_check(const void *args)
{
    const pb_dynmask_keys_build_args *a = args;
    if (a->B < 1 || a->S < 1 || a->K < 1 || a->keep < 1)
        return pb_fail(PB_EINVAL, "dynmask_keys_build: B=%d S=%d K=%d keep=%d, need at least 1", a->B, a->S, a->K,
                       a->keep);
    const int least = a->exact || a->start || a->keep > a->S ? a->S : a->keep;
    if (a->L < least) return pb_fail(PB_EINVAL, "dynmask_keys_build: L=%d, need at least %d", a->L, least);
    return a->bias && a->list && a->until ? PB_OK : pb_fail(PB_EINVAL, "dynmask_keys_build: a tensor is NULL");
}

static float value(enum value_kind kind, int r, int j, double x, double y)
{
    const float tie = (float)(floor(5 * x) - 2);
    switch (kind) {
    case TIES: return tie == 0 && y < 0.5 ? -0.0f : tie;
    case HOLES: return y < 0.5 || r % 3 == 1 ? -INFINITY : tie;
    case RISING: return (float)j;
    case FALLING: return (float)-j;
    default: return (float)(2 * x - 1);
    }
}

static const int32_t *bind_start(pb_binder *b, int B, int S, int n)
{
    int32_t *start = n ? malloc((size_t)B * S * sizeof *start) : NULL;
    if (n && !start) b->status = pb_fail(PB_ENOMEM, "dynmask_keys: no host memory for %d start positions", B * S);
    if (!start) return NULL;
    for (int t = 0; t < B * S; t++) { /* from the second on, conversations of batch row r are shifted by r tokens */
        const int r = t / S, j = t % S, length = (S + n - 1) / n;
        const int begin = j < r ? 0 : (j - r) / length * length + r;
        start[t] = j < r + length ? 0 : begin;
    }
    const int32_t *bound = pb_in_raw(b, "start", start, (size_t)B * S * sizeof *start);
    free(start);
    return bound;
}

static pb_status build_bind(pb_binder *b, const int *dim, void *args)
{
    pb_dynmask_keys_build_args a = {.B = dim[0], .S = dim[1], .K = dim[2], .keep = dim[3], .exact = dim[4]};
    const size_t rows = (size_t)a.B * a.K, n = rows * a.S;
    float *bias = malloc(n * sizeof *bias);
    if (!bias) return pb_fail(PB_ENOMEM, "dynmask_keys: no host memory for %zu biases", n);
    for (size_t i = 0; i < n; i++)
        bias[i] = value((enum value_kind)dim[6], (int)(i / a.S), (int)(i % a.S), pb_uniform(5, 2 * i),
                        pb_uniform(5, 2 * i + 1));
    a.bias = pb_in_raw(b, "bias", bias, n * sizeof *bias);
    free(bias);
    a.start = bind_start(b, a.B, a.S, dim[5]);
    a.L = a.exact || a.start || a.keep > a.S ? a.S : a.keep;
    a.list = pb_out(b, "list", PB_I32, rows * a.L);
    a.until = pb_out(b, "until", PB_I32, rows * a.L);
    *(pb_dynmask_keys_build_args *)args = a;
    return b->status;
}

static pb_cost build_cost(const void *args)
{
    const pb_dynmask_keys_build_args *a = args;
    return (pb_cost){.bytes = 4.0 * a->B * (a->K * ((double)a->S + 2.0 * a->L) + (a->start ? a->S : 0))};
}

const pb_op pb_op_dynmask_keys_build = {
    .name = "dynmask_keys_build",
    .axes = "BSKwent",
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_dynmask_keys_build_args),
    .impls = PB_BOTH_BACKENDS(dynmask_keys, build),
    .check = build_check,
    .bind = build_bind,
    .cost = build_cost,
    .tol = {0}, /* exact: the outputs are integers */
    .f32_only = true,
};
