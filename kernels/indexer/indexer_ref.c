/* indexer_ref.c - the reference implementations of the indexer's ops: plain loops in double. */
#include "kernels/indexer/indexer_ref.h"

#include <float.h>

#include "kernels/indexer/e4m3.h"
#include "kernels/indexer/visible.h"
#include "kernels/topk/topk_fast.h"

/* Returns element d of row r of x: a value, or a code times the row's scale. */
static double element(const void *x, const float *scale, size_t r, int d, int D, pb_dtype t)
{
    if (!scale) return pb_load(x, r * D + d, t);
    return (double)pb_e4m3_decode(((const uint8_t *)x)[r * D + d]) * (double)scale[r];
}

/* head_at returns the row index of head (b,t,h) in q, group_at the row index of group (b,g) in k. */
static size_t head_at(const pb_indexer *x, int b, int t, int h) { return ((size_t)b * x->S + t) * x->H + h; }
static size_t group_at(const pb_indexer *x, int b, int g) { return (size_t)b * x->G + g; }

static double product(const pb_indexer *x, size_t head, size_t group)
{
    double u = 0;
    for (int d = 0; d < x->D; d++)
        u += element(x->q, x->q_scale, head, d, x->D, x->dtype) * element(x->k, x->k_scale, group, d, x->D, x->dtype);
    return u;
}
static double relu(double u) { return u < 0 ? 0 : u; } /* a NaN is returned unchanged */

static double score(const pb_indexer *x, int b, int t, int g)
{
    double s = 0;
    for (int h = 0; h < x->H; h++) {
        const size_t head = head_at(x, b, t, h);
        s += (double)x->w[head] * relu(product(x, head, group_at(x, b, g)));
    }
    return s;
}

pb_status pb_indexer_quantize_ref(pb_ctx *ctx, const void *args)
{
    const pb_indexer_quantize_args *a = args;
    (void)ctx;
    for (size_t r = 0; r < (size_t)a->N; r++) {
        float amax = 0;
        bool finite = true;
        for (int d = 0; d < a->D; d++) {
            const float x = fabsf((float)pb_load(a->x, r * a->D + d, a->dtype));
            finite &= x <= FLT_MAX;
            if (x > amax) amax = x;
        }
        a->scale[r] = finite ? pb_e4m3_scale(amax, a->f32_scale) : NAN;
        for (int d = 0; d < a->D; d++)
            a->code[r * a->D + d] = pb_e4m3_encode((float)pb_load(a->x, r * a->D + d, a->dtype) / a->scale[r]);
    }
    return PB_OK;
}

/* Computes the scores of query t, [G]. */
static void score_row(const pb_indexer *x, const int32_t *start, int ratio, int b, int t, float *to)
{
    const pb_visible v = pb_visible_to(x->offset + t, start ? start[(size_t)b * x->S + t] : 0, ratio, x->G);
    for (int g = 0; g < x->G; g++) to[g] = g >= v.lo && g < v.hi ? (float)score(x, b, t, g) : -INFINITY;
}

pb_status pb_indexer_scores_ref(pb_ctx *ctx, const void *args)
{
    const pb_indexer_scores_args *a = args;
    (void)ctx;
    for (int b = 0; a->x.G && b < a->x.B; b++)
        for (int i = 0; i < a->n; i++)
            score_row(&a->x, a->start, a->ratio, b, a->first + i, a->score + ((size_t)b * a->n + i) * a->x.G);
    return PB_OK;
}

size_t pb_indexer_pick_ref_workspace(const void *args)
{
    return (size_t)((const pb_indexer_pick_args *)args)->x.G * (sizeof(uint64_t) + sizeof(float));
}

pb_status pb_indexer_pick_ref(pb_ctx *ctx, const void *args)
{
    const pb_indexer_pick_args *a = args;
    uint64_t *room = ctx->scratch;
    float *row = (void *)(room + a->x.G);
    for (size_t t = 0; t < (size_t)a->x.B * a->x.S; t++) {
        score_row(&a->x, a->start, a->ratio, (int)(t / a->x.S), (int)(t % a->x.S), row);
        pb_topk_row_ref(row, a->x.G, a->K, a->pick + t * a->K, room);
    }
    return PB_OK;
}

pb_status pb_indexer_at_ref(pb_ctx *ctx, const void *args)
{
    const pb_indexer_at_args *a = args;
    (void)ctx;
    for (size_t i = 0; i < (size_t)a->x.B * a->x.S * a->K; i++) {
        const size_t t = i / a->K;
        const int32_t g = a->pick[i];
        a->score[i] = g < 0 || g >= a->x.G ? 0 : (float)score(&a->x, (int)(t / a->x.S), (int)(t % a->x.S), g);
    }
    return PB_OK;
}

size_t pb_indexer_bwd_ref_workspace(const void *args)
{
    const pb_indexer *x = &((const pb_indexer_bwd_args *)args)->x;
    return ((size_t)x->G + 1) * x->D * sizeof(double);
}

/* Computes the backward pass of one head of one token: writes dq [D] and dw, adds to dk [G,D]. */
static void bwd_head(const pb_indexer_bwd_args *a, int b, int t, int h, double *dq, double *dk)
{
    const pb_indexer *x = &a->x;
    const size_t head = head_at(x, b, t, h), slots = ((size_t)b * x->S + t) * a->K;
    double dw = 0;
    for (int d = 0; d < x->D; d++) dq[d] = 0;
    for (int j = 0; j < a->K; j++) {
        const int32_t g = a->pick[slots + j];
        if (g < 0 || g >= x->G) continue;
        const double ds = (double)a->dscore[slots + j], u = product(x, head, group_at(x, b, g));
        const double du = u > 0 ? ds * (double)x->w[head] : 0;
        dw += ds * relu(u);
        for (int d = 0; d < x->D; d++) {
            dq[d] += du * pb_load(x->k, group_at(x, b, g) * x->D + d, x->dtype);
            dk[(size_t)g * x->D + d] += du * pb_load(x->q, head * x->D + d, x->dtype);
        }
    }
    a->dw[head] = (float)dw;
    for (int d = 0; d < x->D; d++) pb_store(a->dq, head * x->D + d, x->dtype, dq[d]);
}

pb_status pb_indexer_bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_indexer_bwd_args *a = args;
    const size_t n = (size_t)a->x.G * a->x.D;
    double *dq = ctx->scratch, *dk = dq + a->x.D;
    for (int b = 0; b < a->x.B; b++) {
        for (size_t e = 0; e < n; e++) dk[e] = 0;
        for (int t = 0; t < a->x.S; t++)
            for (int h = 0; h < a->x.H; h++) bwd_head(a, b, t, h, dq, dk);
        for (size_t e = 0; e < n; e++) pb_store(a->dk, b * n + e, pb_indexer_dk_dtype(a), dk[e]);
    }
    return PB_OK;
}
