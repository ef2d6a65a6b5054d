/* compressor.c - softmax-gated pooling of tokens: the reference in double precision, and the pb_op descriptors of both
 * ops. */
#include "kernels/compressor/compressor.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/compressor/groups.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

/* ---- reference in double precision ---------------------------------------------------------- */

/* The arguments that the forward and the backward pass have in common, for pool(). */
typedef struct channel {
    const void *a, *z;
    const float *ape;
    size_t lda, ldz;
    int D, C, ratio;
    pb_dtype t;
} channel;

/* A candidate of a channel: its token within the sequence, its column of a and z, its row of ape. */
typedef struct candidate {
    size_t token;
    int col, pos;
} candidate;

static candidate candidate_of(const channel *c, bool overlap, size_t g, int i, int e)
{
    if (!overlap) return (candidate){g * (size_t)c->ratio + (size_t)i, e, i};
    if (i < c->ratio) return (candidate){(g - 1) * (size_t)c->ratio + (size_t)i, e, i};
    return (candidate){g * (size_t)c->ratio + (size_t)(i - c->ratio), c->D + e, i - c->ratio};
}

/* Computes the gates of candidates from .. n-1 into gate[]. Returns the pooled value. */
static double pool(const channel *c, bool overlap, size_t first, size_t g, int e, int from, int n, double *gate)
{
    double most = -INFINITY, sum = 0, pooled = 0;
    for (int i = from; i < n; i++) {
        const candidate k = candidate_of(c, overlap, g, i, e);
        gate[i] = pb_load(c->z, (first + k.token) * c->ldz + (size_t)k.col, c->t) +
                  (double)c->ape[(size_t)k.pos * (size_t)c->C + (size_t)k.col];
        most = fmax(most, gate[i]);
    }
    for (int i = from; i < n; i++) sum += gate[i] = exp(gate[i] - most);
    for (int i = from; i < n; i++) {
        const candidate k = candidate_of(c, overlap, g, i, e);
        gate[i] /= sum;
        pooled += gate[i] * pb_load(c->a, (first + k.token) * c->lda + (size_t)k.col, c->t);
    }
    return pooled;
}

static pb_status fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_compressor_fwd_args *a = args;
    const pb_groups s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    const channel c = {a->a, a->z, a->ape, a->lda, a->ldz, a->D, s.C, a->ratio, a->in_dtype};
    double *gate = malloc((size_t)s.n * sizeof *gate);
    (void)ctx;
    if (!gate) return pb_fail(PB_ENOMEM, "compressor: no host memory for %d gates", s.n);
    for (size_t r = 0; r < s.rows; r++) {
        const int from = pb_group_from(&s, a->start, (int)(r / (size_t)s.G), (int)(r % (size_t)s.G));
        for (int e = 0; e < a->D; e++)
            pb_store(a->c, r * (size_t)a->D + (size_t)e, a->dtype,
                     pool(&c, a->overlap, r / (size_t)s.G * (size_t)a->S, r % (size_t)s.G, e, from, s.n, gate));
    }
    free(gate);
    return PB_OK;
}

/* Sets da and dz to zero for the elements of a and z that contribute to no compressed row. */
static void clear_ref(const pb_compressor_bwd_args *a, const pb_groups *s)
{
    for (size_t t = 0; t < (size_t)a->B * (size_t)a->S; t++)
        for (int k = 0; k < s->C; k++) {
            const int b = (int)(t / (size_t)a->S), g = (int)(t % (size_t)a->S) / a->ratio;
            if (k < a->D ? pb_group_first_used(s, a->start, b, g) : pb_group_second_used(s, g)) continue;
            pb_store(a->da, t * a->ldda + (size_t)k, a->in_dtype, 0);
            pb_store(a->dz, t * a->lddz + (size_t)k, a->in_dtype, 0);
        }
}

