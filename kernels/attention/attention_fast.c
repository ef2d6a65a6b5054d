/* attention_fast.c - CPU attention in tiles of 64 queries by 128 keys; the lanes of a vector are queries.
 *
 * Scores are stored as [key][query]. So the softmax statistics of PB_VLEN queries are one vector, no sum runs across
 * lanes, and keys and values are read in memory order. All matrix products use tile.h. A thread processes whole tasks
 * and every sum has one fixed order, so the number of threads does not change the result. Limit: fma throughput. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"

/* ---- which keys a query attends to ------------------------------------------------------------------ */

/* A block of at most QUERIES queries, one per lane. Lanes from n on hold zeros and have no visible key. */
typedef struct queries {
    int first, n, wide;   /* wide: n rounded up to a multiple of RUN */
    int place;            /* index of the last key that query `first` attends to under a causal mask */
    int begin, end;       /* every visible key of any query is in [begin, end); begin is a multiple of RUN */
    int all_from, all_to; /* every query attends to all keys in [all_from, all_to) */
    bool causal;
    int32_t from[QUERIES], to[QUERIES]; /* query i attends to keys from[i] <= j < to[i] */
} queries;

/* A tile of keys first .. first+n-1. It is processed `run` keys at a time. */
typedef struct keys {
    int first, n, run;
    bool masked; /* some query does not attend to every key of the tile */
} keys;

/* N keys, of which the last S belong to the queries. */
static void find_visible_keys(queries *q, int first, int S, int N, bool causal, const int32_t *start)
{
    int begin = N, end = 0;
    *q = (queries){.first = first,
                   .n = S - first < QUERIES ? S - first : QUERIES,
                   .place = N - S + first,
                   .all_to = N,
                   .causal = causal};
    q->wide = (q->n + RUN - 1) / RUN * RUN;
    for (int i = 0; i < q->n; i++) {
        int from = start && start[first + i] > 0 ? start[first + i] : 0, to = causal ? q->place + i + 1 : N;
        q->from[i] = from, q->to[i] = to;
        if (from > q->all_from) q->all_from = from;
        if (to < q->all_to) q->all_to = to;
        if (from >= to) continue;
        if (from < begin) begin = from;
        if (to > end) end = to;
    }
    q->begin = begin / RUN * RUN, q->end = end; /* without any visible key, begin >= end */
}

static keys keys_at(const queries *q, int first)
{
    keys k = {.first = first, .n = q->end - first < KEYS ? q->end - first : KEYS};
    k.masked = first < q->all_from || first + k.n > q->all_to;
    k.run = k.masked ? RUN : k.n;
    return k;
}

/* Returns the first lane that must be computed for the run of keys that begins at key j of the tile. Under a causal
 * mask the queries of earlier lanes attend to no key of the run. */
static int lane_from(const queries *q, const keys *k, int j)
{
    const int after = k->first + j - q->place;
    return k->masked && q->causal && after > 0 ? after / RUN * RUN : 0;
}

/* Returns how many keys of the tile are computed for this lane: those of all runs whose lane_from() is at most
 * `lane`. */
static int keys_for(const queries *q, const keys *k, int lane)
{
    if (!k->masked || !q->causal) return k->n;
    /* Keys of the tile that the last query of this lane's run attends to, not clamped: may be <= 0 or exceed k->n. */
    const int below = q->place - k->first + lane / RUN * RUN + RUN;
    const int n = below <= 0 ? 0 : (below + RUN - 1) / RUN * RUN;
    return n < k->n ? n : k->n;
}

static inline vi seen(const queries *q, int lane, int j)
{
    vi from, to, at = (vi){0} + j;
    memcpy(&from, q->from + lane, sizeof from);
    memcpy(&to, q->to + lane, sizeof to);
    return (at >= from) & (at < to);
}

/* ---- shared by both passes -------------------------------------------------------------------------- */

typedef struct tile {
    const float *p;
    size_t ld;
} tile;

