/* sparse_mla_fast.c - MLA over lists or ranges on the CPU: the lanes of a vector are up to 64 heads of one token, rows
 * of kv are processed 64 at a time.
 *
 * Unmasked rows are collected before each tile, so masked slots cost nothing and their rows are not read. Scores are
 * stored as [row][head]: the softmax of PB_VLEN heads is one vector. All products use tile.h. The sink is the initial
 * state of the online softmax. In the backward pass a task has a fixed share of the tokens of a batch row and its own
 * sum of dkv; the sums are added in order, so the result does not depend on the number of threads. Limit: fma
 * throughput. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/attention/tile.h"
#include "kernels/cpu/threads.h"
#include "kernels/sparse_mla/mla_ops.h"
#include "kernels/sparse_mla/plan.h"

/* ---- shared by both passes -------------------------------------------------------------------------- */

/* Heads h .. h+n-1 of token (b,i). Lanes from n on hold zeros. */
typedef struct heads {
    int b, i, h, n, wide; /* wide: n rounded up to a multiple of 16 */
    size_t at;            /* index of the first head in lse */
} heads;

static heads heads_at(const pb_mla *p, int b, int i, int h)
{
    const int n = p->H - h < HEADS ? p->H - h : HEADS;
    return (heads){b, i, h, n, (n + 15) / 16 * 16, ((size_t)b * p->S + i) * p->H + h};
}

/* Collects at most KEYS unmasked rows of kv from slot *w on: their indices in `row`, their contents as f32 in `tile`.
 * Advances *w and returns the number of rows. */
static int next_rows(const pb_mla *p, const pb_mla_keys *keys, int b, int *w, int *row, float *tile)
{
    const size_t width = pb_mla_width(p->D);
    int n = 0;
    for (; *w < keys->n && n < KEYS; ++*w) {
        const int r = pb_mla_row(p, keys, *w);
        if (r < 0) continue;
        const rows x = {p->kv, ((size_t)b * p->S_kv + r) * p->D, (size_t)p->D, p->dtype};
        load_rows(tile + n * width, width, 1, &x, 1, p->D);
        row[n++] = r;
    }
    return n;
}

/* Computes to[k][h] = row_k . column_h over the first D columns of the rows. */
static void scores(const pb_mla *p, const heads *q, const float *tile, int n, const float *columns, int D, float *to)
{
    multiply(&(product){.M = n,
                        .N = q->wide,
                        .K = D,
                        .a = tile,
                        .lda = pb_mla_width(p->D),
                        .b = columns,
                        .ldb = HEADS,
                        .c = to,
                        .ldc = HEADS});
}

/* Computes to[d][h] += sum_k row_k[d] weight[k][h]: o and dq, transposed. */
static void add_rows(const pb_mla *p, const heads *q, const float *tile, int n, const float *weight, int D, float *to)
{
    multiply(&(product){.M = D,
                        .N = q->wide,
                        .K = n,
                        .a = tile,
                        .lda = pb_mla_width(p->D),
                        .transposed = true,
                        .b = weight,
                        .ldb = HEADS,
                        .c = to,
                        .ldc = HEADS,
                        .add = true});
}

static rows heads_of(const void *x, const heads *q, int D, pb_dtype t)
{
    return (rows){x, q->at * (size_t)D, (size_t)D, t};
}

/* ---- forward pass ----------------------------------------------------------------------------------- */

typedef struct softmax {
    float top[HEADS], sum[HEADS]; /* maximum of the scores and sum of the weights over the tiles so far */
    float shrink[HEADS];          /* factor that rescales sums over earlier tiles to the new maximum */
} softmax;

static void softmax_start(softmax *m, const pb_mla *p, const heads *q)
{
    for (int h = 0; h < HEADS; h++) {
        m->top[h] = h < q->n ? p->sink[q->h + h] : 0;
        m->sum[h] = m->top[h] == -INFINITY ? 0.0f : 1.0f;
    }
}

/* Turns the scores of n rows into weights e^(s - top), where top is the maximum so far (Milakov & Gimelshein 2018,
 * algorithm 3). */
