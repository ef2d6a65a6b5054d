/* rope.c - rotary position embedding: the cos and sin tables, the reference in double precision, and the pb_op
 * descriptors. */
#include "kernels/rope/rope.h"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/rope/rows.h"

void pb_rope_table(float *cos_, float *sin_, int P, int D, double theta)
{
    pb_rope_table_scaled(cos_, sin_, P, D, theta, NULL);
}

/* Returns the (fractional) index of the pair that makes `rotations` rotations over the original length. */
static double pair_with_rotations(const pb_rope_scaling *s, int D, double theta, double rotations)
{
    return D * log(s->original_len / (rotations * 2 * M_PI)) / (2 * log(theta));
}

static double yarn(const pb_rope_scaling *s, size_t i, int D, double theta, double f)
{
    double low = pair_with_rotations(s, D, theta, s->beta_fast), high = pair_with_rotations(s, D, theta, s->beta_slow);
    if (s->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, D - 1);
    if (low == high) high += 0.001;
    const double g = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return g * f / s->factor + (1 - g) * f;
}

static double llama3(const pb_rope_scaling *s, double f)
{
    const double rotations = s->original_len * f / (2 * M_PI);
    const double keep = fmin(fmax((rotations - s->low_freq) / (s->high_freq - s->low_freq), 0), 1);
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

/* ---- reference in double precision ------------------------------------------------------------------ */

/* Rotates the heads of one token by the angles in row p of the tables; copies the elements that are not rotated. */
static void rotate_row(const pb_rope_rows *r, int side, size_t x, size_t y, int p)
{
    const size_t e = pb_dtype_size(r->dtype), still = (size_t)(r->D - r->R), half = (size_t)r->R / 2;
    const bool in = p >= 0 && p < r->P;
    for (int h = 0; h < r->heads[side]; h++, x += (size_t)r->D, y += (size_t)r->D) {
        memmove((char *)r->y[side] + y * e, (const char *)r->x[side] + x * e, still * e);
        for (size_t i = 0; i < half; i++) {
            const size_t ia = still + (r->pairing == PB_ROPE_HALF ? i : 2 * i);
            const size_t ib = still + (r->pairing == PB_ROPE_HALF ? i + half : 2 * i + 1);
            const double a = pb_load(r->x[side], x + ia, r->dtype), b = pb_load(r->x[side], x + ib, r->dtype);
            const double c = in ? (double)r->cos[(size_t)p * half + i] : (double)NAN;
            const double s = in ? (double)(r->sign * r->sin[(size_t)p * half + i]) : (double)NAN;
            pb_store(r->y[side], y + ia, r->dtype, a * c - b * s);
            pb_store(r->y[side], y + ib, r->dtype, b * c + a * s);
        }
    }
}

static pb_status rotate_ref(pb_rope_rows r)
{
    for (size_t b = 0; b < (size_t)r.B; b++)
        for (size_t s = 0; s < (size_t)r.S; s++)
            for (int k = 0; k < 2; k++)
                rotate_row(&r, k, b * r.seqx[k] + s * r.ldx[k], b * r.seqy[k] + s * r.ldy[k],
                           pb_rope_position(&r, b, s));
    return PB_OK;
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    (void)ctx;
    return rotate_ref(pb_rope_fwd_rows(args));
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    (void)ctx;
    return rotate_ref(pb_rope_bwd_rows(args));
}

/* ---- CPU implementations, best first ----------------------------------------------------------------- */

PB_FAST_DECLARE(pb_rope_fwd)
PB_FAST_DECLARE(pb_rope_bwd)

const pb_impl pb_rope_fwd_cpu[] = {PB_FAST_IMPLS(pb_rope_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_rope_bwd_cpu[] = {PB_FAST_IMPLS(pb_rope_bwd){"ref", bwd_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ---------------------------------- */

/* Axes of the shapes below: a: R, plus 1 for adjacent pairs (R = 0: whole heads); p: padding between tokens, in
 * elements; x: twice the step, plus 1 if positions are given. With a step, positions start at 5 and sequences have gaps
 * between them. */
static const char axes[] = "BSHKDapx";
static const pb_dims edge[] = {
    {2, 3, 3, 1, 10, 0, 0, 0},   {1, 5, 2, 2, 66, 1, 3, 1},   {2, 4, 3, 1, 64, 0, 7, 1},
    {3, 3, 2, 1, 128, 1, 0, 0},  {1, 2, 1, 1, 2, 0, 1, 0},    {2, 2, 1, 1, 2, 1, 0, 1},
    {1, 3, 2, 2, 40, 1, 0, 0},   {1, 3, 2, 1, 94, 1, 0, 0},   {2, 70, 9, 3, 24, 0, 0, 0},
    {2, 5, 3, 1, 40, 17, 0, 8},  {2, 4, 4, 1, 512, 65, 0, 0}, {2, 3, 5, 0, 512, 65, 0, 257},
    {2, 3, 2, 0, 24, 8, 3, 1},   {2, 3, 1, 1, 37, 7, 0, 7},   {3, 2, 2, 1, 80, 16, 0, 4},
    {2, 3, 2, 1, 96, 64, 16, 0}, {2, 3, 2, 1, 64, 0, 0, 2},   {0},
};
static const pb_dims grid[] = {
    {1, 256, 9, 3, 64},
    {8, 1024, 14, 2, 64},
    {4, 2048, 12, 2, 128},
    {8, 1024, 9, 3, 64, 1},
    {1, 1024, 64, 1, 512, 65},
    {1, 16, 9, 3, 64},
    {0},
};
static const pb_dims device_grid[] = {{4, 4096, 32, 8, 128}, {1, 4096, 64, 1, 512, 65}, {0}};

static pb_status rows_check(const char *op, const pb_rope_rows *r)
{
    const int64_t last = (int64_t)r->first + ((int64_t)r->S - 1) * r->step;
    if (r->B < 0 || r->S < 0 || r->heads[0] < 1 || r->heads[1] < 0 || r->P < 0 || r->first < 0 || r->step < 1)
        return pb_fail(PB_EINVAL, "%s: B=%d S=%d H=%d K=%d P=%d first=%d step=%d, need H, step >= 1 and the rest >= 0",
                       op, r->B, r->S, r->heads[0], r->heads[1], r->P, r->first, r->step);
    if (r->R < 2 || r->R % 2 || r->R > r->D)
        return pb_fail(PB_EINVAL, "%s: D=%d R=%d, need R even and 2 <= R <= D", op, r->D, r->R);
    if (r->pos && r->S && r->ldpos < (size_t)(r->S - 1) * (size_t)r->step + 1)
        return pb_fail(PB_EINVAL, "%s: rows of pos are %zu elements apart, need at least %zu", op, r->ldpos,
                       (size_t)(r->S - 1) * (size_t)r->step + 1);
    if (!r->pos && r->S && last >= r->P)
        return pb_fail(PB_EINVAL, "%s: position %lld, but the table ends at P=%d", op, (long long)last, r->P);
    return r->cos && r->sin ? PB_OK : pb_fail(PB_EINVAL, "%s: cos or sin is NULL", op);
}

static pb_status tensor_check(const char *op, const char *name, const pb_rope_rows *r, int side, bool out)
{
    const size_t ld = out ? r->ldy[side] : r->ldx[side], seq = out ? r->seqy[side] : r->seqx[side];
    const size_t need = (size_t)r->heads[side] * (size_t)r->D;
    if (!need) return PB_OK;
    if (!(out ? r->y[side] : r->x[side])) return pb_fail(PB_EINVAL, "%s: %s is NULL", op, name);
    if (ld < need)
        return pb_fail(PB_EINVAL, "%s: tokens of %s are %zu elements apart, need at least %zu", op, name, ld, need);
    if (r->S && seq < (size_t)(r->S - 1) * ld + need)
        return pb_fail(PB_EINVAL, "%s: sequences of %s are %zu elements apart, need at least %zu", op, name, seq,
                       (size_t)(r->S - 1) * ld + need);
    return PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_rope_rows r = pb_rope_fwd_rows(args);
    const char op[] = "rope_fwd";
    PB_TRY(rows_check(op, &r));
    PB_TRY(tensor_check(op, "q", &r, 0, false));
    PB_TRY(tensor_check(op, "k", &r, 1, false));
    PB_TRY(tensor_check(op, "qr", &r, 0, true));
    return tensor_check(op, "kr", &r, 1, true);
}

static pb_status bwd_check(const void *args)
{
    const pb_rope_rows r = pb_rope_bwd_rows(args);
    const char op[] = "rope_bwd";
    PB_TRY(rows_check(op, &r));
    PB_TRY(tensor_check(op, "dqr", &r, 0, false));
    PB_TRY(tensor_check(op, "dkr", &r, 1, false));
    PB_TRY(tensor_check(op, "dq", &r, 0, true));
    return tensor_check(op, "dk", &r, 1, true);
}

/* The sizes that follow from a shape, for both passes. The tables have exactly the rows that are needed, or 37 rows if
 * positions are random. Their values are arbitrary here; rope_test.c checks that rotations keep the norm. */
typedef struct bound {
    size_t q, k, p, gap;      /* elements of a token of q, of k; padding between tokens; gap between sequences */
    size_t table, pos, ldpos; /* elements of cos (and of sin); elements of pos; positions between sequences */
    int R, P, first, step;
} bound;

static bound bound_of(const int *dim)
{
    const int step = dim[7] / 2;
    bound d = {.q = (size_t)dim[2] * dim[4], .k = (size_t)dim[3] * dim[4], .gap = step ? 16 : 0};
    d.p = step ? 0 : (size_t)dim[6];
    d.R = dim[5] / 2 * 2, d.first = step ? 5 : 0, d.step = step;
    d.P = dim[7] % 2 ? 37 : d.first + (dim[1] - 1) * (step ? step : 1) + 1;
    d.table = (size_t)d.P * (size_t)((d.R ? d.R : dim[4]) / 2);
    d.ldpos = step ? (size_t)dim[1] * step + 2 : 0;
    d.pos = (size_t)dim[0] * (step ? d.ldpos : (size_t)dim[1]);
    return d;
}

/* Makes a tensor whose tokens of `row` elements have p elements of padding between them. If gap > 0, it makes
 * contiguous sequences with `gap` elements between them instead. */
static void *bind_rows(pb_binder *b, const char *name, const int *dim, size_t row, size_t p, size_t gap, bool out)
{
    const size_t T = (size_t)dim[0] * dim[1], seq = (size_t)dim[1] * row;
    if (!row) return NULL;
    if (out)
        return gap ? pb_out_ld(b, name, b->dtype, dim[0], seq, seq + gap)
                   : pb_out_ld(b, name, b->dtype, T, row, row + p);
    return (void *)(gap ? pb_in_ld(b, name, b->dtype, dim[0], seq, seq + gap)
                        : pb_in_ld(b, name, b->dtype, T, row, row + p));
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const bound d = bound_of(dim);
    const size_t S = (size_t)dim[1], p = d.p;
    *(pb_rope_fwd_args *)args = (pb_rope_fwd_args){
        .q = bind_rows(b, "q", dim, d.q, p, d.gap, false),
        .k = bind_rows(b, "k", dim, d.k, 2 * p, 2 * d.gap, false),
        .cos = pb_in(b, "cos", PB_F32, d.table),
        .sin = pb_in(b, "sin", PB_F32, d.table),
        .pos = dim[7] % 2 ? pb_in_range(b, "pos", PB_I32, d.pos, 0, d.P) : NULL,
        .qr = bind_rows(b, "qr", dim, d.q, 3 * p, 3 * d.gap, true),
        .kr = bind_rows(b, "kr", dim, d.k, 4 * p, 4 * d.gap, true),
        .B = dim[0],
        .S = dim[1],
        .H = dim[2],
        .K = dim[3],
        .D = dim[4],
        .P = d.P,
        .ldq = d.q + p,
        .ldk = d.k + 2 * p,
        .ldqr = d.q + 3 * p,
        .ldkr = d.k + 4 * p,
        .seqq = d.gap ? S * d.q + d.gap : 0,
        .seqk = d.gap ? S * d.k + 2 * d.gap : 0,
        .seqqr = d.gap ? S * d.q + 3 * d.gap : 0,
        .seqkr = d.gap ? S * d.k + 4 * d.gap : 0,
        .ldpos = d.ldpos,
        .R = d.R,
        .first = d.first,
        .step = d.step,
        .pairing = dim[5] % 2 ? PB_ROPE_ADJACENT : PB_ROPE_HALF,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const bound d = bound_of(dim);
    const size_t S = (size_t)dim[1], p = d.p;
    *(pb_rope_bwd_args *)args = (pb_rope_bwd_args){
        .dqr = bind_rows(b, "dqr", dim, d.q, 3 * p, 3 * d.gap, false),
        .dkr = bind_rows(b, "dkr", dim, d.k, 4 * p, 4 * d.gap, false),
        .cos = pb_in(b, "cos", PB_F32, d.table),
        .sin = pb_in(b, "sin", PB_F32, d.table),
        .pos = dim[7] % 2 ? pb_in_range(b, "pos", PB_I32, d.pos, 0, d.P) : NULL,
        .dq = bind_rows(b, "dq", dim, d.q, p, d.gap, true),
        .dk = bind_rows(b, "dk", dim, d.k, 2 * p, 2 * d.gap, true),
        .B = dim[0],
        .S = dim[1],
        .H = dim[2],
        .K = dim[3],
        .D = dim[4],
        .P = d.P,
        .lddqr = d.q + 3 * p,
        .lddkr = d.k + 4 * p,
        .lddq = d.q + p,
        .lddk = d.k + 2 * p,
        .seqdqr = d.gap ? S * d.q + 3 * d.gap : 0,
        .seqdkr = d.gap ? S * d.k + 4 * d.gap : 0,
        .seqdq = d.gap ? S * d.q + d.gap : 0,
        .seqdk = d.gap ? S * d.k + 2 * d.gap : 0,
        .ldpos = d.ldpos,
        .R = d.R,
        .first = d.first,
        .step = d.step,
        .pairing = dim[5] % 2 ? PB_ROPE_ADJACENT : PB_ROPE_HALF,
        .dtype = b->dtype,
    };
    return b->status;
}

/* Rotating a pair takes six operations. Every element of q and k is read and written once (in place: the rotated
 * elements only), and the used rows of cos and sin are read once. */
static pb_cost cost(const pb_rope_rows *r)
{
    const double rows = (double)r->B * r->S, e = (double)pb_dtype_size(r->dtype);
    pb_cost c = {.bytes = (double)(r->S < r->P ? r->S : r->P) * r->R * 4};
    for (int k = 0; k < 2; k++) {
        c.flops += 3 * rows * r->heads[k] * r->R;
        c.bytes += 2 * rows * r->heads[k] * (r->x[k] == r->y[k] ? r->R : r->D) * e;
    }
    return c;
}

static pb_cost fwd_cost(const void *args)
{
    const pb_rope_rows r = pb_rope_fwd_rows(args);
    return cost(&r);
}

static pb_cost bwd_cost(const void *args)
{
    const pb_rope_rows r = pb_rope_bwd_rows(args);
    return cost(&r);
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
