/* lora.c - low-rank adapters: the reference in double precision, and the pb_op descriptors of both ops. */
#include "kernels/lora/lora.h"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/lora/lora_plan.h"

/* ---- reference in double precision -------------------------------------------------------------- */

/* Computes the forward pass of one target. y is computed from the stored xa, which is rounded when dtype is bf16. */
static void target_ref(const pb_lora_fwd_args *a, const pb_lora_target *g)
{
    const size_t T = (size_t)a->T, K = (size_t)a->K, R = (size_t)a->R, N = (size_t)g->N;
    for (size_t t = 0; t < T; t++) {
        for (size_t r = 0; r < R; r++) {
            double sum = 0;
            for (size_t k = 0; k < K; k++)
                sum += pb_load(a->x, t * K + k, a->dtype) * pb_load(g->a, r * K + k, a->dtype);
            pb_store(g->xa, t * R + r, a->dtype, sum);
        }
        for (size_t n = 0; n < N; n++) {
            double sum = 0;
            for (size_t r = 0; r < R; r++)
                sum += pb_load(g->xa, t * R + r, a->dtype) * pb_load(g->b, n * R + r, a->dtype);
            pb_store(g->y, t * g->ldy + n, a->dtype, pb_load(g->y, t * g->ldy + n, a->dtype) + (double)a->scale * sum);
        }
    }
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_lora_fwd_args *a = args;
    (void)ctx;
    for (int i = 0; i < a->n; i++) target_ref(a, &a->target[i]);
    return PB_OK;
}

/* Returns dxa_i[t,r] of one target. */
static double dxa_ref(const pb_lora_bwd_args *a, const pb_lora_grad *g, size_t t, size_t r)
{
    double sum = 0;
    for (size_t n = 0; n < (size_t)g->N; n++)
        sum += pb_load(g->dy, t * g->lddy + n, a->dtype) * pb_load(g->b, n * a->R + r, a->dtype);
    return (double)a->scale * sum;
}

static void db_ref(const pb_lora_bwd_args *a, const pb_lora_grad *g)
{
    for (size_t n = 0; n < (size_t)g->N; n++)
        for (size_t r = 0; r < (size_t)a->R; r++) {
            double sum = 0;
            for (size_t t = 0; t < (size_t)a->T; t++)
                sum += pb_load(g->dy, t * g->lddy + n, a->dtype) * pb_load(g->xa, t * a->R + r, a->dtype);
            float *db = &g->db[n * a->R + r];
            *db = (float)((a->accumulate ? (double)*db : 0) + (double)a->scale * sum);
        }
}

/* Computes each element of dxa once and adds its contribution to da and dx immediately. da and dx are summed in double
 * in scratch and rounded at the end. */
static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_lora_bwd_args *a = args;
    const size_t T = (size_t)a->T, K = (size_t)a->K, R = (size_t)a->R;
    double *dx = ctx->scratch, *da = dx + T * K;
    for (size_t e = 0; e < T * K; e++) dx[e] = pb_load(a->dx, e, a->dtype);
    for (int i = 0; i < a->n; i++) {
        const pb_lora_grad *g = &a->target[i];
        db_ref(a, g);
        for (size_t e = 0; e < R * K; e++) da[e] = a->accumulate ? (double)g->da[e] : 0;
        for (size_t t = 0; t < T; t++)
            for (size_t r = 0; r < R; r++) {
                const double dxa = dxa_ref(a, g, t, r);
                for (size_t k = 0; k < K; k++) {
                    da[r * K + k] += dxa * pb_load(a->x, t * K + k, a->dtype);
                    dx[t * K + k] += dxa * pb_load(g->a, r * K + k, a->dtype);
                }
            }
        for (size_t e = 0; e < R * K; e++) g->da[e] = (float)da[e];
    }
    for (size_t e = 0; e < T * K; e++) pb_store(a->dx, e, a->dtype, dx[e]);
    return PB_OK;
}

static size_t bwd_ref_workspace(const void *args)
{
    const pb_lora_bwd_args *a = args;
    return ((size_t)a->T + (size_t)a->R) * (size_t)a->K * sizeof(double);
}

/* ---- CPU implementations, best first, and the workspace that each needs -------------------------- */

PB_FAST_DECLARE(pb_lora_fwd)
PB_FAST_DECLARE(pb_lora_bwd)

static size_t fwd_workspace(const void *args)
{
    const pb_lora_plan p = pb_lora_fwd_plan(args);
    return pb_lora_bytes(&p);
}

static size_t bwd_workspace(const void *args)
{
    const pb_lora_plan p = pb_lora_bwd_plan(args);
    return pb_lora_bytes(&p);
}