static void weigh(softmax *m, float *s, const heads *q, int n)
{
    for (int h = 0; h < q->wide; h += PB_VLEN) {
        const vf old = vf_load(m->top, h, PB_F32);
        vf top = old, sum = {0};
        for (int k = 0; k < n; k++) top = vf_max(top, vf_load(s, k * HEADS + h, PB_F32));
        const vf shrink = vf_exp(old - top);
        for (int k = 0; k < n; k++) {
            const vf weight = vf_exp(vf_load(s, k * HEADS + h, PB_F32) - top);
            vf_store(s, k * HEADS + h, PB_F32, weight);
            sum += weight;
        }
        vf_store(m->top, h, PB_F32, top);
        vf_store(m->shrink, h, PB_F32, shrink);
        vf_store(m->sum, h, PB_F32, vf_load(m->sum, h, PB_F32) * shrink + sum);
    }
}

static void fwd_heads(const pb_mla *p, float *room, const heads *q)
{
    float *qt = room, *ot = qt + HEADS * pb_mla_width(p->D), *s = ot + HEADS * pb_mla_width(p->V);
    float *tile = s + KEYS * HEADS, inverse[HEADS];
    const pb_mla_keys keys = pb_mla_keys_of(p, q->b, q->i);
    const rows x = heads_of(p->q, q, p->D, p->dtype), o = heads_of(p->o, q, p->V, p->dtype);
    int row[KEYS], w = 0, n;
    softmax m;
    softmax_start(&m, p, q);
    memset(ot, 0, (size_t)p->V * HEADS * sizeof *ot);
    load_transposed(qt, HEADS, q->wide, &x, q->n, p->D, p->scale);
    while ((n = next_rows(p, &keys, q->b, &w, row, tile))) {
        scores(p, q, tile, n, qt, p->D, s);
        weigh(&m, s, q, n);
        for (int d = 0; d < p->V; d++)
            for (int h = 0; h < q->wide; h += PB_VLEN)
                vf_store(ot, d * HEADS + h, PB_F32, vf_load(ot, d * HEADS + h, PB_F32) * vf_load(m.shrink, h, PB_F32));
        add_rows(p, q, tile, n, s, p->V, ot);
    }
    for (int h = 0; h < HEADS; h++) inverse[h] = m.sum[h] == 0 ? 0 : 1 / m.sum[h];
    for (int h = 0; h < q->n; h++) p->lse[q->at + h] = m.sum[h] == 0 ? -INFINITY : m.top[h] + logf(m.sum[h]);
    store_transposed(ot, HEADS, inverse, &o, q->n, p->V);
}

pb_status PB_FAST(pb_mla_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_mla problem = pb_mla_fwd_problem(args), *const p = &problem;
    const int blocks = (p->H + HEADS - 1) / HEADS;
    const size_t each = pb_mla_fwd_tiles(p->D, p->V), tasks = (size_t)p->B * p->S * blocks;
#pragma omp parallel for schedule(dynamic) num_threads(pb_threads_for(ctx, 0, each))
    for (size_t t = 0; t < tasks; t++) {
        const size_t token = t / blocks;
        const heads q = heads_at(p, (int)(token / p->S), (int)(token % p->S), (int)(t % blocks) * HEADS);
        fwd_heads(p, (float *)ctx->scratch + omp_get_thread_num() * each, &q);
    }
    return PB_OK;
}

/* ---- backward pass ---------------------------------------------------------------------------------- */

typedef struct bwd_tiles {
    float *qt, *dot, *dqt; /* [D][HEADS]: q times scale, do and dq, transposed */
    float *q, *dO;         /* [HEADS][width] */
    float *p, *ds;         /* [KEYS][HEADS] */
    float *kv, *dkv;       /* [KEYS][width] */
    float lse[HEADS], delta[HEADS];
} bwd_tiles;

