/* normuon_fast.c - the vectorised NorMuon ops. momentum and apply divide all pieces into chunks, which threads take
 * dynamically; they are limited by memory bandwidth. */
#include <math.h>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/normuon/normuon_rule.h"

enum { CHUNK = 16384 }; /* elements: long enough for the prefetchers, short enough to balance the load */

/* Fills first[n+1] with the number of chunks before each piece. */
static size_t divide(const pb_normuon_piece *list, int n, size_t *first)
{
    first[0] = 0;
    for (int i = 0; i < n; i++) first[i + 1] = first[i] + (list[i].n + CHUNK - 1) / CHUNK;
    return first[n];
}

/* ---- momentum ----------------------------------------------------------------------------------------------- */

PB_INLINE void advance(const pb_normuon_piece *p, const pb_normuon_momentum_args *a, float scale, size_t i, int n)
{
    const vf g = vf_get(p->grad, i, PB_F32, n) * scale, m = vf_fma(vf_get(p->m, i, PB_F32, n), vf_set(a->mu), g);
    if (a->keep) vf_put(p->m, i, PB_F32, m, n);
    vf u = m;
    if (a->nesterov) u = vf_fma(m, vf_set(a->mu), g);
    vf_put(p->u, i, a->dtype, u, n);
}

static void advance_chunk(const pb_normuon_momentum_args *a, const pb_normuon_piece *p, size_t chunk, bool skip)
{
    const float scale = (float)pb_normuon_scale(&a->when, p->clip);
    const size_t e = pb_dtype_size(a->dtype), begin = chunk * CHUNK;
    const size_t end = p->n - begin < CHUNK ? p->n : begin + CHUNK;
    if (skip) {
        memset((unsigned char *)p->u + begin * e, 0, (end - begin) * e);
        return;
    }
    for (size_t i = begin; i < end; i += PB_VLEN) advance(p, a, scale, i, end - i < PB_VLEN ? (int)(end - i) : PB_VLEN);
}

pb_status PB_FAST(pb_normuon_momentum)(pb_ctx *ctx, const void *args)
{
    const pb_normuon_momentum_args *a = args;
    size_t *first = ctx->scratch;
    const size_t chunks = divide(a->list, a->n, first);
    const bool skip = pb_normuon_skips(&a->when);
#pragma omp parallel for schedule(dynamic) if (chunks > 1)
    for (size_t k = 0; k < chunks; k++) {
        const int i = pb_chunk_tensor(first, a->n, k);
        advance_chunk(a, &a->list[i], k - first[i], skip);
    }
    return PB_OK;
}

/* ---- check -------------------------------------------------------------------------------------------------- */

/* Returns whether elements begin .. end-1 have one that is not finite: x - x is 0 for finite x, else NaN. */
static bool any_wild(const pb_normuon_check_args *a, size_t begin, size_t end)
{
    vf sum = {0};
    for (size_t i = begin; i < end; i += PB_VLEN) {
        const vf x = vf_get(a->x, i, a->dtype, end - i < PB_VLEN ? (int)(end - i) : PB_VLEN);
        sum += x - x;
    }
    return !(vf_sum(sum) == 0);
}