/* Returns n rows as f32: a pointer into the tensor if it is f32, otherwise a converted copy in `room`. */
static tile as_f32(const rows *x, int n, int D, float *room)
{
    if (x->dtype == PB_F32) return (tile){(const float *)x->x + x->at, x->ld};
    load_rows(room, pb_attn_width(D), n, x, n, D);
    return (tile){room, pb_attn_width(D)};
}

static rows rows_at(const void *x, size_t token, size_t ld, int head, int D, pb_dtype t)
{
    return (rows){x, token * ld + (size_t)head * D, ld, t};
}

/* Computes to[j][i] = rows_j . columns_i for the keys j and the queries i: K Q^T and V dO^T. */
static void dot_products(float *to, const queries *q, const keys *k, tile rows_, const float *columns, int D)
{
    for (int j = 0, n; j < k->n; j += n) {
        const int lane = lane_from(q, k, j);
        n = k->n - j < k->run ? k->n - j : k->run;
        multiply(&(product){.M = n,
                            .N = q->wide - lane,
                            .K = D,
                            .a = rows_.p + j * rows_.ld,
                            .lda = rows_.ld,
                            .b = columns + lane,
                            .ldb = QUERIES,
                            .c = to + j * QUERIES + lane,
                            .ldc = QUERIES});
    }
}

static void combine(const product *p, bool finite)
{
    if (finite) multiply(p);
    else multiply_unmasked(p);
}

/* Computes to[d][i] += sum_j x[j][d] weight[j][i]: o and dq, transposed. */
static void add_over_keys(float *to, const queries *q, const keys *k, tile x, const float *weight, int D)
{
    const bool finite = !k->masked || all_finite(x.p, x.ld, k->n, D);
    for (int j = 0, n; j < k->n; j += n) {
        const int lane = lane_from(q, k, j);
        n = k->n - j < k->run ? k->n - j : k->run;
        combine(&(product){.M = D,
                           .N = q->wide - lane,
                           .K = n,
                           .a = x.p + j * x.ld,
                           .lda = x.ld,
                           .transposed = true,
                           .b = weight + j * QUERIES + lane,
                           .ldb = QUERIES,
                           .c = to + lane,
                           .ldc = QUERIES,
                           .add = true},
                finite);
    }
}

/* Computes to[j][d] += sum_i weight[j][i] x[i][d]: dk and dv. */
static void add_over_queries(float *to, const queries *q, const keys *k, const float *x, const float *weight, int D)
{
    const size_t width = pb_attn_width(D);
    const bool finite = !k->masked || all_finite(x, width, q->n, D);
    for (int j = 0, n; j < k->n; j += n) {
        const int lane = lane_from(q, k, j);
        n = k->n - j < k->run ? k->n - j : k->run;
        combine(&(product){.M = n,
                           .N = (int)width,
                           .K = q->n - lane,
                           .a = weight + j * QUERIES + lane,
                           .lda = QUERIES,
                           .b = x + lane * width,
                           .ldb = width,
                           .c = to + (k->first + j) * width,
                           .ldc = width,
                           .add = true},
                finite);
    }
}

/* ---- forward pass ----------------------------------------------------------------------------------- */

typedef struct softmax {
    float top[QUERIES], sum[QUERIES]; /* maximum of the scores and sum of the weights over the tiles so far */
    float shrink[QUERIES];            /* factor that rescales sums over earlier tiles to the new maximum */
} softmax;

/* Turns the scores of one tile of keys into weights e^(s - top), where top is the maximum so far (Milakov & Gimelshein,
 * algorithm 3). A query without a visible key so far has top -inf and weights 0. */
static void weigh(softmax *m, float *s, const queries *q, const keys *k)
{
    const vf none = vf_set(-INFINITY);
    for (int i = 0; i < q->wide; i += PB_VLEN) {
        const int n = keys_for(q, k, i);
        const vf old = vf_load(m->top, i, PB_F32);
        vf top = old, sum = {0};
        for (int j = 0; j < n; j++) {
            vf x = vf_load(s, j * QUERIES + i, PB_F32);
            if (k->masked) vf_store(s, j * QUERIES + i, PB_F32, x = vf_select(seen(q, i, k->first + j), x, none));
            top = vf_max(top, x);
        }
        const vf base = vf_select(top == none, (vf){0}, top), shrink = vf_exp(old - base);
        for (int j = 0; j < n; j++) {
            const vf p = vf_exp(vf_load(s, j * QUERIES + i, PB_F32) - base);
            vf_store(s, j * QUERIES + i, PB_F32, p);
            sum += p;
        }
        vf_store(m->top, i, PB_F32, top);
        vf_store(m->shrink, i, PB_F32, shrink);
        vf_store(m->sum, i, PB_F32, vf_load(m->sum, i, PB_F32) * shrink + sum);
    }
}