static bwd_tiles bwd_carve(float *room, int D, int V)
{
    const size_t d = HEADS * pb_mla_width(D), v = HEADS * pb_mla_width(V), s = KEYS * HEADS;
    return (bwd_tiles){.qt = room,
                       .dqt = room + d,
                       .q = room + 2 * d,
                       .dot = room + 3 * d,
                       .dO = room + 3 * d + v,
                       .p = room + 3 * d + 2 * v,
                       .ds = room + 3 * d + 2 * v + s,
                       .kv = room + 3 * d + 2 * v + 2 * s,
                       .dkv = room + 3 * d + 2 * v + 2 * s + KEYS * pb_mla_width(D)};
}

/* Returns delta of one head, in double because dsink sums it over all tokens and most of that sum cancels. */
static double delta_of(const pb_mla *p, const float *dO, size_t at)
{
    double sum = 0;
    for (int d = 0; d < p->V; d += PB_VLEN) {
        const vf x = vf_load(dO, d, PB_F32), y = load_some(p->o, at + d, p->dtype, p->V - d);
        for (int k = 0; k < PB_VLEN; k++) sum += (double)x[k] * (double)y[k];
    }
    return sum;
}

/* Loads q, do and lse of the heads `q`, computes delta, and adds to dsink what these heads contribute. */
static void bwd_load(const pb_mla *p, bwd_tiles *m, const heads *q, double *dsink)
{
    const size_t width = pb_mla_width(p->V);
    const rows x = heads_of(p->q, q, p->D, p->dtype), g = heads_of(p->dO, q, p->V, p->dtype);
    load_transposed(m->qt, HEADS, q->wide, &x, q->n, p->D, p->scale);
    load_transposed(m->dot, HEADS, q->wide, &g, q->n, p->V, 1);
    load_rows(m->q, pb_mla_width(p->D), q->n, &x, q->n, p->D);
    load_rows(m->dO, width, q->n, &g, q->n, p->V);
    memset(m->dqt, 0, (size_t)p->D * HEADS * sizeof *m->dqt);
    for (int h = 0; h < HEADS; h++) {
        m->lse[h] = 0, m->delta[h] = 0;
        if (h >= q->n) continue;
        const float sink = p->sink[q->h + h];
        const double delta = delta_of(p, m->dO + h * width, (q->at + h) * p->V);
        m->lse[h] = p->lse[q->at + h], m->delta[h] = (float)delta;
        if (sink != -INFINITY) dsink[q->h + h] -= delta * exp((double)sink - (double)m->lse[h]);
    }
}

/* Replaces scores by weights p, and the products do.v by ds (formulas: sparse_mla.h). */
static void bwd_weigh(const bwd_tiles *m, const heads *q, int n, float scale)
{
    for (int h = 0; h < q->wide; h += PB_VLEN) {
        const vf lse = vf_load(m->lse, h, PB_F32), delta = vf_load(m->delta, h, PB_F32);
        for (int k = 0; k < n; k++) {
            const vf weight = vf_exp(vf_load(m->p, k * HEADS + h, PB_F32) - lse);
            vf_store(m->p, k * HEADS + h, PB_F32, weight);
            vf_store(m->ds, k * HEADS + h, PB_F32, weight * (vf_load(m->ds, k * HEADS + h, PB_F32) - delta) * scale);
        }
    }
}

/* Computes to[k][d] = sum_h weight[k][h] x[h][d], or += if `add`. */
static void over_heads(const heads *q, const float *weight, int n, const float *x, size_t width, float *to, size_t ldto,
                       bool add)
{
    multiply(&(product){.M = n,
                        .N = (int)width,
                        .K = q->n,
                        .a = weight,
                        .lda = HEADS,
                        .b = x,
                        .ldb = width,
                        .c = to,
                        .ldc = ldto,
                        .add = add});
}