static pb_status bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_compressor_bwd_args *a = args;
    const pb_groups s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    const channel c = {a->a, a->z, a->ape, a->lda, a->ldz, a->D, s.C, a->ratio, a->in_dtype};
    const size_t cells = (size_t)a->ratio * (size_t)s.C;
    double *gate = malloc((size_t)s.n * sizeof *gate), *dape = calloc(cells, sizeof *dape);
    (void)ctx;
    if (!gate || !dape) {
        free(gate), free(dape);
        return pb_fail(PB_ENOMEM, "compressor_bwd: no host memory for %zu sums", cells);
    }
    clear_ref(a, &s);
    for (size_t r = 0; r < s.rows; r++) {
        const size_t first = r / (size_t)s.G * (size_t)a->S, g = r % (size_t)s.G;
        const int from = pb_group_from(&s, a->start, (int)(r / (size_t)s.G), (int)g);
        for (int e = 0; e < a->D; e++) {
            const double dc = pb_load(a->dc, r * (size_t)a->D + (size_t)e, a->dtype);
            const double pooled = pool(&c, a->overlap, first, g, e, from, s.n, gate);
            for (int i = from; i < s.n; i++) {
                const candidate k = candidate_of(&c, a->overlap, g, i, e);
                const size_t t = first + k.token, col = (size_t)k.col;
                const double dz = gate[i] * (pb_load(a->a, t * a->lda + col, a->in_dtype) - pooled) * dc;
                pb_store(a->da, t * a->ldda + col, a->in_dtype, gate[i] * dc);
                pb_store(a->dz, t * a->lddz + col, a->in_dtype, dz);
                dape[(size_t)k.pos * (size_t)s.C + col] += dz;
            }
        }
    }
    for (size_t i = 0; a->dape && i < cells; i++)
        a->dape[i] = (float)(a->accumulate ? (double)a->dape[i] + dape[i] : dape[i]);
    free(gate), free(dape);
    return PB_OK;
}

/* ---- CPU implementations, best first, and the workspace that each needs ---------------------- */

PB_FAST_DECLARE(pb_compressor_fwd)
PB_FAST_DECLARE(pb_compressor_bwd)

static size_t bwd_workspace(const void *args)
{
    const pb_compressor_bwd_args *a = args;
    const pb_groups s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    return a->dape ? pb_dw_workspace(s.rows, a->ratio * s.C) : 0;
}

