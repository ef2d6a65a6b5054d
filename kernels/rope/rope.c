/* rope.c - rotary position embedding: the table, the reference in double, and the two descriptors. */
#include "kernels/rope/rope.h"

#include <math.h>

#include "kernels/core/cpu.h"

void pb_rope_table(float *cos_, float *sin_, int P, int D, double theta)
{
    pb_rope_table_scaled(cos_, sin_, P, D, theta, NULL);
}

/* The pair that turns `turns` times over the original length. */
static double turning_pair(const pb_rope_scaling *s, int D, double theta, double turns)
{
    return D * log(s->original_len / (turns * 2 * M_PI)) / (2 * log(theta));
}

static double yarn(const pb_rope_scaling *s, size_t i, int D, double theta, double f)
{
    double low = turning_pair(s, D, theta, s->beta_fast), high = turning_pair(s, D, theta, s->beta_slow);
    if (s->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, D - 1);
    if (low == high) high += 0.001;
    const double g = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return g * f / s->factor + (1 - g) * f;
}

static double llama3(const pb_rope_scaling *s, double f)
{
    const double turns = s->original_len * f / (2 * M_PI);
    const double keep = fmin(fmax((turns - s->low_freq) / (s->high_freq - s->low_freq), 0), 1);
    return (1 - keep) * f / s->factor + keep * f;
}

static double frequency(const pb_rope_scaling *s, size_t i, int D, double theta)
{
    const double f = pow(theta, -2.0 * (double)i / D);
    switch (s ? s->kind : PB_ROPE_NONE) {
    case PB_ROPE_LINEAR: return f / s->factor;
    case PB_ROPE_LLAMA3: return llama3(s, f);
    case PB_ROPE_YARN: return yarn(s, i, D, theta, f);
    default: return f;
    }
}

void pb_rope_table_scaled(float *cos_, float *sin_, int P, int D, double theta, const pb_rope_scaling *s)
{
    const size_t half = (size_t)D / 2;
    const double size = s && s->kind == PB_ROPE_YARN ? s->attention : 1;
    for (size_t i = 0; i < half; i++) {
        const double f = frequency(s, i, D, theta);
        for (int p = 0; p < P; p++) {
            cos_[p * half + i] = (float)(size * cos(p * f));
            sin_[p * half + i] = (float)(size * sin(p * f));
        }
    }
}

/* ---- reference -------------------------------------------------------------------------------------- */

/* The heads of one token, rotated by row p of the table, or backwards with sign -1. */
static void rotate(const void *x, void *y, int heads, int D, const float *cos_, const float *sin_, double sign,
                   pb_rope_pairing pairing, pb_dtype t)
{
    for (size_t h = 0; h < (size_t)heads * D; h += D)
        for (int i = 0; i < D / 2; i++) {
            const size_t ia = pairing == PB_ROPE_HALF ? h + i : h + 2 * i;
            const size_t ib = pairing == PB_ROPE_HALF ? h + i + D / 2 : h + 2 * i + 1;
            const double a = pb_load(x, ia, t), b = pb_load(x, ib, t);
            const double c = cos_ ? (double)cos_[i] : (double)NAN, s = sin_ ? sign * (double)sin_[i] : (double)NAN;
            pb_store(y, ia, t, a * c - b * s);
            pb_store(y, ib, t, b * c + a * s);
        }
}

static void *element(const void *p, size_t i, pb_dtype t) { return (char *)p + i * pb_dtype_size(t); }

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_rope_fwd_args *a = args;
    const pb_dtype t = a->dtype;
    (void)ctx;
    for (size_t n = 0; n < (size_t)a->B * a->S; n++) {
        const int p = a->pos ? a->pos[n] : (int)(n % a->S);
        const bool in = p >= 0 && p < a->P;
        const float *c = in ? a->cos + (size_t)p * (a->D / 2) : NULL, *s = in ? a->sin + (size_t)p * (a->D / 2) : NULL;
        rotate(element(a->q, n * a->ldq, t), element(a->qr, n * a->ldqr, t), a->H, a->D, c, s, 1, a->pairing, t);
        rotate(element(a->k, n * a->ldk, t), element(a->kr, n * a->ldkr, t), a->K, a->D, c, s, 1, a->pairing, t);
    }
    return PB_OK;
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_rope_bwd_args *a = args;
    const pb_dtype t = a->dtype;
    (void)ctx;
    for (size_t n = 0; n < (size_t)a->B * a->S; n++) {
        const int p = a->pos ? a->pos[n] : (int)(n % a->S);
        const bool in = p >= 0 && p < a->P;
        const float *c = in ? a->cos + (size_t)p * (a->D / 2) : NULL, *s = in ? a->sin + (size_t)p * (a->D / 2) : NULL;
        rotate(element(a->dqr, n * a->lddqr, t), element(a->dq, n * a->lddq, t), a->H, a->D, c, s, -1, a->pairing, t);
        rotate(element(a->dkr, n * a->lddkr, t), element(a->dk, n * a->lddk, t), a->K, a->D, c, s, -1, a->pairing, t);
    }
    return PB_OK;
}

