/* dynmask_bias.c - dynmask_bias: the reference in double precision, and the op descriptors. */
#include "kernels/dynmask_bias/dynmask_bias.h"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/dynmask_bias/plan.h"

/* ---- reference in double precision -------------------------------------------------------------------- */

static double softplus(double u) { return u > 20 ? u : log1p(exp(u)); }
static double slope(double u) { return u > 20 ? 1 : 1 / (1 + exp(-u)); } /* the derivative of softplus */

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_bias_fwd_args *p = args;
    const size_t n = (size_t)p->K * p->D;
    (void)ctx;
    for (int b = 0; b < p->B; b++)
        for (int k = 0; k < p->K; k++)
            for (int j = 0; j < p->S; j++) {
                const size_t at = ((size_t)b * p->K + k) * p->S + j, token = ((size_t)b * p->S + j) * p->ldv;
                double u = p->dt ? (double)p->dt[k] : 0;
                for (size_t e = 0; e < n; e++)
                    u += pb_load(p->v, token + e, p->dtype) * pb_load(p->w, k * n + e, p->dtype);
                const double x = (double)p->a[k] * softplus(u);
                p->u[at] = (float)u;
                p->bias[at] = (float)(p->exponential ? exp(x) : x);
            }
    return PB_OK;
}

/* Returns du of one key and kv head, and sets *da to its term of da. */
static double du_of(const pb_dynmask_bias_bwd_args *p, int b, int k, int j, double *da)
{
    const size_t at = ((size_t)b * p->K + k) * p->S + j;
    const double u = (double)p->u[at], a = (double)p->a[k], z = softplus(u);
    const double g = (double)p->dbias[at] * (p->exponential ? exp(a * z) : 1);
    *da = g * z;
    return g * a * slope(u);
}

static void add_dv_ref(const pb_dynmask_bias_bwd_args *p, int b, int j)
{
    const size_t n = (size_t)p->K * p->D, to = ((size_t)b * p->S + j) * p->lddv;
    double da;
    for (size_t e = 0; e < n; e++) {
        double sum = pb_load(p->dv, to + e, p->dtype);
        for (int k = 0; k < p->K; k++) sum += du_of(p, b, k, j, &da) * pb_load(p->w, k * n + e, p->dtype);
        pb_store(p->dv, to + e, p->dtype, sum);
    }
}