const pb_impl pb_compressor_fwd_cpu[] = {PB_FAST_IMPLS(pb_compressor_fwd){"ref", fwd_ref}, {0}};
const pb_impl pb_compressor_bwd_cpu[] = {PB_FAST_IMPLS(pb_compressor_bwd, .workspace = bwd_workspace){"ref", bwd_ref},
                                         {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs --------------------------- */

/* Axes of the shapes below: r: ratio; o = 1: overlap; n: conversations packed into a row, 0: start is NULL; m = 1: a
 * and z are f32 whatever dtype is; p: padding between tokens, in elements; a = 1: accumulate; f = 1: dape is NULL. */
static const char axes[] = "BSDronmpaf";
static const pb_dims edge[] = {
    {2, 9, 24, 4, 1, 0, 0, 0, 0, 0}, {2, 40, 64, 4, 1, 3, 0, 8, 1, 0},    {1, 3, 16, 4, 1, 0, 0, 0, 1, 0},
    {1, 7, 5, 4, 1, 2, 1, 3, 0, 0},  {2, 300, 32, 128, 0, 0, 0, 0, 0, 0}, {1, 256, 9, 128, 0, 1, 1, 1, 1, 0},
    {2, 8, 16, 1, 0, 0, 0, 0, 0, 1}, {1, 420, 40, 140, 0, 3, 0, 8, 0, 0}, {1, 130, 128, 4, 1, 5, 1, 0, 0, 1},
    {1, 61, 24, 20, 1, 3, 0, 0, 0},  {1, 600, 16, 4, 1, 0, 0, 0, 0, 0},   {0},
};
static const pb_dims grid[] = {{1, 4096, 512, 4, 1}, {1, 4096, 512, 128, 0}, {1, 4096, 128, 4, 1, 0, 1}, {0}};
static const pb_dims device_grid[] = {{1, 65536, 512, 4, 1}, {1, 65536, 512, 128, 0}, {0}};

static pb_status sizes_check(const char *op, int B, int S, int D, int ratio, bool overlap, const size_t *ld, int n)
{
    if (B < 0 || S < 0 || D < 1 || ratio < 1)
        return pb_fail(PB_EINVAL, "%s: B=%d S=%d D=%d ratio=%d, need B, S >= 0 and D, ratio >= 1", op, B, S, D, ratio);
    const size_t C = (size_t)D * (overlap ? 2 : 1);
    for (int i = 0; i < n; i++)
        if (ld[i] < C)
            return pb_fail(PB_EINVAL, "%s: tokens of a tensor are %zu elements apart, need at least %zu", op, ld[i], C);
    return PB_OK;
}

static pb_status fwd_check(const void *args)
{
    const pb_compressor_fwd_args *a = args;
    const size_t ld[] = {a->lda, a->ldz};
    PB_TRY(sizes_check("compressor", a->B, a->S, a->D, a->ratio, a->overlap, ld, 2));
    if (a->B && a->S / a->ratio && (!a->a || !a->z || !a->ape || !a->c))
        return pb_fail(PB_EINVAL, "compressor: a tensor is NULL");
    return PB_OK;
}

static pb_status bwd_check(const void *args)
{
    const pb_compressor_bwd_args *a = args;
    const size_t ld[] = {a->lda, a->ldz, a->ldda, a->lddz};
    PB_TRY(sizes_check("compressor_bwd", a->B, a->S, a->D, a->ratio, a->overlap, ld, 4));
    if (a->B && a->S && (!a->a || !a->z || !a->da || !a->dz))
        return pb_fail(PB_EINVAL, "compressor_bwd: a tensor is NULL");
    if (a->B && a->S / a->ratio && (!a->ape || !a->dc)) return pb_fail(PB_EINVAL, "compressor_bwd: ape or dc is NULL");
    return PB_OK;
}

static pb_status fwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], C = (size_t)dim[2] * (dim[4] ? 2 : 1), p = (size_t)dim[7];
    const pb_dtype in = dim[6] ? PB_F32 : b->dtype;
    *(pb_compressor_fwd_args *)args = (pb_compressor_fwd_args){
        .a = pb_in_ld(b, "a", in, T, C, C + p),
        .z = pb_in_ld(b, "z", in, T, C, C + 2 * p),
        .ape = pb_in(b, "ape", PB_F32, (size_t)dim[3] * C),
        .start = dim[5] ? pb_in_range(b, "start", PB_I32, T, 0, dim[5]) : NULL,
        .c = pb_out(b, "c", b->dtype, (size_t)dim[0] * (dim[1] / dim[3]) * dim[2]),
        .B = dim[0],
        .S = dim[1],
        .D = dim[2],
        .ratio = dim[3],
        .overlap = dim[4],
        .lda = C + p,
        .ldz = C + 2 * p,
        .in_dtype = in,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_status bwd_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t T = (size_t)dim[0] * dim[1], C = (size_t)dim[2] * (dim[4] ? 2 : 1), p = (size_t)dim[7];
    const size_t cells = (size_t)dim[3] * C;
    const pb_dtype in = dim[6] ? PB_F32 : b->dtype;
    *(pb_compressor_bwd_args *)args = (pb_compressor_bwd_args){
        .dc = pb_in(b, "dc", b->dtype, (size_t)dim[0] * (dim[1] / dim[3]) * dim[2]),
        .a = pb_in_ld(b, "a", in, T, C, C + p),
        .z = pb_in_ld(b, "z", in, T, C, C + 2 * p),
        .ape = pb_in(b, "ape", PB_F32, cells),
        .start = dim[5] ? pb_in_range(b, "start", PB_I32, T, 0, dim[5]) : NULL,
        .da = pb_out_ld(b, "da", in, T, C, C + 2 * p),
        .dz = pb_out_ld(b, "dz", in, T, C, C + p),
        .dape = dim[9]   ? NULL
                : dim[8] ? pb_inout(b, "dape", PB_F32, cells, -1, 1)
                         : pb_out(b, "dape", PB_F32, cells),
        .B = dim[0],
        .S = dim[1],
        .D = dim[2],
        .ratio = dim[3],
        .overlap = dim[4],
        .lda = C + p,
        .ldz = C + 2 * p,
        .ldda = C + 2 * p,
        .lddz = C + p,
        .accumulate = dim[8],
        .in_dtype = in,
        .dtype = b->dtype,
    };
    return b->status;
}

/* Replaces the seeded values of `start`, random numbers below n, by the starts of n conversations of equal length. bind
 * cannot make these, because it draws every element independently. The first conversation gets -1, which means 0. */
static void make_starts(int32_t *start, size_t T, size_t S)
{
    size_t n = 1;
    for (size_t t = 0; t < T; t++) n = (size_t)start[t] + 1 > n ? (size_t)start[t] + 1 : n;
    for (size_t t = 0; t < T; t++) {
        const size_t m = t % S * n / S; /* conversation m starts at the first token t with t >= m S / n */
        start[t] = m ? (int32_t)((m * S + n - 1) / n) : -1;
    }
}

/* Scales z by 4, so that the softmax differs clearly from a mean. Replaces `start`, unless it is NULL (see
 * make_starts). */
static pb_status prepare(const void *z, size_t ld, size_t T, size_t C, pb_dtype t, const int32_t *start, size_t S)
{
    for (size_t i = 0; i < T; i++)
        for (size_t k = 0; k < C; k++) pb_store((void *)z, i * ld + k, t, 4 * pb_load(z, i * ld + k, t));
    if (start) make_starts((int32_t *)start, T, S);
    return PB_OK;
}

static pb_status fwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_compressor_fwd_args *a = args;
    (void)cpu;
    return prepare(a->z, a->ldz, (size_t)a->B * (size_t)a->S, (size_t)a->D * (a->overlap ? 2 : 1), a->in_dtype,
                   a->start, (size_t)a->S);
}