const pb_impl pb_lora_fwd_cpu[] = {PB_FAST_IMPLS(pb_lora_fwd, .workspace = fwd_workspace){"ref", fwd_ref}, {0}};
const pb_impl pb_lora_bwd_cpu[] = {
    PB_FAST_IMPLS(pb_lora_bwd, .workspace = bwd_workspace){"ref", bwd_ref, .workspace = bwd_ref_workspace}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ------------------------------ */

/* Axes of the shapes below: N: outputs of the first target; M: outputs of each other target; R: rank; n: number of
 * targets; p: padding elements between the rows of y; a = 1: accumulate (bwd). */
static const char axes[] = "BSNMKRnpa";
static const pb_dims edge[] = {
    {1, 5, 19, 7, 33, 3, 2, 4, 1},
    {2, 3, 16, 16, 16, 1, 1, 0, 0},   /* rank 1, one target */
    {1, 40, 48, 20, 96, 16, 4, 3, 0}, /* PB_LORA_MAX targets */
    {1, 1, 1, 1, 1, 1, 1, 0, 1},
    {2, 35, 64, 32, 80, 8, 3, 0, 1},
    {1, 3, 24, 24, 40, 256, 2, 0, 0}, /* the largest rank */
    {1, 9, 70, 30, 600, 17, 1, 9, 1}, /* K exceeds one block of the matrix product */
    {1, 600, 17, 9, 20, 5, 2, 0, 1},  /* many tokens: the sums of da and db are split */
    /* Shapes for the tensor-core kernels: all dimensions are multiples of 8 and ranks multiples of 16,
     * with one to four targets. */
    {1, 40, 48, 24, 96, 16, 4, 8, 0},
    {1, 150, 136, 72, 200, 16, 2, 8, 1},
    {1, 33, 40, 16, 104, 16, 3, 16, 1},
    {1, 37, 64, 8, 40, 48, 1, 0, 1},
    {2, 70, 24, 8, 72, 32, 2, 8, 1},
    {1, 300, 200, 8, 264, 64, 1, 0, 0},
    {1, 17, 16, 8, 1096, 16, 1, 0, 0},
    {1, 50, 200, 72, 72, 16, 2, 0, 1}, /* T <= 128: one token tile; columns in several splits */
    {0},
};
static const pb_dims grid[] = {{1, 1024, 576, 192, 576, 16, 2, 0, 0},
                               {1, 1024, 896, 128, 896, 16, 2, 256, 0},
                               {1, 1024, 1536, 256, 1536, 16, 2, 0, 0},
                               {1, 512, 1536, 256, 1536, 64, 3, 0, 0},
                               {1, 512, 8960, 8960, 1536, 16, 2, 0, 0},
                               {1, 512, 1536, 1536, 1536, 256, 1, 0, 0},
                               {1, 512, 1536, 1536, 8960, 16, 1, 0, 0},
                               {1, 64, 128, 64, 128, 16, 2, 0, 0},
                               {0}};
static const pb_dims device_grid[] = {
    {4, 512, 1536, 256, 1536, 16, 2, 0, 0}, {4, 2048, 1536, 256, 1536, 16, 2, 0, 0}, {0}};

static pb_status check_shape(const char *op, int n, int T, int K, int R, float scale)
{
    if (n < 1 || n > PB_LORA_MAX) return pb_fail(PB_EINVAL, "%s: n=%d targets, need 1..%d", op, n, PB_LORA_MAX);
    if (R < 1 || R > 256) return pb_fail(PB_EINVAL, "%s: R=%d, need 1..256", op, R);
    if (T < 0 || K < 1) return pb_fail(PB_EINVAL, "%s: T=%d K=%d, need T >= 0 and K >= 1", op, T, K);
    if (!isfinite(scale)) return pb_fail(PB_EINVAL, "%s: scale=%g, need a finite number", op, (double)scale);
    return PB_OK;
}

static pb_status check_target(const char *op, int i, int N, size_t ld, bool complete)
{
    if (!complete) return pb_fail(PB_EINVAL, "%s: a pointer of target %d is NULL", op, i);
    if (N < 1) return pb_fail(PB_EINVAL, "%s: N=%d in target %d, need N >= 1", op, N, i);
    if (ld < (size_t)N)
        return pb_fail(PB_EINVAL, "%s: tokens of target %d are %zu elements apart, need at least N=%d", op, i, ld, N);
    return PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_lora_fwd_args *a = args;
    PB_TRY(check_shape("lora_fwd", a->n, a->T, a->K, a->R, a->scale));
    if (a->T && !a->x) return pb_fail(PB_EINVAL, "lora_fwd: x is NULL");
    for (int i = 0; i < a->n; i++) {
        const pb_lora_target *g = &a->target[i];
        PB_TRY(check_target("lora_fwd", i, g->N, g->ldy, g->a && g->b && g->xa && g->y));
    }
    return PB_OK;
}

static pb_status bwd_check(const void *args)
{
    const pb_lora_bwd_args *a = args;
    PB_TRY(check_shape("lora_bwd", a->n, a->T, a->K, a->R, a->scale));
    if (a->T && (!a->x || !a->dx)) return pb_fail(PB_EINVAL, "lora_bwd: x or dx is NULL");
    for (int i = 0; i < a->n; i++) {
        const pb_lora_grad *g = &a->target[i];
        PB_TRY(check_target("lora_bwd", i, g->N, g->lddy, g->a && g->b && g->xa && g->dy && g->da && g->db));
    }
    return PB_OK;
}

/* A scale that is neither 1 nor a power of two, so that a missing or doubled factor changes the results. */
static const float bound_scale = 1.75f;

static const char *const a_names[PB_LORA_MAX] = {"a0", "a1", "a2", "a3"};
static const char *const b_names[PB_LORA_MAX] = {"b0", "b1", "b2", "b3"};
static const char *const xa_names[PB_LORA_MAX] = {"xa0", "xa1", "xa2", "xa3"};
static const char *const y_names[PB_LORA_MAX] = {"y0", "y1", "y2", "y3"};
static const char *const da_names[PB_LORA_MAX] = {"da0", "da1", "da2", "da3"};
static const char *const db_names[PB_LORA_MAX] = {"db0", "db1", "db2", "db3"};
static const char *const dy_names[PB_LORA_MAX] = {"dy0", "dy1", "dy2", "dy3"};

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], K = (size_t)dim[4], R = (size_t)dim[5];
    pb_lora_fwd_args *a = args;
    *a = (pb_lora_fwd_args){.x = pb_in(b, "x", b->dtype, T * K),
                            .n = dim[6],
                            .T = (int)T,
                            .K = (int)K,
                            .R = (int)R,
                            .scale = bound_scale,
                            .dtype = b->dtype};
    for (int i = 0; i < a->n; i++) {
        const size_t N = (size_t)dim[i ? 3 : 2], ld = N + (size_t)dim[7];
        a->target[i] = (pb_lora_target){
            .a = pb_in(b, a_names[i], b->dtype, R * K),
            .b = pb_in(b, b_names[i], b->dtype, N * R),
            .xa = pb_out(b, xa_names[i], b->dtype, T * R),
            .y = pb_inout_ld(b, y_names[i], b->dtype, T, N, ld),
            .ldy = ld,
            .N = (int)N,
        };
    }
    return b->status;
}

