/* topk.c - top-k lists: the reference, which sorts, the pb_op descriptor, and the kinds of rows that its tests use. */
#include "kernels/topk/topk.h"

#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/topk/key.h"
#include "kernels/topk/topk_fast.h"

/* ---- reference in double precision ---------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
static int by_column(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

void pb_topk_row_ref(const float *score, int G, int k, int32_t *pick, uint64_t *room)
{
    int n = 0;
    for (int g = 0; g < G; g++) { /* ascending order puts large scores first, and of equal scores the lowest column */
        const uint32_t key = pb_topk_key(score[g]);
        if (key > PB_TOPK_UNSEEN) room[n++] = (uint64_t)~key << 32 | (uint32_t)g;
    }
    qsort(room, (size_t)n, sizeof *room, by_rank);
    if (n > k) n = k;
    for (int j = 0; j < k; j++) pick[j] = j < n ? (int32_t)(room[j] & 0xffffffffu) : -1;
    qsort(pick, (size_t)n, sizeof *pick, by_column);
}

static size_t fwd_ref_workspace(const void *args)
{
    return (size_t)((const pb_topk_fwd_args *)args)->G * sizeof(uint64_t);
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_topk_fwd_args *a = args;
    for (size_t r = 0; r < (size_t)a->R; r++)
        pb_topk_row_ref(a->score + r * a->G, a->G, a->k, a->pick + r * a->k, ctx->scratch);
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs --------------------------------- */

PB_FAST_DECLARE(pb_topk_fwd)

static size_t fwd_workspace(const void *args) { return pb_topk_fast_workspace(((const pb_topk_fwd_args *)args)->G); }

const pb_impl pb_topk_fwd_cpu[] = {
    PB_FAST_IMPLS(pb_topk_fwd, .workspace = fwd_workspace){"ref", fwd_ref, .workspace = fwd_ref_workspace}, {0}};

/* ---- op descriptor (pb_op): shapes, argument checks, inputs, costs -------------------------------------- */

/* The kinds of rows of scores, selected by axis l of a shape. */
enum row_kind {
    PLAIN,  /* uniform random values */
    TIES,   /* five distinct values, with zeros of both signs */
    HOLES,  /* half of the scores are -inf; every third row has only -inf */
    BROKEN, /* some NaN of both signs and +inf among equal values */
    CAUSAL, /* row r has r visible columns, the others are -inf */
};

static const char axes[] = "RGkl";
static const pb_dims edge[] = {
    {3, 37, 9, PLAIN},
    {7, 1000, 500, TIES},
    {9, 2049, 511, PLAIN},
    {5, 300, 300, TIES},
    {4, 130, 200, HOLES},
    {6, 700, 65, HOLES},
    {5, 515, 64, BROKEN},
    {70, 64, 16, CAUSAL},
    {300, 257, 33, CAUSAL},
    {2, 5000, 1, TIES},
    {1, 1, 1, PLAIN},
    {2, 0, 3, PLAIN},
    {2, 9, 0, PLAIN},
    {3, 10000, 777, TIES},
    {3, 31, 32, PLAIN},
    {2, 4097, 4096, PLAIN},
    {0},
};
static const pb_dims grid[] = {{512, 1024, 256, PLAIN}, {0}};
static const pb_dims device_grid[] = {{8192, 2048, 512, PLAIN}, {4096, 8192, 512, PLAIN}, {0}};

static pb_status fwd_check(const void *args)
{
    const pb_topk_fwd_args *a = args;
    if (a->R < 0 || a->G < 0 || a->k < 0)
        return pb_fail(PB_EINVAL, "topk_fwd: R=%d G=%d k=%d, need R, G, k >= 0", a->R, a->G, a->k);
    if (a->R && a->G && !a->score) return pb_fail(PB_EINVAL, "topk_fwd: score is NULL");
    return a->pick || !a->R || !a->k ? PB_OK : pb_fail(PB_EINVAL, "topk_fwd: pick is NULL");
}

static float value(enum row_kind kind, int r, int g, double x, double y)
{
    const float tie = (float)(floor(5 * x) - 2);
    switch (kind) {
    case TIES: return tie == 0 && y < 0.5 ? -0.0f : tie;
    case HOLES: return y < 0.5 || r % 3 == 1 ? -INFINITY : tie;
    case BROKEN: return y < 0.02 ? -NAN : y < 0.04 ? NAN : y < 0.06 ? INFINITY : tie;
    case CAUSAL: return g < r ? (float)x : -INFINITY;
    default: return (float)(2 * x - 1);
    }
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    pb_topk_fwd_args a = {.R = dim[0], .G = dim[1], .k = dim[2]};
    const size_t n = (size_t)a.R * a.G;
    float *score = calloc(n + 1, sizeof *score);
    if (!score) return pb_fail(PB_ENOMEM, "topk: no host memory for %zu scores", n);
    for (size_t i = 0; i < pb_to_compute(b, n); i++)
        score[i] = value((enum row_kind)dim[3], (int)(i / a.G), (int)(i % a.G), pb_uniform(5, 2 * i),
                         pb_uniform(5, 2 * i + 1));
    a.score = pb_in_raw(b, "score", score, n * sizeof *score);
    free(score);
    a.pick = pb_out(b, "pick", PB_I32, (size_t)a.R * a.k);
    *(pb_topk_fwd_args *)args = a;
    return b->status;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_topk_fwd_args *a = args;
    return (pb_cost){.bytes = 4.0 * a->R * ((double)a->G + a->k)};
}

const pb_op pb_op_topk_fwd = {
    .name = "topk_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_topk_fwd_args),
    .impls = PB_BOTH_BACKENDS(topk, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {0}, /* exact: the output is integers */
    .f32_only = true,
};