static void scale_columns(float *x, const float *scale, int wide, int D)
{
    for (int i = 0; i < wide; i += PB_VLEN) {
        const vf by = vf_load(scale, i, PB_F32);
        for (int d = 0; d < D; d++) vf_store(x, d * QUERIES + i, PB_F32, vf_load(x, d * QUERIES + i, PB_F32) * by);
    }
}

static void fwd_finish(const pb_attention_fwd_args *a, const queries *q, const softmax *m, const float *ot, int b,
                       int h)
{
    const rows o = rows_at(a->o, (size_t)b * a->S + q->first, a->ldo, h, a->D, a->dtype);
    float *lse = a->lse + ((size_t)b * a->H + h) * a->S + q->first, scale[QUERIES];
    for (int i = 0; i < q->wide; i++) scale[i] = m->sum[i] == 0 ? 0 : 1 / m->sum[i];
    for (int i = 0; i < q->n; i++) lse[i] = m->sum[i] == 0 ? -INFINITY : m->top[i] + logf(m->sum[i]);
    store_transposed(ot, QUERIES, scale, &o, q->n, a->D);
}

static void fwd_block(const pb_attention_fwd_args *a, float *room, int b, int h, int block)
{
    const int D = a->D, kv = h / (a->H / a->K);
    const size_t row = (size_t)b * a->S, key = (size_t)b * pb_attention_keys(a);
    float *qt = room, *ot = qt + QUERIES * pb_attn_width(D), *s = ot + QUERIES * pb_attn_width(D);
    float *converted = s + KEYS * QUERIES;
    queries q;
    softmax m = {.sum = {0}};
    find_visible_keys(&q, block * QUERIES, a->S, pb_attention_keys(a), a->causal, a->start ? a->start + row : NULL);
    for (int i = 0; i < QUERIES; i++) m.top[i] = -INFINITY;
    memset(ot, 0, (size_t)D * QUERIES * sizeof *ot);
    const rows x = rows_at(a->q, row + q.first, a->ldq, h, D, a->dtype);
    load_transposed(qt, QUERIES, q.wide, &x, q.n, D, a->scale);
    for (int j = q.begin; j < q.end; j += KEYS) {
        const keys k = keys_at(&q, j);
        const rows kr = rows_at(a->k, key + j, a->ldk, kv, D, a->dtype);
        const rows vr = rows_at(a->v, key + j, a->ldv, kv, D, a->dtype);
        dot_products(s, &q, &k, as_f32(&kr, k.n, D, converted), qt, D);
        weigh(&m, s, &q, &k);
        if (j > q.begin) scale_columns(ot, m.shrink, q.wide, D);
        add_over_keys(ot, &q, &k, as_f32(&vr, k.n, D, converted), s, D);
    }
    fwd_finish(a, &q, &m, ot, b, h);
}

pb_status PB_FAST(pb_attention_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_attention_fwd_args *a = args;
    const int blocks = pb_attn_blocks(a->S), tasks = a->B * blocks * a->H;
    const size_t each = pb_attn_fwd_tiles(a->D);
    /* Consecutive tasks are heads of the same queries, because these are in the same memory pages. Under a causal mask
     * the last blocks of queries have the most keys, so they are started first. */
#pragma omp parallel for schedule(dynamic) num_threads(pb_threads_for(ctx, 0, each))
    for (int t = 0; t < tasks; t++)
        fwd_block(a, (float *)ctx->scratch + omp_get_thread_num() * each, t / a->H / blocks, t % a->H,
                  blocks - 1 - t / a->H % blocks);
    return PB_OK;
}