/* Writes dq of the heads `q` of a token, and adds to dkv [S_kv,width] and dsink [H]. */
static void bwd_heads(const pb_mla *p, bwd_tiles *m, const heads *q, float *dkv, double *dsink)
{
    const size_t width = pb_mla_width(p->D);
    const pb_mla_keys keys = pb_mla_keys_of(p, q->b, q->i);
    const rows dq = heads_of(p->dq, q, p->D, p->dtype);
    float ones[HEADS];
    int row[KEYS], w = 0, n;
    bwd_load(p, m, q, dsink);
    while ((n = next_rows(p, &keys, q->b, &w, row, m->kv))) {
        scores(p, q, m->kv, n, m->qt, p->D, m->p);
        scores(p, q, m->kv, n, m->dot, p->V, m->ds);
        bwd_weigh(m, q, n, p->scale);
        add_rows(p, q, m->kv, n, m->ds, p->D, m->dqt);
        over_heads(q, m->ds, n, m->q, width, m->dkv, width, false);
        over_heads(q, m->p, n, m->dO, pb_mla_width(p->V), m->dkv, width, true);
        for (int k = 0; k < n; k++)
            for (size_t d = 0; d < width; d += PB_VLEN)
                vf_store(dkv, row[k] * width + d, PB_F32,
                         vf_load(dkv, row[k] * width + d, PB_F32) + vf_load(m->dkv, k * width + d, PB_F32));
    }
    for (int h = 0; h < HEADS; h++) ones[h] = 1;
    store_transposed(m->dqt, HEADS, ones, &dq, q->n, p->D);
}

/* Computes one of the `parts` partial sums of dkv and dsink of a batch row. It covers every parts-th token. */
static void bwd_part(const pb_mla *p, bwd_tiles *m, float *sums, int parts, int t)
{
    const size_t n = p->S_kv * pb_mla_width(p->D);
    float *dkv = sums + t * (n + 2 * p->H);
    double *dsink = (void *)(dkv + n);
    memset(dkv, 0, n * sizeof *dkv);
    memset(dsink, 0, p->H * sizeof *dsink);
    for (int i = t % parts; i < p->S; i += parts)
        for (int h = 0; h < p->H; h += HEADS) {
            const heads q = heads_at(p, t / parts, i, h);
            bwd_heads(p, m, &q, dkv, dsink);
        }
}

/* Adds the partial sums of dkv for one row of kv, and stores the result. */
static void bwd_gather(const pb_mla *p, const float *sums, int parts, size_t row)
{
    const size_t width = pb_mla_width(p->D), n = p->S_kv * width + 2 * p->H;
    const float *from = sums + row / p->S_kv * parts * n + row % p->S_kv * width;
    for (int d = 0; d < p->D; d += PB_VLEN) {
        vf sum = {0};
        for (int part = 0; part < parts; part++) sum += vf_load(from, part * n + d, PB_F32);
        store_some(p->dkv, row * p->D + d, pb_mla_dkv_dtype(p), sum, p->D - d);
    }
}

static void gather_dsink(const pb_mla *p, const float *sums, int parts)
{
    const size_t n = p->S_kv * pb_mla_width(p->D);
    for (int h = 0; h < p->H; h++) {
        double sum = 0;
        for (size_t part = 0; part < (size_t)p->B * parts; part++) {
            const double *of_part = (const void *)(sums + part * (n + 2 * p->H) + n);
            sum += of_part[h];
        }
        p->dsink[h] = (float)sum;
    }
}

pb_status PB_FAST(pb_mla_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_mla problem = pb_mla_bwd_problem(args), *const p = &problem;
    const int parts = pb_mla_parts(p->B, p->S, p->S_kv, p->D);
    const size_t each = pb_mla_bwd_tiles(p->D, p->V), shared = pb_mla_bwd_sums(p->B, p->S, p->S_kv, p->H, p->D);
    const size_t all = (size_t)p->B * p->S_kv;
    float *sums = ctx->scratch;
#pragma omp parallel num_threads(pb_threads_for(ctx, shared, each))
    {
        bwd_tiles m = bwd_carve(sums + shared + omp_get_thread_num() * each, p->D, p->V);
#pragma omp for schedule(dynamic)
        for (int t = 0; t < p->B * parts; t++) bwd_part(p, &m, sums, parts, t);
#pragma omp for schedule(static)
        for (size_t row = 0; row < all; row++) bwd_gather(p, sums, parts, row);
#pragma omp single
        gather_dsink(p, sums, parts);
    }
    return PB_OK;
}
