/* indexer_fast.c - the indexer on the CPU with SIMD: groups along the lanes for scores, heads along the lanes for
 * listed groups.
 *
 * Ops scores and pick: a task owns QUERIES queries and processes KEYS groups at a time from a transposed tile, so that
 * the weighted sum over heads needs no sum across lanes. pick keeps the scores of a task's queries and selects the top
 * K groups from them before the next task. Ops at and bwd: the listed rows of k are gathered KEYS at a time; masked
 * slots are skipped. For dk, a task owns a fixed part of a batch row's queries and has its own partial sum; these are
 * added in order. All products use tile.h. Bound by FMA throughput. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/attention/tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"
#include "kernels/indexer/e4m3.h"
#include "kernels/indexer/plan.h"
#include "kernels/indexer/visible.h"

static vf relu(vf u) { return vf_max(vf_set(0), u); } /* a NaN is returned unchanged */

/* ---- the op quantize ------------------------------------------------------------------------------------ */

/* Converts x to E4M3 codes. Rounds like pb_e4m3_encode in e4m3.h, bit for bit. */
static vu encode(vf x)
{
    const vu bits = (vu)x, sign = bits >> 24 & 0x80u;
    const vf size = vf_min((vf)(bits & 0x7fffffffu), vf_set(448)); /* 448 for NaN, which is replaced below */
    const vu fine = (vu)(size + 0x1p14f) - (vu)vf_set(0x1p14f), s = (vu)size;
    const vu coarse = ((s + 0x7ffffu + (s >> 20 & 1u)) >> 20) - (120u << 3);
    const vu code = sign | (vu)vf_select(size < 0x1p-6f, (vf)fine, (vf)coarse);
    return (vu)vf_select(x != x, (vf)(vu)(code * 0u + 0x7fu), (vf)code);
}

static void quantize_row(const pb_indexer_quantize_args *a, size_t r)
{
    vf most = {0}, nan = {0};
    for (int d = 0; d < a->D; d += PB_VLEN) {
        const vf x = load_some(a->x, r * a->D + d, a->dtype, a->D - d);
        most = vf_max(most, (vf)((vu)x & 0x7fffffffu));
        nan += x * 0.0f; /* NaN for infinities too */
    }
    const float amax = vf_hmax(most);
    a->scale[r] = vf_sum(nan) == 0 ? pb_e4m3_scale(amax, a->f32_scale) : NAN;
    for (int d = 0; d < a->D; d += PB_VLEN) {
        const vu code = encode(load_some(a->x, r * a->D + d, a->dtype, a->D - d) / a->scale[r]);
        for (int i = 0; i < PB_VLEN && d + i < a->D; i++) a->code[r * a->D + d + i] = (uint8_t)code[i];
    }
}

pb_status PB_FAST(pb_indexer_quantize)(pb_ctx *ctx, const void *args)
{
    const pb_indexer_quantize_args *a = args;
    (void)ctx;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < (size_t)a->N; r++) quantize_row(a, r);
    return PB_OK;
}

/* ---- the ops scores and pick ---------------------------------------------------------------------------- */

/* Copies n rows of D elements, from row `at` on, to to[r][c], or to to[c][r] if `transposed`; rows n .. high-1 become
 * zeros. scale: NULL, or the scales of `from`, which then holds codes. */
static void load(const pb_indexer *x, const void *from, const float *scale, size_t at, int n, int high, bool transposed,
                 float *to, size_t ld)
{
    const rows r = {from, at * x->D, (size_t)x->D, x->dtype};
    if (!scale) {
        if (transposed) load_transposed(to, ld, high, &r, n, x->D, 1);
        else load_rows(to, ld, high, &r, n, x->D);
        return;
    }
    for (int i = 0; i < high; i++)
        for (int d = 0; d < (transposed ? x->D : (int)ld); d++) {
            const bool there = i < n && d < x->D;
            const float v = there ? pb_e4m3_decode(((const uint8_t *)from)[(at + i) * x->D + d]) * scale[at + i] : 0;
            to[transposed ? d * ld + i : i * ld + d] = v;
        }
}

/* Writes scores to to[n][G]: those of n queries, from row `token` on, for the groups among g .. g+m-1 that each query
 * sees. The caller has put the transposed tile of k of these groups into room. */