/* ---- backward pass ---------------------------------------------------------------------------------- */

typedef struct bwd_tiles {
    float *qt, *dot; /* [D][QUERIES]: q times scale, and do, both transposed */
    float *q, *dO;   /* [QUERIES][width] */
    float *dqt;      /* [D][QUERIES] */
    float *p, *ds;   /* [KEYS][QUERIES] */
    float *k, *v;    /* [KEYS][width], used when the tensor is not f32 */
    float lse[QUERIES], delta[QUERIES];
} bwd_tiles;

static bwd_tiles bwd_carve(float *room, int D)
{
    const size_t side = QUERIES * pb_attn_width(D), s = KEYS * QUERIES;
    return (bwd_tiles){.qt = room,
                       .dot = room + side,
                       .q = room + 2 * side,
                       .dO = room + 3 * side,
                       .dqt = room + 4 * side,
                       .p = room + 5 * side,
                       .ds = room + 5 * side + s,
                       .k = room + 5 * side + 2 * s,
                       .v = room + 5 * side + 2 * s + KEYS * pb_attn_width(D)};
}

/* Loads q, do, lse of a block of queries and computes delta. */
static void bwd_load(const pb_attention_bwd_args *a, bwd_tiles *m, const queries *q, int b, int h)
{
    const int D = a->D;
    const size_t token = (size_t)b * a->S + q->first, width = pb_attn_width(D);
    const rows x = rows_at(a->q, token, a->ldq, h, D, a->dtype), g = rows_at(a->dO, token, a->lddo, h, D, a->dtype);
    const float *lse = a->lse + ((size_t)b * a->H + h) * a->S + q->first;
    load_transposed(m->qt, QUERIES, q->wide, &x, q->n, D, a->scale);
    load_transposed(m->dot, QUERIES, q->wide, &g, q->n, D, 1);
    load_rows(m->q, width, q->n, &x, q->n, D);
    load_rows(m->dO, width, q->n, &g, q->n, D);
    memset(m->dqt, 0, (size_t)D * QUERIES * sizeof *m->dqt);
    for (int i = 0; i < QUERIES; i++) {
        vf sum = {0};
        for (int d = 0; i < q->n && d < D; d += PB_VLEN)
            sum += vf_load(m->dO, i * width + d, PB_F32) *
                   load_some(a->o, (token + i) * a->ldo + (size_t)h * D + d, a->dtype, D - d);
        m->delta[i] = vf_sum(sum);
        m->lse[i] = i < q->n ? lse[i] : 0;
    }
}

/* Replaces scores by softmax weights p, and the dot products do.v by ds (both as in attention.h). */
static void bwd_weigh(bwd_tiles *m, const queries *q, const keys *k, float scale)
{
    for (int i = 0; i < q->wide; i += PB_VLEN) {
        const int n = keys_for(q, k, i);
        const vf lse = vf_load(m->lse, i, PB_F32), delta = vf_load(m->delta, i, PB_F32);
        for (int j = 0; j < n; j++) {
            vf p = vf_exp(vf_load(m->p, j * QUERIES + i, PB_F32) - lse);
            vf ds = p * (vf_load(m->ds, j * QUERIES + i, PB_F32) - delta) * scale;
            if (k->masked) {
                const vi see = seen(q, i, k->first + j);
                p = vf_select(see, p, (vf){0}), ds = vf_select(see, ds, (vf){0});
            }
            vf_store(m->p, j * QUERIES + i, PB_F32, p);
            vf_store(m->ds, j * QUERIES + i, PB_F32, ds);
        }
    }
}