static pb_status bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_compressor_bwd_args *a = args;
    (void)cpu;
    return prepare(a->z, a->ldz, (size_t)a->B * (size_t)a->S, (size_t)a->D * (a->overlap ? 2 : 1), a->in_dtype,
                   a->start, (size_t)a->S);
}

/* The op reads a and z once. A gate costs one exponential, which counts as one operation, and six other operations; in
 * the backward pass twelve others. */
static pb_cost fwd_cost(const void *args)
{
    const pb_compressor_fwd_args *a = args;
    const pb_groups s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    const double n = (double)s.rows * s.ratio * s.C, out = (double)s.rows * s.D;
    return (pb_cost){.flops = 7 * n,
                     .bytes = 2 * n * (double)pb_dtype_size(a->in_dtype) + out * (double)pb_dtype_size(a->dtype)};
}

static pb_cost bwd_cost(const void *args)
{
    const pb_compressor_bwd_args *a = args;
    const pb_groups s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap);
    const double n = (double)s.rows * s.ratio * s.C, in = (double)s.rows * s.D;
    return (pb_cost){.flops = 13 * n,
                     .bytes = 4 * n * (double)pb_dtype_size(a->in_dtype) + in * (double)pb_dtype_size(a->dtype)};
}

const pb_op pb_op_compressor_fwd = {
    .name = "compressor_fwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_compressor_fwd_args),
    .impls = PB_BOTH_BACKENDS(compressor, fwd),
    .check = fwd_check,
    .bind = fwd_bind,
    .prepare = fwd_prepare,
    .cost = fwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
};
const pb_op pb_op_compressor_bwd = {
    .name = "compressor_bwd",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_compressor_bwd_args),
    .impls = PB_BOTH_BACKENDS(compressor, bwd),
    .check = bwd_check,
    .bind = bwd_bind,
    .prepare = bwd_prepare,
    .cost = bwd_cost,
    .tol = {[PB_F32] = 1e-6, [PB_BF16] = 4e-3},
    .grad_of = &pb_op_compressor_fwd,
};