/* ---- implementations --------------------------------------------------------------------------------- */

PB_FAST_DECLARE(pb_rope_fwd)
PB_FAST_DECLARE(pb_rope_bwd)

const pb_impl pb_rope_fwd_cpu[] = {PB_FAST_IMPLS(pb_rope_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_rope_bwd_cpu[] = {PB_FAST_IMPLS(pb_rope_bwd){"ref", bwd_ref}, {0}};

/* ---- descriptors ------------------------------------------------------------------------------------- */

/* a: adjacent pairs; p: padding between tokens; x: positions given. */
static const char axes[] = "BSHKDapx";
static const pb_dims edge[] = {
    {2, 3, 3, 1, 10, 0, 0, 0},  {1, 5, 2, 2, 66, 1, 3, 1},
    {2, 4, 3, 1, 64, 0, 7, 1},  {3, 3, 2, 1, 128, 1, 0, 0},
    {1, 2, 1, 1, 2, 0, 1, 0},   {2, 2, 1, 1, 2, 1, 0, 1},
    {1, 3, 2, 2, 40, 1, 0, 0},  {1, 3, 2, 1, 94, 1, 0, 0},
    {2, 70, 9, 3, 24, 0, 0, 0}, {0},
};
static const pb_dims grid[] = {
    {1, 256, 9, 3, 64}, {8, 1024, 14, 2, 64}, {4, 2048, 12, 2, 128}, {8, 1024, 9, 3, 64, 1}, {0},
};
static const pb_dims device_grid[] = {{4, 4096, 32, 8, 128}, {0}};

static pb_status sizes_check(const char *op, int B, int S, int H, int K, int D, int P, bool pos)
{
    if (B < 0 || S < 0 || H < 1 || K < 1 || P < 0)
        return pb_fail(PB_EINVAL, "%s: B=%d S=%d H=%d K=%d P=%d", op, B, S, H, K, P);
    if (D < 2 || D % 2) return pb_fail(PB_EINVAL, "%s: D=%d, need an even number", op, D);
    if (!pos && S > P) return pb_fail(PB_EINVAL, "%s: S=%d tokens, but the table ends at P=%d", op, S, P);
    return PB_OK;
}

static pb_status tensor_check(const char *op, const char *name, const void *p, size_t ld, int heads, int D)
{
    if (!p) return pb_fail(PB_EINVAL, "%s: %s is NULL", op, name);
    if (ld < (size_t)heads * D)
        return pb_fail(PB_EINVAL, "%s: tokens of %s are %zu apart, need %zu", op, name, ld, (size_t)heads * D);
    return PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_rope_fwd_args *a = args;
    const char op[] = "rope_fwd";
    PB_TRY(sizes_check(op, a->B, a->S, a->H, a->K, a->D, a->P, a->pos));
    PB_TRY(tensor_check(op, "q", a->q, a->ldq, a->H, a->D));
    PB_TRY(tensor_check(op, "k", a->k, a->ldk, a->K, a->D));
    PB_TRY(tensor_check(op, "qr", a->qr, a->ldqr, a->H, a->D));
    PB_TRY(tensor_check(op, "kr", a->kr, a->ldkr, a->K, a->D));
    return a->cos && a->sin ? PB_OK : pb_fail(PB_EINVAL, "%s: cos or sin is NULL", op);
}

static pb_status bwd_check(const void *args)
{
    const pb_rope_bwd_args *a = args;
    const char op[] = "rope_bwd";
    PB_TRY(sizes_check(op, a->B, a->S, a->H, a->K, a->D, a->P, a->pos));
    PB_TRY(tensor_check(op, "dqr", a->dqr, a->lddqr, a->H, a->D));
    PB_TRY(tensor_check(op, "dkr", a->dkr, a->lddkr, a->K, a->D));
    PB_TRY(tensor_check(op, "dq", a->dq, a->lddq, a->H, a->D));
    PB_TRY(tensor_check(op, "dk", a->dk, a->lddk, a->K, a->D));
    return a->cos && a->sin ? PB_OK : pb_fail(PB_EINVAL, "%s: cos or sin is NULL", op);
}

/* Rows of the table: enough for the row, or 37 where positions are drawn from it. The table holds any
 * values here; that a pair has norm 1 is rope_test's matter. */
static int bound_rows(const int *dim) { return dim[7] ? 37 : dim[1] + 2; }

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const int P = bound_rows(dim), D = dim[4];
    const size_t T = (size_t)dim[0] * dim[1], q = (size_t)dim[2] * D, k = (size_t)dim[3] * D, p = dim[6];
    *(pb_rope_fwd_args *)args = (pb_rope_fwd_args){
        .q = pb_in_ld(b, "q", b->dtype, T, q, q + p),
        .k = pb_in_ld(b, "k", b->dtype, T, k, k + 2 * p),
        .cos = pb_in(b, "cos", PB_F32, (size_t)P * (D / 2)),
        .sin = pb_in(b, "sin", PB_F32, (size_t)P * (D / 2)),
        .pos = dim[7] ? pb_in_range(b, "pos", PB_I32, T, 0, P) : NULL,
        .qr = pb_out_ld(b, "qr", b->dtype, T, q, q + 3 * p),
        .kr = pb_out_ld(b, "kr", b->dtype, T, k, k + 4 * p),
        .B = dim[0],
        .S = dim[1],
        .H = dim[2],
        .K = dim[3],
        .D = D,
        .P = P,
        .ldq = q + p,
        .ldk = k + 2 * p,
        .ldqr = q + 3 * p,
        .ldkr = k + 4 * p,
        .pairing = dim[5] ? PB_ROPE_ADJACENT : PB_ROPE_HALF,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const int P = bound_rows(dim), D = dim[4];
    const size_t T = (size_t)dim[0] * dim[1], q = (size_t)dim[2] * D, k = (size_t)dim[3] * D, p = dim[6];
    *(pb_rope_bwd_args *)args = (pb_rope_bwd_args){
        .dqr = pb_in_ld(b, "dqr", b->dtype, T, q, q + 3 * p),
        .dkr = pb_in_ld(b, "dkr", b->dtype, T, k, k + 4 * p),
        .cos = pb_in(b, "cos", PB_F32, (size_t)P * (D / 2)),
        .sin = pb_in(b, "sin", PB_F32, (size_t)P * (D / 2)),
        .pos = dim[7] ? pb_in_range(b, "pos", PB_I32, T, 0, P) : NULL,
        .dq = pb_out_ld(b, "dq", b->dtype, T, q, q + p),
        .dk = pb_out_ld(b, "dk", b->dtype, T, k, k + 2 * p),
        .B = dim[0],
        .S = dim[1],
        .H = dim[2],
        .K = dim[3],
        .D = D,
        .P = P,
        .lddqr = q + 3 * p,
        .lddkr = k + 4 * p,
        .lddq = q + p,
        .lddk = k + 2 * p,
        .pairing = dim[5] ? PB_ROPE_ADJACENT : PB_ROPE_HALF,
        .dtype = b->dtype,
    };
    return b->status;
}

/* Six operations a pair; q and k are read and written once, and the rows of the table that are used. */
static pb_cost cost(int B, int S, int H, int K, int D, int P, pb_dtype t)
{
    const double n = (double)B * S * (H + K) * D, table = (double)(S < P ? S : P) * D * 4;
    return (pb_cost){.flops = 3 * n, .bytes = 2 * n * (double)pb_dtype_size(t) + table};
}

static pb_cost fwd_cost(const void *args)
{
    const pb_rope_fwd_args *a = args;
    return cost(a->B, a->S, a->H, a->K, a->D, a->P, a->dtype);
}

static pb_cost bwd_cost(const void *args)
{
    const pb_rope_bwd_args *a = args;
    return cost(a->B, a->S, a->H, a->K, a->D, a->P, a->dtype);
}

const pb_op pb_op_rope_fwd = {
    .name = "rope_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_rope_fwd_args),
    .impls = PB_BOTH_BACKENDS(rope, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 2e-7, [PB_BF16] = 4e-3},
};
const pb_op pb_op_rope_bwd = {
    .name = "rope_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_rope_bwd_args),
    .impls = PB_BOTH_BACKENDS(rope, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 2e-7, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_rope_fwd,
};