/* Processes one block of queries of one head: writes its dq, adds to dk and dv [N,width]. */
static void bwd_block(const pb_attention_bwd_args *a, bwd_tiles *m, int b, int h, int block, float *dk, float *dv)
{
    const int D = a->D, kv = h / (a->H / a->K), N = pb_attention_bwd_keys(a);
    const size_t row = (size_t)b * a->S, key = (size_t)b * N;
    float ones[QUERIES];
    queries q;
    find_visible_keys(&q, block * QUERIES, a->S, N, a->causal, a->start ? a->start + row : NULL);
    bwd_load(a, m, &q, b, h);
    for (int j = q.begin; j < q.end; j += KEYS) {
        const keys k = keys_at(&q, j);
        const rows kr = rows_at(a->k, key + j, a->ldk, kv, D, a->dtype);
        const rows vr = rows_at(a->v, key + j, a->ldv, kv, D, a->dtype);
        const tile kt = as_f32(&kr, k.n, D, m->k);
        dot_products(m->p, &q, &k, kt, m->qt, D);
        dot_products(m->ds, &q, &k, as_f32(&vr, k.n, D, m->v), m->dot, D);
        bwd_weigh(m, &q, &k, a->scale);
        add_over_keys(m->dqt, &q, &k, kt, m->ds, D);
        add_over_queries(dv, &q, &k, m->dO, m->p, D);
        add_over_queries(dk, &q, &k, m->q, m->ds, D);
    }
    const rows dq = rows_at(a->dq, row + q.first, a->lddq, h, D, a->dtype);
    for (int i = 0; i < QUERIES; i++) ones[i] = 1;
    store_transposed(m->dqt, QUERIES, ones, &dq, q.n, D);
}

/* Computes one of the `parts` partial sums of dk and dv of a key head. It covers every parts-th block of queries of the
 * query heads that share the key head. */
static void bwd_part(const pb_attention_bwd_args *a, bwd_tiles *m, float *sums, int parts, int t)
{
    const int group = a->H / a->K, b = t / parts / a->K, kv = t / parts % a->K;
    const size_t n = (size_t)pb_attention_bwd_keys(a) * pb_attn_width(a->D);
    float *dk = sums + (size_t)t * 2 * n, *dv = dk + n;
    memset(dk, 0, 2 * n * sizeof *dk);
    for (int i = t % parts; i < group * pb_attn_blocks(a->S); i += parts)
        bwd_block(a, m, b, kv * group + i % group, i / group, dk, dv);
}

/* Adds the partial sums of dk and dv for key t = (b,j) and key head kv, and stores the results. */
static void bwd_gather(const pb_attention_bwd_args *a, const float *sums, int parts, size_t t, int kv)
{
    const size_t width = pb_attn_width(a->D), N = (size_t)pb_attention_bwd_keys(a), n = N * width, j = t % N;
    const float *from = sums + (t / N * a->K + kv) * parts * 2 * n + j * width;
    const pb_dtype to = pb_attention_dkv_dtype(a);
    for (int d = 0; d < a->D; d += PB_VLEN) {
        vf dk = {0}, dv = {0};
        for (int p = 0; p < parts; p++) {
            dk += vf_load(from, 2 * p * n + d, PB_F32);
            dv += vf_load(from, (2 * p + 1) * n + d, PB_F32);
        }
        store_some(a->dk, t * a->lddk + (size_t)kv * a->D + d, to, dk, a->D - d);
        store_some(a->dv, t * a->lddv + (size_t)kv * a->D + d, to, dv, a->D - d);
    }
}

pb_status PB_FAST(pb_attention_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args *a = args;
    const int parts = pb_attn_parts(a->B, a->S, a->H, a->K), heads = a->B * a->K;
    const size_t each = pb_attn_bwd_tiles(a->D), tokens = (size_t)a->B * pb_attention_bwd_keys(a);
    const size_t shared = pb_attn_bwd_sums(a->B, a->S, pb_attention_bwd_keys(a), a->H, a->K, a->D);
    float *sums = ctx->scratch;
#pragma omp parallel num_threads(pb_threads_for(ctx, shared, each))
    {
        bwd_tiles m = bwd_carve(sums + shared + omp_get_thread_num() * each, a->D);
#pragma omp for schedule(dynamic)
        for (int t = 0; t < heads * parts; t++) bwd_part(a, &m, sums, parts, t);
#pragma omp for schedule(static)
        for (size_t t = 0; t < tokens; t++)
            for (int kv = 0; kv < a->K; kv++) bwd_gather(a, sums, parts, t, kv);
    }
    return PB_OK;
}
