/* compressor_fast.c - the compressor (softmax-gated pooling of tokens) on the CPU with SIMD over channels. A thread
 * owns whole rows. The candidates of a vector of channels are read several times, for the maximum, the sum and the
 * gradients; they stay in L1 between these reads. Memory-bound.
 *
 * Backward pass: rows are divided into runs (rows.h), each with its own partial sum of dape. Channels are divided into
 * blocks as well, because a large ratio leaves few rows. */
#include "kernels/compressor/compressor.h"
#include "kernels/compressor/groups.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"

enum { BLOCK = 64 }; /* channels */

typedef struct pool {
    pb_groups s;
    const void *a, *z, *dc;
    const float *ape;
    const int32_t *start;
    void *da, *dz, *c;
    size_t lda, ldz, ldda, lddz;
    pb_dtype t;
} pool;

/* `ratio` consecutive candidates of a vector of channels. Candidate i of lane l is at (token + i) ld + col + l in a or
 * z. */
typedef struct segment {
    size_t token, col;
} segment;

/* Finds the unmasked candidates of channel e of row (b,g). Returns the number of segments, 1 or 2. */
static inline int segments_of(const pool *p, int b, int g, int e, segment *out)
{
    const size_t own = (size_t)b * (size_t)p->s.S + (size_t)g * (size_t)p->s.ratio;
    int n = 0;
    if (p->s.overlap && pb_group_from(&p->s, p->start, b, g) == 0)
        out[n++] = (segment){own - (size_t)p->s.ratio, (size_t)e};
    out[n++] = (segment){own, (size_t)(p->s.overlap ? p->s.D + e : e)};
    return n;
}

PB_INLINE vf gate_in(const pool *p, const segment *k, int i, int n, pb_dtype t)
{
    return vf_get(p->z, (k->token + (size_t)i) * p->ldz + k->col, t, n) +
           vf_get(p->ape, (size_t)i * (size_t)p->s.C + k->col, PB_F32, n);
}

typedef struct pooled {
    vf most, inverse, c; /* largest gate; 1 / sum of the exponentials; pooled value */
} pooled;

PB_INLINE pooled pool_vector(const pool *p, const segment *seg, int segments, int n, pb_dtype t)
{
    vf most = vf_set(-__builtin_inff()), sum = {0}, c = {0};
    for (int k = 0; k < segments; k++)
        for (int i = 0; i < p->s.ratio; i++) most = vf_max(most, gate_in(p, &seg[k], i, n, t));
    for (int k = 0; k < segments; k++) {
        vf s = {0}, v = {0}; /* separate sums for each segment halve the rounding error */
        for (int i = 0; i < p->s.ratio; i++) {
            const vf w = vf_exp_neg(gate_in(p, &seg[k], i, n, t) - most);
            s += w;
            v += w * vf_get(p->a, (seg[k].token + (size_t)i) * p->lda + seg[k].col, t, n);
        }
        sum += s, c += v;
    }
    return (pooled){most, 1.0f / sum, c / sum};
}

PB_INLINE void forward_row(const pool *p, size_t r, pb_dtype t, pb_dtype out)
{
    const int b = (int)(r / (size_t)p->s.G), g = (int)(r % (size_t)p->s.G);
    segment seg[2];
    for (int e = 0; e < p->s.D; e += PB_VLEN) {
        const int n = p->s.D - e < PB_VLEN ? p->s.D - e : PB_VLEN, segments = segments_of(p, b, g, e, seg);
        vf_put(p->c, r * (size_t)p->s.D + (size_t)e, out, pool_vector(p, seg, segments, n, t).c, n);
    }
}

/* Computes da and dz of one segment for a vector of channels. Also adds dz to the partial
 * sum dape, unless it is NULL. */
PB_INLINE void spread(const pool *p, const segment *k, const pooled *row, vf dc, float *dape, int n, pb_dtype t)
{
    for (int i = 0; i < p->s.ratio; i++) {
        const size_t token = k->token + (size_t)i, cell = (size_t)i * (size_t)p->s.C + k->col;
        const vf da = vf_exp_neg(gate_in(p, k, i, n, t) - row->most) * row->inverse * dc;
        const vf dz = da * (vf_get(p->a, token * p->lda + k->col, t, n) - row->c);
        vf_put(p->da, token * p->ldda + k->col, t, da, n);
        vf_put(p->dz, token * p->lddz + k->col, t, dz, n);
        if (dape) vf_put(dape, cell, PB_F32, vf_get(dape, cell, PB_F32, n) + dz, n);
    }
}