static void score_tile(const pb_indexer *x, const int32_t *start, int ratio, size_t token, int n, int g, int m,
                       float *room, float *to)
{
    const size_t width = pb_mla_width(x->D);
    float *q = room, *keys = q + x->H * width, *u = keys + (size_t)x->D * KEYS, s[KEYS];
    for (int i = 0; i < n; i++) {
        const int t = x->offset + (int)((token + i) % x->S);
        const pb_visible v = pb_visible_to(t, start ? start[token + i] : 0, ratio, x->G);
        if (v.lo >= g + m || v.hi <= g) continue;
        load(x, x->q, x->q_scale, (token + i) * x->H, x->H, x->H, false, q, width);
        multiply(&(product){
            .M = x->H, .N = KEYS, .K = x->D, .a = q, .lda = width, .b = keys, .ldb = KEYS, .c = u, .ldc = KEYS});
        for (int k = 0; k < KEYS; k += PB_VLEN) {
            vf sum = {0};
            for (int h = 0; h < x->H; h++) sum += relu(vf_load(u, h * KEYS + k, PB_F32)) * x->w[(token + i) * x->H + h];
            vf_store(s, k, PB_F32, sum);
        }
        for (int k = v.lo > g ? v.lo - g : 0; k < m && g + k < v.hi; k++) to[(size_t)i * x->G + g + k] = s[k];
    }
}

/* Writes the scores of n consecutive queries of a batch row, from row `token` on, to [n][G]. */
static void score_queries(const pb_indexer *x, const int32_t *start, int ratio, size_t token, int n, float *room,
                          float *to)
{
    const size_t b = token / x->S;
    float *keys = room + x->H * pb_mla_width(x->D);
    int lo = x->G, hi = 0;
    for (int i = 0; i < n; i++) {
        const int t = x->offset + (int)((token + i) % x->S);
        const pb_visible v = pb_visible_to(t, start ? start[token + i] : 0, ratio, x->G);
        if (v.lo < v.hi) lo = v.lo < lo ? v.lo : lo, hi = v.hi > hi ? v.hi : hi;
    }
    for (size_t e = 0; e < (size_t)n * x->G; e++) to[e] = -INFINITY;
    for (int g = lo; g < hi; g += KEYS) {
        const int m = hi - g < KEYS ? hi - g : KEYS;
        load(x, x->k, x->k_scale, b * x->G + g, m, KEYS, true, keys, KEYS);
        score_tile(x, start, ratio, token, n, g, m, room, to);
    }
}

pb_status PB_FAST(pb_indexer_scores)(pb_ctx *ctx, const void *args)
{
    const pb_indexer_scores_args *a = args;
    const size_t each = pb_indexer_scores_tiles(&a->x), blocks = ((size_t)a->n + QUERIES - 1) / QUERIES;
    if (!a->x.G) return PB_OK; /* score may be NULL */
#pragma omp parallel for schedule(dynamic) num_threads(pb_threads_for(ctx, 0, each))
    for (size_t e = 0; e < a->x.B * blocks; e++) {
        const size_t b = e / blocks, i = e % blocks * QUERIES, n = a->n - i < QUERIES ? a->n - i : QUERIES;
        score_queries(&a->x, a->start, a->ratio, b * a->x.S + a->first + i, (int)n,
                      (float *)ctx->scratch + omp_get_thread_num() * each, a->score + (b * a->n + i) * a->x.G);
    }
    return PB_OK;
}

pb_status PB_FAST(pb_indexer_pick)(pb_ctx *ctx, const void *args)
{
    const pb_indexer_pick_args *a = args;
    const size_t each = pb_indexer_pick_tiles(&a->x), tiles = pb_indexer_scores_tiles(&a->x), G = a->x.G;
    const size_t blocks = ((size_t)a->x.S + QUERIES - 1) / QUERIES;
#pragma omp parallel for schedule(dynamic) num_threads(pb_threads_for(ctx, 0, each))
    for (size_t e = 0; e < a->x.B * blocks; e++) {
        float *room = (float *)ctx->scratch + omp_get_thread_num() * each, *score = room + tiles;
        uint32_t *keys = (void *)(score + QUERIES * pb_topk_row_room(a->x.G));
        const size_t i = e % blocks * QUERIES, n = a->x.S - i < QUERIES ? a->x.S - i : QUERIES;
        const size_t token = e / blocks * a->x.S + i;
        score_queries(&a->x, a->start, a->ratio, token, (int)n, room, score);
        for (size_t k = 0; k < n; k++)
            PB_FAST(pb_topk_row)(score + k * G, a->x.G, a->K, a->pick + (token + k) * a->K, keys);
    }
    return PB_OK;
}