static float *bind_grad(pb_binder *b, const char *name, size_t n, bool accumulate)
{
    return accumulate ? pb_inout(b, name, PB_F32, n, -1, 1) : pb_out(b, name, PB_F32, n);
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], K = (size_t)dim[4], R = (size_t)dim[5];
    pb_lora_bwd_args *a = args;
    *a = (pb_lora_bwd_args){.x = pb_in(b, "x", b->dtype, T * K),
                            .dx = pb_inout(b, "dx", b->dtype, T * K, -1, 1),
                            .n = dim[6],
                            .T = (int)T,
                            .K = (int)K,
                            .R = (int)R,
                            .scale = bound_scale,
                            .accumulate = dim[8],
                            .dtype = b->dtype};
    for (int i = 0; i < a->n; i++) {
        const size_t N = (size_t)dim[i ? 3 : 2], ld = N + (size_t)dim[7];
        a->target[i] = (pb_lora_grad){
            .a = pb_in(b, a_names[i], b->dtype, R * K),
            .b = pb_in(b, b_names[i], b->dtype, N * R),
            .xa = pb_in(b, xa_names[i], b->dtype, T * R),
            .dy = pb_in_ld(b, dy_names[i], b->dtype, T, N, ld),
            .da = bind_grad(b, da_names[i], R * K, a->accumulate),
            .db = bind_grad(b, db_names[i], N * R, a->accumulate),
            .lddy = ld,
            .N = (int)N,
        };
    }
    return b->status;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_lora_fwd_args *a = args;
    const double T = a->T, K = a->K, R = a->R, e = (double)pb_dtype_size(a->dtype);
    pb_cost c = {.bytes = T * K * e};
    for (int i = 0; i < a->n; i++) {
        const double N = a->target[i].N;
        c.flops += 2 * T * R * (K + N);
        c.bytes += (R * (K + N) + T * R + 2 * T * N) * e;
    }
    return c;
}

static pb_cost bwd_cost(const void *args)
{
    const pb_lora_bwd_args *a = args;
    const double T = a->T, K = a->K, R = a->R, e = (double)pb_dtype_size(a->dtype);
    pb_cost c = {.bytes = 3 * T * K * e};
    for (int i = 0; i < a->n; i++) {
        const double N = a->target[i].N;
        c.flops += 4 * T * R * (K + N);
        c.bytes += (R * (K + N) + T * R + T * N) * e + R * (K + N) * (a->accumulate ? 8 : 4);
    }
    return c;
}

const pb_op pb_op_lora_fwd = {
    .name = "lora_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_lora_fwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_lora_fwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(lora, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_lora_bwd = {
    .name = "lora_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_lora_bwd_args),
    .numbers = (const pb_number[]){PB_NUMBER(pb_lora_bwd_args, scale), {0}},
    .impls = PB_BOTH_BACKENDS(lora, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_lora_fwd,
};
