/* indexer_kl.c - the indexer's loss and gradient: the reference in double precision, and the pb_op descriptors. */
#include "kernels/indexer_kl/indexer_kl.h"

#include <stdlib.h>

#include "kernels/cpu/cpu.h"

/* ---- reference in double precision ---------------------------------------------------------------------- */

/* The inputs of one query, and sums over its listed slots (those with pick >= 0). */
typedef struct query {
    const float *score, *mass;
    const int32_t *pick;
    int K;
    double log_sum, mass_sum; /* ln sum e^score, and sum mass, over the listed slots */
    bool counts;              /* false: the loss and gradient are 0, because no slot is listed or mass_sum is 0 */
} query;

static query query_of(const float *score, const float *mass, const int32_t *pick, int K, size_t r)
{
    query q = {score + r * K, mass + r * K, pick + r * K, K, 0, 0, false};
    bool any = false;
    double top = (double)-INFINITY, sum = 0;
    for (int j = 0; j < K; j++)
        if (q.pick[j] >= 0) {
            const double s = (double)q.score[j];
            any = true;
            q.mass_sum += (double)q.mass[j];
            if (!(s <= top)) top = s;
        }
    for (int j = 0; j < K; j++)
        if (q.pick[j] >= 0) sum += exp((double)q.score[j] - top);
    q.log_sum = top + (sum == 0 ? (double)-INFINITY : log(sum)); /* 0 if no slot is listed */
    q.counts = any && !(q.mass_sum == 0);
    return q;
}
static double target(const query *q, int j) { return (double)q->mass[j] / q->mass_sum; }
static double log_p(const query *q, int j) { return (double)q->score[j] - q->log_sum; }
static double clip(double x) { return x < -100 ? -100 : x; }

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_indexer_kl_fwd_args *a = args;
    double loss = 0;
    (void)ctx;
    for (size_t r = 0; r < (size_t)a->R; r++) {
        const query q = query_of(a->score, a->mass, a->pick, a->K, r);
        for (int j = 0; q.counts && j < a->K; j++) {
            if (q.pick[j] < 0) continue;
            const double y = target(&q, j);
            if (!(y == 0)) loss += y * (clip(log(y)) - clip(log_p(&q, j)));
        }
    }
    *a->loss = (float)loss;
    return PB_OK;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_indexer_kl_bwd_args *a = args;
    const double scale = a->scale ? (double)*a->scale : 1;
    (void)ctx;
    for (size_t r = 0; r < (size_t)a->R; r++) {
        const query q = query_of(a->score, a->mass, a->pick, a->K, r);
        double unclipped_target = 0; /* target mass of the slots that are not clipped */
        for (int j = 0; q.counts && j < a->K; j++)
            if (q.pick[j] >= 0 && !(log_p(&q, j) < -100)) unclipped_target += target(&q, j);
        for (int j = 0; j < a->K; j++) {
            const size_t at = r * a->K + j;
            if (!q.counts || q.pick[j] < 0) {
                a->dscore[at] = 0;
                continue;
            }
            const double lp = log_p(&q, j);
            a->dscore[at] = (float)(scale * (exp(lp) * unclipped_target - (lp < -100 ? 0 : target(&q, j))));
        }
    }
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs --------------------------------- */

PB_FAST_DECLARE(pb_indexer_kl_fwd)
PB_FAST_DECLARE(pb_indexer_kl_bwd)

static size_t fwd_workspace(const void *args) { return ((const pb_indexer_kl_fwd_args *)args)->R * sizeof(double); }

const pb_impl pb_indexer_kl_fwd_cpu[] = {PB_FAST_IMPLS(pb_indexer_kl_fwd, .workspace = fwd_workspace){"ref", fwd_ref},
                                         {0}};