/* Sets the gradients of columns col .. col+n-1 to zero, for tokens that no row pools. */
static void clear(const pool *p, size_t token, int tokens, int col, int n)
{
    const size_t e = pb_dtype_size(p->t);
    for (size_t t = token; t < token + (size_t)tokens; t++) {
        memset((char *)p->da + (t * p->ldda + (size_t)col) * e, 0, (size_t)n * e);
        memset((char *)p->dz + (t * p->lddz + (size_t)col) * e, 0, (size_t)n * e);
    }
}

/* Computes the backward pass of channels from .. to-1 of one row. */
PB_INLINE void backward_row(const pool *p, size_t r, int from, int to, float *dape, pb_dtype t, pb_dtype out)
{
    const int b = (int)(r / (size_t)p->s.G), g = (int)(r % (size_t)p->s.G);
    segment seg[2];
    for (int e = from; e < to; e += PB_VLEN) {
        const int n = to - e < PB_VLEN ? to - e : PB_VLEN, segments = segments_of(p, b, g, e, seg);
        const pooled row = pool_vector(p, seg, segments, n, t);
        const vf dc = vf_get(p->dc, r * (size_t)p->s.D + (size_t)e, out, n);
        for (int k = 0; k < segments; k++) spread(p, &seg[k], &row, dc, dape, n, t);
    }
    if (!pb_group_first_used(&p->s, p->start, b, g))
        clear(p, (size_t)b * (size_t)p->s.S + (size_t)g * (size_t)p->s.ratio, p->s.ratio, from, to - from);
}

pb_status PB_FAST(pb_compressor_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_compressor_fwd_args *a = args;
    const pool p = {.s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap),
                    .a = a->a,
                    .z = a->z,
                    .ape = a->ape,
                    .start = a->start,
                    .c = a->c,
                    .lda = a->lda,
                    .ldz = a->ldz,
                    .t = a->in_dtype};
    (void)ctx;
#pragma omp parallel for schedule(static) if (p.s.rows * (size_t)(p.s.ratio * p.s.C) > 8192)
    for (size_t r = 0; r < p.s.rows; r++) {
        if (p.t == PB_F32) forward_row(&p, r, PB_F32, a->dtype);
        else forward_row(&p, r, PB_BF16, a->dtype);
    }
    return PB_OK;
}

pb_status PB_FAST(pb_compressor_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_compressor_bwd_args *a = args;
    const pool p = {.s = pb_groups_of(a->B, a->S, a->D, a->ratio, a->overlap),
                    .a = a->a,
                    .z = a->z,
                    .dc = a->dc,
                    .ape = a->ape,
                    .start = a->start,
                    .da = a->da,
                    .dz = a->dz,
                    .lda = a->lda,
                    .ldz = a->ldz,
                    .ldda = a->ldda,
                    .lddz = a->lddz,
                    .t = a->in_dtype};
    const size_t rows = p.s.rows, cells = (size_t)a->ratio * (size_t)p.s.C;
    const int parts = pb_dw_parts(rows), whole = p.s.G * a->ratio;
    float *sums = ctx->scratch;
    if (a->dape) memset(sums, 0, (size_t)parts * cells * sizeof *sums);
#pragma omp parallel for collapse(2) schedule(static) if (rows * cells > 8192)
    for (int i = 0; i < parts; i++)
        for (int e = 0; e < a->D; e += BLOCK) {
            float *mine = a->dape ? sums + (size_t)i * cells : NULL;
            const int to = a->D - e < BLOCK ? a->D : e + BLOCK;
            for (size_t r = pb_dw_first(rows, parts, i); r < pb_dw_first(rows, parts, i + 1); r++) {
                if (p.t == PB_F32) backward_row(&p, r, e, to, mine, PB_F32, a->dtype);
                else backward_row(&p, r, e, to, mine, PB_BF16, a->dtype);
            }
        }
    for (int b = 0; b < a->B; b++) clear(&p, (size_t)b * (size_t)a->S + (size_t)whole, a->S - whole, 0, p.s.C);
    if (a->dape) pb_dw_finish(a->dape, sums, parts, (int)cells, a->accumulate);
    return PB_OK;
}