/* ---- the op at: scores of listed groups ----------------------------------------------------------------- */

typedef struct picked_tiles {
    float *qt, *k, *u, *w; /* qt [D][wide], k [KEYS][width], u [KEYS][wide], w [wide] */
    int slot[KEYS], group[KEYS];
} picked_tiles;

static picked_tiles picked_carve(float *room, const pb_indexer *x)
{
    const size_t wide = pb_indexer_wide(x->H);
    float *k = room + x->D * wide, *u = k + KEYS * pb_mla_width(x->D);
    return (picked_tiles){.qt = room, .k = k, .u = u, .w = u + KEYS * wide};
}

static void picked_load(const pb_indexer *x, picked_tiles *m, size_t token)
{
    const size_t wide = pb_indexer_wide(x->H);
    load(x, x->q, NULL, token * x->H, x->H, (int)wide, true, m->qt, wide);
    for (size_t h = 0; h < wide; h++) m->w[h] = h < (size_t)x->H ? x->w[token * x->H + h] : 0;
}

/* Gathers at most KEYS unmasked rows of k from slot *j on, and computes their products with all heads. Advances *j and
 * returns the number of rows. */
static int picked_next(const pb_indexer *x, picked_tiles *m, size_t token, const int32_t *pick, int K, int *j)
{
    const size_t width = pb_mla_width(x->D), wide = pb_indexer_wide(x->H);
    int n = 0;
    for (; *j < K && n < KEYS; ++*j) {
        const int32_t g = pick[*j];
        if (g < 0 || g >= x->G) continue;
        load(x, x->k, NULL, token / x->S * x->G + g, 1, 1, false, m->k + n * width, width);
        m->slot[n] = *j, m->group[n++] = g;
    }
    multiply(&(product){
        .M = n, .N = (int)wide, .K = x->D, .a = m->k, .lda = width, .b = m->qt, .ldb = wide, .c = m->u, .ldc = wide});
    return n;
}

pb_status PB_FAST(pb_indexer_at)(pb_ctx *ctx, const void *args)
{
    const pb_indexer_at_args *a = args;
    const pb_indexer *x = &a->x;
    const size_t each = pb_indexer_at_tiles(x), wide = pb_indexer_wide(x->H), tokens = (size_t)x->B * x->S;
#pragma omp parallel for schedule(dynamic) num_threads(pb_threads_for(ctx, 0, each))
    for (size_t t = 0; t < tokens; t++) {
        picked_tiles m = picked_carve((float *)ctx->scratch + omp_get_thread_num() * each, x);
        int j = 0, n;
        picked_load(x, &m, t);
        memset(a->score + t * a->K, 0, a->K * sizeof *a->score);
        while ((n = picked_next(x, &m, t, a->pick + t * a->K, a->K, &j)))
            for (int k = 0; k < n; k++) {
                vf sum = {0};
                for (size_t h = 0; h < wide; h += PB_VLEN)
                    sum += relu(vf_load(m.u, k * wide + h, PB_F32)) * vf_load(m.w, h, PB_F32);
                a->score[t * a->K + m.slot[k]] = vf_sum(sum);
            }
    }
    return PB_OK;
}

/* ---- backward pass -------------------------------------------------------------------------------------- */

typedef struct bwd_tiles {
    picked_tiles at;
    float *q, *dq, *dk, *dw; /* q and dq [H][width], dk [KEYS][width], dw [wide] */
} bwd_tiles;