/* Computes dw, ddt and da of one kv head. sum: scratch array of K*D elements. */
static void weights_ref(const pb_dynmask_bias_bwd_args *p, int k, double *sum)
{
    const size_t n = (size_t)p->K * p->D;
    double da = p->accumulate ? (double)p->da[k] : 0, ddt = p->accumulate && p->ddt ? (double)p->ddt[k] : 0;
    for (size_t e = 0; e < n; e++) sum[e] = p->accumulate ? (double)p->dw[k * n + e] : 0;
    for (int b = 0; b < p->B; b++)
        for (int j = 0; j < p->S; j++) {
            double term;
            const double du = du_of(p, b, k, j, &term);
            da += term, ddt += du;
            for (size_t e = 0; e < n; e++) sum[e] += du * pb_load(p->v, ((size_t)b * p->S + j) * p->ldv + e, p->dtype);
        }
    for (size_t e = 0; e < n; e++) p->dw[k * n + e] = (float)sum[e];
    p->da[k] = (float)da;
    if (p->ddt) p->ddt[k] = (float)ddt;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_bias_bwd_args *p = args;
    for (int k = 0; p->dw && k < p->K; k++) weights_ref(p, k, ctx->scratch);
    for (int b = 0; b < p->B; b++)
        for (int j = 0; j < p->S; j++) add_dv_ref(p, b, j);
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs -------------------------------- */

PB_FAST_DECLARE(pb_dynmask_bias_fwd)
PB_FAST_DECLARE(pb_dynmask_bias_bwd)

static size_t bwd_ref_workspace(const void *args)
{
    const pb_dynmask_bias_bwd_args *p = args;
    return (size_t)p->K * p->D * sizeof(double);
}
static size_t bwd_workspace(const void *args)
{
    const pb_dynmask_bias_bwd_args *p = args;
    return pb_dynmask_bias_sums((size_t)p->B * p->S, p->K, p->D) * sizeof(float);
}

const pb_impl pb_dynmask_bias_fwd_cpu[] = {PB_FAST_IMPLS(pb_dynmask_bias_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_dynmask_bias_bwd_cpu[] = {
    PB_FAST_IMPLS(pb_dynmask_bias_bwd, .workspace = bwd_workspace){"ref", bwd_ref, .workspace = bwd_ref_workspace},
    {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ------------------------------------ */

static const char axes[] = "BSKDetap";
/* One shape in the tables below: a pb_dims whose numbers have names, in the order of `axes`. */
typedef struct shape {
    int B, S, K, D;
    int exponential;
    int dt;         /* the projection has a bias */
    int accumulate; /* of the backward pass */
    int pad;        /* unit of the gaps between tokens, in elements: each tensor has another multiple of it */
    int unused[2];
} shape;
_Static_assert(sizeof(shape) == sizeof(pb_dims), "a shape is a pb_dims with names");
static const shape edge[] = {
    {.B = 1, .S = 9, .K = 1, .D = 7, .exponential = 1},
    {.B = 2, .S = 33, .K = 3, .D = 20, .dt = 1, .pad = 3},
    {.B = 2, .S = 70, .K = 2, .D = 16, .exponential = 1, .dt = 1, .accumulate = 1, .pad = 1},
    {.B = 1, .S = 130, .K = 8, .D = 32, .accumulate = 1},
    {.B = 3, .S = 40, .K = 5, .D = 9, .exponential = 1, .pad = 2},
    {.B = 1, .S = 1, .K = 1, .D = 1, .dt = 1},
    {.B = 1, .S = 150, .K = 1, .D = 256, .exponential = 1, .dt = 1},
    {0},
};
static const shape grid[] = {{.B = 1, .S = 2048, .K = 3, .D = 128, .exponential = 1}, {0}};
static const shape device_grid[] = {{.B = 1, .S = 8192, .K = 16, .D = 128, .exponential = 1},
                                    {.B = 4, .S = 2048, .K = 3, .D = 128, .exponential = 1},
                                    {0}};

static pb_status sizes_check(const char *op, int B, int S, int K, int D, size_t ldv, size_t lddv)
{
    if (B < 1 || S < 1 || K < 1 || D < 1)
        return pb_fail(PB_EINVAL, "%s: B=%d S=%d K=%d D=%d, need at least 1", op, B, S, K, D);
    if (ldv < (size_t)K * D || lddv < (size_t)K * D)
        return pb_fail(PB_EINVAL, "%s: tokens of v or dv are %zu or %zu elements apart, need at least %zu", op, ldv,
                       lddv, (size_t)K * D);
    return PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_dynmask_bias_fwd_args *p = args;
    PB_TRY(sizes_check("dynmask_bias_fwd", p->B, p->S, p->K, p->D, p->ldv, p->ldv));
    return p->v && p->w && p->a && p->u && p->bias ? PB_OK : pb_fail(PB_EINVAL, "dynmask_bias_fwd: a tensor is NULL");
}

static pb_status bwd_check(const void *args)
{
    const pb_dynmask_bias_bwd_args *p = args;
    PB_TRY(sizes_check("dynmask_bias_bwd", p->B, p->S, p->K, p->D, p->ldv, p->lddv));
    if (!p->dbias || !p->v || !p->w || !p->a || !p->u || !p->dv)
        return pb_fail(PB_EINVAL, "dynmask_bias_bwd: a tensor is NULL");
    return (p->dw == NULL) == (p->da == NULL) && (p->dw || !p->ddt)
               ? PB_OK
               : pb_fail(PB_EINVAL, "dynmask_bias_bwd: dw, da and ddt: some are NULL, some are not");
}

/* The weights are large enough for u to exceed 20 in some elements, where softplus is linear. */
static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const int B = dim[0], S = dim[1], K = dim[2], D = dim[3];
    const size_t T = (size_t)B * S, n = (size_t)K * D, pad = dim[7];
    const double reach = 20 / sqrt((double)n);
    *(pb_dynmask_bias_fwd_args *)args = (pb_dynmask_bias_fwd_args){
        .v = pb_in_ld(b, "v", b->dtype, T, n, n + pad),
        .w = pb_in_range(b, "w", b->dtype, K * n, -reach, reach),
        .dt = dim[5] ? pb_in_range(b, "dt", PB_F32, K, 2, 6) : NULL,
        .a = pb_in_range(b, "a", PB_F32, K, -0.5, 0.1),
        .u = pb_out(b, "u", PB_F32, T * K),
        .bias = pb_out(b, "bias", PB_F32, T * K),
        .B = B,
        .S = S,
        .K = K,
        .D = D,
        .ldv = n + pad,
        .exponential = dim[4],
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const int B = dim[0], S = dim[1], K = dim[2], D = dim[3];
    const size_t T = (size_t)B * S, n = (size_t)K * D, pad = dim[7];
    const bool add = dim[6];
    const double reach = 20 / sqrt((double)n);
    pb_dynmask_bias_bwd_args p = {
        .B = B, .S = S, .K = K, .D = D, .ldv = n + pad, .lddv = n + 2 * pad, .dtype = b->dtype};
    p.exponential = dim[4], p.accumulate = add;
    p.dbias = pb_in(b, "dbias", PB_F32, T * K);
    p.v = pb_in_ld(b, "v", b->dtype, T, n, n + pad);
    p.w = pb_in_range(b, "w", b->dtype, K * n, -reach, reach);
    p.a = pb_in_range(b, "a", PB_F32, K, -0.5, 0.1);
    p.u = pb_in_range(b, "u", PB_F32, T * K, -25, 25);
    p.dv = pb_inout_ld(b, "dv", b->dtype, T, n, n + 2 * pad);
    p.dw = add ? pb_inout(b, "dw", PB_F32, K * n, -1, 1) : pb_out(b, "dw", PB_F32, K * n);
    p.da = add ? pb_inout(b, "da", PB_F32, K, -1, 1) : pb_out(b, "da", PB_F32, K);
    if (dim[5]) p.ddt = add ? pb_inout(b, "ddt", PB_F32, K, -1, 1) : pb_out(b, "ddt", PB_F32, K);
    *(pb_dynmask_bias_bwd_args *)args = p;
    return b->status;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_dynmask_bias_fwd_args *p = args;
    const double T = (double)p->B * p->S, n = (double)p->K * p->D, e = (double)pb_dtype_size(p->dtype);
    return (pb_cost){.flops = 2 * T * p->K * n, .bytes = e * n * (T + p->K) + 8 * T * p->K + 8.0 * p->K};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_dynmask_bias_bwd_args *p = args;
    const double T = (double)p->B * p->S, n = (double)p->K * p->D, e = (double)pb_dtype_size(p->dtype);
    const double sums = (n + (p->ddt ? 2 : 1)) * p->K * (p->accumulate ? 8 : 4);
    if (!p->dw)
        return (pb_cost){.flops = 2 * T * p->K * n, .bytes = e * n * (2 * T + p->K) + 8 * T * p->K + 4.0 * p->K};
    return (pb_cost){.flops = 4 * T * p->K * n, .bytes = e * n * (3 * T + p->K) + 8 * T * p->K + 4.0 * p->K + sums};
}

const pb_op pb_op_dynmask_bias_fwd = {
    .name = "dynmask_bias_fwd",
    .axes = axes,
    .edge = (const pb_dims *)edge,
    .grid = (const pb_dims *)grid,
    .device_grid = (const pb_dims *)device_grid,
    .args_size = sizeof(pb_dynmask_bias_fwd_args),
    .impls = PB_BOTH_BACKENDS(dynmask_bias, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 4e-6, [PB_BF16] = 4e-6}, /* the outputs are f32 for either type */
};
const pb_op pb_op_dynmask_bias_bwd = {
    .name = "dynmask_bias_bwd",
    .axes = axes,
    .edge = (const pb_dims *)edge,
    .grid = (const pb_dims *)grid,
    .device_grid = (const pb_dims *)device_grid,
    .args_size = sizeof(pb_dynmask_bias_bwd_args),
    .impls = PB_BOTH_BACKENDS(dynmask_bias, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 4e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_dynmask_bias_fwd,
};