pb_status PB_FAST(pb_normuon_check)(pb_ctx *ctx, const void *args)
{
    const pb_normuon_check_args *a = args;
    const size_t chunks = (a->n + CHUNK - 1) / CHUNK;
    int wild = 0;
    (void)ctx;
#pragma omp parallel for schedule(static) reduction(| : wild) if (chunks > 1)
    for (size_t k = 0; k < chunks; k++)
        wild |= any_wild(a, k * CHUNK, a->n - k * CHUNK < CHUNK ? a->n : (k + 1) * CHUNK);
    *a->flag = (float)wild;
    return PB_OK;
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

/* Returns the sum of squares of n elements. Rows are added in parts of a fixed length, in double. */
static double squares(const void *x, size_t at, size_t n, pb_dtype t)
{
    enum { PART = 64 * PB_VLEN };
    double all = 0;
    for (size_t from = 0; from < n; from += PART) {
        const size_t end = n - from < PART ? n : from + PART;
        vf sum = {0};
        for (size_t i = from; i < end; i += PB_VLEN) {
            const vf v = vf_get(x, at + i, t, end - i < PB_VLEN ? (int)(end - i) : PB_VLEN);
            sum += v * v;
        }
        all += (double)vf_sum(sum);
    }
    return all;
}

/* Updates v of a block, and writes f. */
static void block_rows(const pb_normuon_rows_args *a, const pb_normuon_block *b)
{
    double before = 0, after = 0;
    for (int i = 0; i < b->rows; i++) {
        const double s = squares(b->u, (size_t)i * (size_t)b->cols, (size_t)b->cols, a->dtype);
        const double v = (double)b->v[i] + (1 - (double)a->beta2) * (s / b->cols - (double)b->v[i]);
        const double h = 1 / (sqrt(v) + PB_NORMUON_EPS);
        b->v[i] = (float)v;
        b->factor[i] = (float)h;
        before += s;
        after += s * h * h;
    }
    const double norm = sqrt(after), rescale = sqrt(before) / (norm > PB_NORMUON_EPS ? norm : PB_NORMUON_EPS);
    for (int i = 0; i < b->rows; i++) b->factor[i] = (float)((double)b->factor[i] * rescale);
}

pb_status PB_FAST(pb_normuon_rows)(pb_ctx *ctx, const void *args)
{
    const pb_normuon_rows_args *a = args;
    (void)ctx;
    if (pb_normuon_skips(&a->when)) return PB_OK;
#pragma omp parallel for schedule(dynamic) if (a->elements > 16384)
    for (int i = 0; i < a->n; i++) block_rows(a, &a->list[i]);
    return PB_OK;
}

/* ---- apply -------------------------------------------------------------------------------------------------- */

/* The coefficients of a piece's update: scale of the gradient, lr r, and 1 - lr wd. */
typedef struct coefs {
    float scale, step, keep;
} coefs;

static coefs coefs_of(const pb_normuon_apply_args *a, const pb_normuon_piece *p)
{
    const double lr = (double)a->state->lr * (double)a->rate;
    return (coefs){.scale = (float)pb_normuon_scale(&a->when, p->clip),
                   .step = (float)(lr * pb_normuon_adjust(a->adjust, p->rows, p->cols)),
                   .keep = (float)(1 - lr * (double)p->decay)};
}

/* Updates elements i .. i+n-1, n <= PB_VLEN, of a row whose update is multiplied by `step`. */
PB_INLINE void update(const pb_normuon_apply_args *a, const pb_normuon_piece *p, const coefs *c, float step, size_t i,
                      int n)
{
    float *const w = p->master ? p->master : p->w;
    const vf old = vf_get(w, i, PB_F32, n), u = vf_get(p->u, i, a->dtype, n);
    vf keep = vf_set(c->keep);
    if (a->cautious) keep = vf_select(old * u >= 0, keep, vf_set(1));
    const vf x = old * keep - u * step;
    vf_put(w, i, PB_F32, x, n);
    if (p->master) vf_put(p->w, i, p->wdtype, x, n);
    if (!a->commit) return;
    const vf g = vf_get(p->grad, i, PB_F32, n) * c->scale;
    vf_put(p->m, i, PB_F32, vf_fma(vf_get(p->m, i, PB_F32, n), vf_set(a->mu), g), n); /* the bits of `advance` */
}

static void update_chunk(const pb_normuon_apply_args *a, const pb_normuon_piece *p, size_t chunk)
{
    const coefs c = coefs_of(a, p);
    const size_t cols = (size_t)p->cols, begin = chunk * CHUNK;
    const size_t end = p->n - begin < CHUNK ? p->n : begin + CHUNK;
    for (size_t i = begin, upto; i < end; i = upto) {
        const size_t row = (p->first + i) / cols, row_end = (row + 1) * cols - p->first;
        const float step = c.step * p->factor[row];
        upto = row_end < end ? row_end : end;
        for (size_t k = i; k < upto; k += PB_VLEN)
            update(a, p, &c, step, k, upto - k < PB_VLEN ? (int)(upto - k) : PB_VLEN);
    }
}

pb_status PB_FAST(pb_normuon_apply)(pb_ctx *ctx, const void *args)
{
    const pb_normuon_apply_args *a = args;
    size_t *first = ctx->scratch;
    if (pb_normuon_skips(&a->when)) return PB_OK;
    const size_t chunks = divide(a->list, a->n, first);
#pragma omp parallel for schedule(dynamic) if (chunks > 1)
    for (size_t k = 0; k < chunks; k++) {
        const int i = pb_chunk_tensor(first, a->n, k);
        update_chunk(a, &a->list[i], k - first[i]);
    }
    return PB_OK;
}