/* Replaces the products u = q.k by their gradients, and adds to dw (formulas: indexer.h). */
static void bwd_weigh(const bwd_tiles *m, const float *ds, size_t wide, int n)
{
    for (size_t h = 0; h < wide; h += PB_VLEN) {
        const vf w = vf_load(m->at.w, h, PB_F32);
        vf dw = vf_load(m->dw, h, PB_F32);
        for (int k = 0; k < n; k++) {
            const vf u = vf_load(m->at.u, k * wide + h, PB_F32), s = vf_set(ds[m->at.slot[k]]);
            dw += s * relu(u);
            vf_store(m->at.u, k * wide + h, PB_F32, vf_select(u > 0.0f, s * w, vf_set(0)));
        }
        vf_store(m->dw, h, PB_F32, dw);
    }
}

/* Computes the backward pass of one token: writes dq and dw, adds to dk [G,width]. */
static void bwd_token(const pb_indexer_bwd_args *a, bwd_tiles *m, size_t token, float *dk)
{
    const pb_indexer *x = &a->x;
    const size_t width = pb_mla_width(x->D), wide = pb_indexer_wide(x->H);
    int j = 0, n;
    picked_load(x, &m->at, token);
    load(x, x->q, NULL, token * x->H, x->H, x->H, false, m->q, width);
    memset(m->dq, 0, x->H * width * sizeof *m->dq);
    memset(m->dw, 0, wide * sizeof *m->dw);
    while ((n = picked_next(x, &m->at, token, a->pick + token * a->K, a->K, &j))) {
        bwd_weigh(m, a->dscore + token * a->K, wide, n);
        multiply(&(product){.M = x->H,
                            .N = (int)width,
                            .K = n,
                            .a = m->at.u,
                            .lda = wide,
                            .transposed = true,
                            .b = m->at.k,
                            .ldb = width,
                            .c = m->dq,
                            .ldc = width,
                            .add = true});
        multiply(&(product){.M = n,
                            .N = (int)width,
                            .K = x->H,
                            .a = m->at.u,
                            .lda = wide,
                            .b = m->q,
                            .ldb = width,
                            .c = m->dk,
                            .ldc = width});
        for (int k = 0; k < n; k++)
            for (size_t d = 0; d < width; d += PB_VLEN) {
                const size_t to = m->at.group[k] * width + d;
                vf_store(dk, to, PB_F32, vf_load(dk, to, PB_F32) + vf_load(m->dk, k * width + d, PB_F32));
            }
    }
    memcpy(a->dw + token * x->H, m->dw, x->H * sizeof *a->dw);
    for (int h = 0; h < x->H; h++)
        for (int d = 0; d < x->D; d += PB_VLEN)
            store_some(a->dq, (token * x->H + h) * x->D + d, x->dtype, vf_load(m->dq, h * width + d, PB_F32), x->D - d);
}

pb_status PB_FAST(pb_indexer_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_indexer_bwd_args *a = args;
    const pb_indexer *x = &a->x;
    const size_t width = pb_mla_width(x->D), each = pb_indexer_bwd_tiles(x), shared = pb_indexer_sums(x);
    const size_t part = x->G * width, groups = (size_t)x->B * x->G;
    const int parts = pb_indexer_parts(x);
    float *sums = ctx->scratch;
#pragma omp parallel num_threads(pb_threads_for(ctx, shared, each))
    {
        float *room = sums + shared + omp_get_thread_num() * each, *q = room + pb_indexer_at_tiles(x);
        bwd_tiles m = {picked_carve(room, x), q, q + x->H * width, q + 2 * x->H * width, q + (2 * x->H + KEYS) * width};
#pragma omp for schedule(dynamic)
        for (int e = 0; e < x->B * parts; e++) {
            memset(sums + e * part, 0, part * sizeof *sums);
            for (int t = e % parts; t < x->S; t += parts)
                bwd_token(a, &m, (size_t)(e / parts) * x->S + t, sums + e * part);
        }
#pragma omp for schedule(static)
        for (size_t g = 0; g < groups; g++)
            for (int d = 0; d < x->D; d += PB_VLEN) {
                const float *from = sums + g / x->G * parts * part + g % x->G * width + d;
                vf sum = {0};
                for (int e = 0; e < parts; e++) sum += vf_load(from, e * part, PB_F32);
                store_some(a->dk, g * x->D + d, pb_indexer_dk_dtype(a), sum, x->D - d);
            }
    }
    return PB_OK;
}