const pb_impl pb_indexer_kl_bwd_cpu[] = {PB_FAST_IMPLS(pb_indexer_kl_bwd){"ref", bwd_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ------------------------------------- */

/* The kinds of queries, axis l. */
enum kind {
    FULL, /* every slot has a group */
    /* every fifth slot and the last ones are -1 (early queries have few groups); their score and mass are NaN */
    HOLES,
    NOTHING, /* every third query has no group, every third no mass */
    FAR,     /* scores so far apart that some logarithms are clipped; some masses are 0 */
};
static const char axes[] = "RKl";
static const pb_dims edge[] = {{7, 20, FULL}, {5, 513, HOLES}, {9, 64, NOTHING}, {6, 100, FAR},  {300, 3, HOLES},
                               {1, 1, FULL},  {3, 0, FULL},    {2, 1500, FAR},   {65, 33, FULL}, {0}};
static const pb_dims grid[] = {{1024, 128, FULL}, {0}};
static const pb_dims device_grid[] = {{8192, 512, FULL}, {0}};

static pb_status check(const char *op, int R, int K, const float *score, const float *mass, const int32_t *pick)
{
    if (R < 0 || K < 0) return pb_fail(PB_EINVAL, "%s: R=%d K=%d, need R, K >= 0", op, R, K);
    if (R && K && (!score || !mass || !pick)) return pb_fail(PB_EINVAL, "%s: score, mass or pick is NULL", op);
    return PB_OK;
}
static pb_status fwd_check(const void *args)
{
    const pb_indexer_kl_fwd_args *a = args;
    PB_TRY(check("indexer_kl_fwd", a->R, a->K, a->score, a->mass, a->pick));
    return a->loss ? PB_OK : pb_fail(PB_EINVAL, "indexer_kl_fwd: loss is NULL");
}
static pb_status bwd_check(const void *args)
{
    const pb_indexer_kl_bwd_args *a = args;
    PB_TRY(check("indexer_kl_bwd", a->R, a->K, a->score, a->mass, a->pick));
    return a->dscore || !a->R || !a->K ? PB_OK : pb_fail(PB_EINVAL, "indexer_kl_bwd: dscore is NULL");
}

static bool masked(enum kind kind, int r, int j, int K)
{
    return (kind == HOLES && (j % 5 == 3 || j >= K - r % K)) || (kind == NOTHING && r % 3 == 1);
}
/* Returns the mass of slot j of query r: NaN if the op must not read it. */
static float mass_of(enum kind kind, int r, int j, int K, double x)
{
    if (masked(kind, r, j, K)) return NAN;
    if (kind == NOTHING && r % 3 == 2) return 0;
    return (float)(kind == FAR && x < 0.3 ? 0 : x);
}

typedef struct bound {
    const float *score, *mass;
    const int32_t *pick;
} bound;

static bound bind(pb_binder *b, const int *dim)
{
    const int K = dim[1];
    const enum kind kind = (enum kind)dim[2];
    const size_t n = (size_t)dim[0] * K;
    int32_t *pick = malloc(n * sizeof *pick + 1);
    float *mass = malloc(n * sizeof *mass + 1);
    bound x = {.score = pb_in_range(b, "score", PB_F32, n, kind == FAR ? -120 : -3, 3)};
    if (pick && mass) {
        for (size_t i = 0; i < n; i++) {
            const int r = (int)(i / K), j = (int)(i % K);
            mass[i] = mass_of(kind, r, j, K, pb_uniform(3, i));
            pick[i] = masked(kind, r, j, K) ? -1 - (int)(i % 2) : j;
        }
        x.mass = pb_in_raw(b, "mass", mass, n * sizeof *mass);
        x.pick = pb_in_raw(b, "pick", pick, n * sizeof *pick);
    } else if (b->status == PB_OK) {
        b->status = pb_fail(PB_ENOMEM, "indexer_kl: no host memory for %zu top-k indices", n);
    }
    free(pick), free(mass);
    return x;
}
static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const bound x = bind(b, dim);
    *(pb_indexer_kl_fwd_args *)args = (pb_indexer_kl_fwd_args){.score = x.score,
                                                               .mass = x.mass,
                                                               .pick = x.pick,
                                                               .loss = pb_out(b, "loss", PB_F32, 1),
                                                               .R = dim[0],
                                                               .K = dim[1]};
    return b->status;
}
static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    static const float scale = 0.75f;
    const bound x = bind(b, dim);
    *(pb_indexer_kl_bwd_args *)args =
        (pb_indexer_kl_bwd_args){.score = x.score,
                                 .mass = x.mass,
                                 .pick = x.pick,
                                 .scale = dim[0] % 2 ? NULL : pb_in_raw(b, "scale", &scale, sizeof scale),
                                 .dscore = pb_out(b, "dscore", PB_F32, (size_t)dim[0] * dim[1]),
                                 .R = dim[0],
                                 .K = dim[1]};
    return b->status;
}

/* Replaces the scores that the op must not read, those of masked slots, by NaN. */
static void prepare(const float *score, const int32_t *pick, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pick[i] < 0) ((float *)score)[i] = NAN;
}
static pb_status fwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_indexer_kl_fwd_args *a = args;
    (void)cpu;
    prepare(a->score, a->pick, (size_t)a->R * a->K);
    return PB_OK;
}
static pb_status bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_indexer_kl_bwd_args *a = args;
    (void)cpu;
    prepare(a->score, a->pick, (size_t)a->R * a->K);
    return PB_OK;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_indexer_kl_fwd_args *a = args;
    return (pb_cost){.bytes = 12.0 * a->R * a->K};
}
static pb_cost bwd_cost(const void *args)
{
    const pb_indexer_kl_bwd_args *a = args;
    return (pb_cost){.bytes = 16.0 * a->R * a->K};
}

const pb_op pb_op_indexer_kl_fwd = {
    .name = "indexer_kl_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_indexer_kl_fwd_args),
    .impls = PB_BOTH_BACKENDS(indexer_kl, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-5}, /* logarithms of nearly equal numbers cancel */
    .f32_only = true,
};
const pb_op pb_op_indexer_kl_bwd = {
    .name = "indexer_kl_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_indexer_kl_bwd_args),
    .impls = PB_BOTH_BACKENDS(indexer_kl, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .prepare = bwd_prepare,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-5},
    .f32_only = true,
};
