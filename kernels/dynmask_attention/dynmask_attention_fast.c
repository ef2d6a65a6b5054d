/* dynmask_attention_fast.c - dynamic-mask attention on the CPU in tiles of 64 queries by 128 keys; the lanes of a
 * vector are queries, as in attention_fast.c.
 *
 * For each block of queries the slots that any of them attends to are collected first, so that the work is that of the
 * kept keys, not of the list. Keys and values of a tile are gathered into f32 rows. A thread processes whole tasks and
 * every sum has one fixed order, so the number of threads does not change the result. Limit: fma throughput. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/attention/tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"
#include "kernels/dynmask_attention/dynmask_attention.h"
#include "kernels/dynmask_attention/plan.h"

/* ---- blocks of queries and tiles of keys -------------------------------------------------------------- */

/* The inputs that both passes share. */
typedef struct problem {
    const void *q, *k, *v;
    const float *bias;
    const int32_t *list, *until;
    int B, S, S_kv, H, K, D, L;
    size_t ldq, ldk, ldv;
    float scale;
    pb_dtype dtype;
} problem;
#define PROBLEM(a)                                                                                                     \
    {                                                                                                                  \
        .q = (a)->q, .k = (a)->k, .v = (a)->v, .bias = (a)->bias, .list = (a)->list, .until = (a)->until, .B = (a)->B, \
        .S = (a)->S, .S_kv = (a)->S_kv, .H = (a)->H, .K = (a)->K, .D = (a)->D, .L = (a)->L, .ldq = (a)->ldq,           \
        .ldk = (a)->ldk, .ldv = (a)->ldv, .scale = (a)->scale, .dtype = (a)->dtype                                     \
    }

/* At most QUERIES queries of one head, one per lane. Lanes from n on hold zeros and attend to no key. */
typedef struct block {
    int b, h, kv;
    int first, n, wide;        /* wide: n rounded up to a multiple of RUN */
    int32_t position[QUERIES]; /* of each query; -1 in lanes without a query */
    int32_t *slot;             /* the slots that some query of the block attends to */
    int slots;
} block;

/* Keys of `n` slots: what the scores and the mask need, and f32 copies of keys and values [KEYS][width]. */
typedef struct tile {
    int n;
    bool masked; /* some lane does not attend to every key of the tile */
    int32_t key[KEYS], until[KEYS];
    float bias[KEYS];
    float *k, *v;
} tile;

static void find_block(block *q, const problem *p, int b, int h, int number)
{
    const int first = number * QUERIES, n = p->S - first < QUERIES ? p->S - first : QUERIES;
    const int32_t low = first + p->S_kv - p->S, high = low + n - 1;
    const size_t head = (size_t)b * p->K + h / (p->H / p->K);
    const int32_t *list = p->list + head * p->L, *until = p->until + head * p->L;
    const float *bias = p->bias + head * p->S_kv;
    q->b = b, q->h = h, q->kv = h / (p->H / p->K), q->first = first, q->n = n;
    q->wide = (n + RUN - 1) / RUN * RUN;
    for (int i = 0; i < QUERIES; i++) q->position[i] = i < n && low + i >= 0 ? low + i : -1;
    q->slots = 0;
    for (int l = 0; l < p->L; l++) {
        const int32_t j = list[l];
        if (j < 0 || j >= p->S_kv || j > high || bias[j] == -INFINITY) continue;
        if ((j > low ? j : low) < until[l]) q->slot[q->slots++] = l;
    }
}

static void load_tile(tile *t, const problem *p, const block *q, int from)
{
    const size_t width = pb_attn_width(p->D), head = (size_t)q->b * p->K + q->kv;
    const int32_t low = q->position[0], high = q->position[q->n - 1];
    t->n = q->slots - from < KEYS ? q->slots - from : KEYS;
    t->masked = q->n < q->wide;
    for (int j = 0; j < t->n; j++) {
        const int slot = q->slot[from + j], key = p->list[head * p->L + slot];
        const size_t token = (size_t)q->b * p->S_kv + key, at = (size_t)q->kv * p->D;
        const rows k = {p->k, token * p->ldk + at, p->ldk, p->dtype}, v = {p->v, token * p->ldv + at, p->ldv, p->dtype};
        t->key[j] = key, t->until[j] = p->until[head * p->L + slot];
        t->bias[j] = p->bias[head * p->S_kv + key];
        t->masked |= key > low || t->until[j] <= high;
        load_rows(t->k + j * width, width, 1, &k, 1, p->D);
        load_rows(t->v + j * width, width, 1, &v, 1, p->D);
    }
}

/* Returns the lanes i .. i + PB_VLEN - 1 that attend to key j of the tile. */
static inline vi seen(const block *q, const tile *t, int i, int j)
{
    vi position;
    memcpy(&position, q->position + i, sizeof position);
    return (position >= t->key[j]) & (position < t->until[j]);
}

static rows rows_of(const block *q, const void *x, int S, size_t ld, int D, pb_dtype t)
{
    return (rows){x, ((size_t)q->b * S + q->first) * ld + (size_t)q->h * D, ld, t};
}

/* ---- products of a tile and a block ------------------------------------------------------------------- */

/* Computes to[j][i] = x_j . columns_i for the keys j and the queries i: K Q^T and V dO^T. */
static void dot_products(float *to, const block *q, const tile *t, const float *x, const float *columns, int D)
{
    multiply(&(product){.M = t->n,
                        .N = q->wide,
                        .K = D,
                        .a = x,
                        .lda = pb_attn_width(D),
                        .b = columns,
                        .ldb = QUERIES,
                        .c = to,
                        .ldc = QUERIES});
}

/* In a masked tile a weight is 0 where a query does not attend to a key; a NaN there must not reach the sum. */
static void combine(const product *p, bool finite)
{
    if (finite) multiply(p);
    else multiply_unmasked(p);
}

/* Computes to[d][i] += sum_j x[j][d] weight[j][i]: o and dq, transposed. */
static void add_over_keys(float *to, const block *q, const tile *t, const float *x, const float *weight, int D)
{
    const size_t width = pb_attn_width(D);
    combine(&(product){.M = D,
                       .N = q->wide,
                       .K = t->n,
                       .a = x,
                       .lda = width,
                       .transposed = true,
                       .b = weight,
                       .ldb = QUERIES,
                       .c = to,
                       .ldc = QUERIES,
                       .add = true},
            !t->masked || all_finite(x, width, t->n, D));
}

/* Computes to[j][d] = sum_i weight[j][i] x[i][d]: dk and dv of the tile. */
static void sum_over_queries(float *to, const block *q, const tile *t, const float *x, const float *weight, int D)
{
    const size_t width = pb_attn_width(D);
    combine(&(product){.M = t->n,
                       .N = (int)width,
                       .K = q->n,
                       .a = weight,
                       .lda = QUERIES,
                       .b = x,
                       .ldb = width,
                       .c = to,
                       .ldc = width},
            !t->masked || all_finite(x, width, q->n, D));
}

/* ---- forward pass ----------------------------------------------------------------------------------- */

typedef struct softmax {
    float top[QUERIES], sum[QUERIES]; /* maximum of the scores and sum of the weights over the tiles so far */
    float shrink[QUERIES];            /* factor that rescales sums over earlier tiles to the new maximum */
} softmax;

/* Adds the biases to the scores of a tile and turns them into weights e^(s - top), where top is the maximum so far. */
static void weigh(softmax *m, float *s, const block *q, const tile *t)
{
    const vf none = vf_set(-INFINITY);
    for (int i = 0; i < q->wide; i += PB_VLEN) {
        const vf old = vf_load(m->top, i, PB_F32);
        vf top = old, sum = {0};
        for (int j = 0; j < t->n; j++) {
            vf x = vf_load(s, j * QUERIES + i, PB_F32) + t->bias[j];
            if (t->masked) x = vf_select(seen(q, t, i, j), x, none);
            vf_store(s, j * QUERIES + i, PB_F32, x);
            top = vf_max(top, x);
        }
        const vf base = vf_select(top == none, (vf){0}, top), shrink = vf_exp(old - base);
        for (int j = 0; j < t->n; j++) {
            const vf weight = vf_exp(vf_load(s, j * QUERIES + i, PB_F32) - base);
            vf_store(s, j * QUERIES + i, PB_F32, weight);
            sum += weight;
        }
        vf_store(m->top, i, PB_F32, top);
        vf_store(m->shrink, i, PB_F32, shrink);
        vf_store(m->sum, i, PB_F32, vf_load(m->sum, i, PB_F32) * shrink + sum);
    }
}

static void rescale(float *ot, const softmax *m, int wide, int D)
{
    for (int d = 0; d < D; d++)
        for (int i = 0; i < wide; i += PB_VLEN)
            vf_store(ot, d * QUERIES + i, PB_F32, vf_load(ot, d * QUERIES + i, PB_F32) * vf_load(m->shrink, i, PB_F32));
}

static void fwd_block(const pb_dynmask_attention_fwd_args *a, float *room, int b, int h, int number)
{
    const problem p = PROBLEM(a);
    const int D = p.D;
    const size_t width = pb_attn_width(D);
    float *qt = room, *ot = qt + QUERIES * width, *s = ot + QUERIES * width, scale[QUERIES];
    tile t = {.k = s + KEYS * QUERIES, .v = s + KEYS * QUERIES + KEYS * width};
    block q = {.slot = (void *)(t.v + KEYS * width)};
    softmax m = {.sum = {0}};
    find_block(&q, &p, b, h, number);
    for (int i = 0; i < QUERIES; i++) m.top[i] = -INFINITY;
    memset(ot, 0, (size_t)D * QUERIES * sizeof *ot);
    const rows x = rows_of(&q, a->q, a->S, a->ldq, D, a->dtype), o = rows_of(&q, a->o, a->S, a->ldo, D, a->dtype);
    load_transposed(qt, QUERIES, q.wide, &x, q.n, D, a->scale);
    for (int j = 0; j < q.slots; j += KEYS) {
        load_tile(&t, &p, &q, j);
        dot_products(s, &q, &t, t.k, qt, D);
        weigh(&m, s, &q, &t);
        if (j > 0) rescale(ot, &m, q.wide, D);
        add_over_keys(ot, &q, &t, t.v, s, D);
    }
    float *lse = a->lse + ((size_t)b * a->H + h) * a->S + q.first;
    for (int i = 0; i < q.wide; i++) scale[i] = m.sum[i] == 0 ? 0 : 1 / m.sum[i];
    for (int i = 0; i < q.n; i++) lse[i] = m.sum[i] == 0 ? -INFINITY : m.top[i] + logf(m.sum[i]);
    store_transposed(ot, QUERIES, scale, &o, q.n, D);
}

pb_status PB_FAST(pb_dynmask_attention_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_fwd_args *a = args;
    const int blocks = pb_attn_blocks(a->S), tasks = a->B * blocks * a->H;
    const size_t each = pb_dynmask_fwd_tiles(a->D, a->L);
#pragma omp parallel for schedule(dynamic) num_threads(pb_threads_for(ctx, 0, each))
    for (int t = 0; t < tasks; t++)
        fwd_block(a, (float *)ctx->scratch + omp_get_thread_num() * each, t / a->H / blocks, t % a->H,
                  blocks - 1 - t / a->H % blocks);
    return PB_OK;
}

/* ---- backward pass ---------------------------------------------------------------------------------- */

typedef struct bwd_room {
    float *qt, *dot; /* [D][QUERIES]: q times scale, and do, both transposed */
    float *q, *dO;   /* [QUERIES][width] */
    float *dqt;      /* [D][QUERIES], without the factor scale */
    float *p, *ds;   /* [KEYS][QUERIES] */
    float *dk, *dv;  /* [KEYS][width]: one tile's terms, dk without the factor scale */
    float lse[QUERIES], delta[QUERIES];
    tile t;
    block block;
} bwd_room;

static void bwd_carve(bwd_room *m, float *room, int D)
{
    const size_t side = QUERIES * pb_attn_width(D), s = KEYS * QUERIES, high = KEYS * pb_attn_width(D);
    *m =
        (bwd_room){.qt = room, .dot = room + side, .q = room + 2 * side, .dO = room + 3 * side, .dqt = room + 4 * side};
    m->p = room + 5 * side, m->ds = m->p + s;
    m->dk = m->ds + s, m->dv = m->dk + high;
    m->t.k = m->dv + high, m->t.v = m->t.k + high;
    m->block.slot = (void *)(m->t.v + high); /* the numbers of the slots follow the floats */
}

/* Loads q, do and lse of the block, computes delta, and clears dq. */
static void bwd_load(const pb_dynmask_attention_bwd_args *a, bwd_room *m)
{
    const block *q = &m->block;
    const size_t width = pb_attn_width(a->D), token = (size_t)q->b * a->S + q->first;
    const rows x = rows_of(q, a->q, a->S, a->ldq, a->D, a->dtype), g = rows_of(q, a->dO, a->S, a->lddo, a->D, a->dtype);
    load_transposed(m->qt, QUERIES, q->wide, &x, q->n, a->D, a->scale);
    load_transposed(m->dot, QUERIES, q->wide, &g, q->n, a->D, 1);
    load_rows(m->q, width, q->n, &x, q->n, a->D);
    load_rows(m->dO, width, q->n, &g, q->n, a->D);
    memset(m->dqt, 0, (size_t)a->D * QUERIES * sizeof *m->dqt);
    for (int i = 0; i < QUERIES; i++) {
        vf sum = {0};
        for (int d = 0; i < q->n && d < a->D; d += PB_VLEN)
            sum += vf_load(m->dO, i * width + d, PB_F32) *
                   load_some(a->o, (token + i) * a->ldo + (size_t)q->h * a->D + d, a->dtype, a->D - d);
        m->delta[i] = vf_sum(sum);
        m->lse[i] = i < q->n ? a->lse[((size_t)q->b * a->H + q->h) * a->S + q->first + i] : 0;
    }
}

/* Replaces the scores by the weights p, and the products do.v by ds, and adds the sums of ds over the queries to dbias,
 * which is indexed by slot. */
static void bwd_weigh(bwd_room *m, const int32_t *slot, float *dbias)
{
    const block *q = &m->block;
    const tile *t = &m->t;
    for (int j = 0; j < t->n; j++) {
        vf sum = {0};
        for (int i = 0; i < q->wide; i += PB_VLEN) {
            const size_t at = j * QUERIES + i;
            vf p = vf_exp(vf_load(m->p, at, PB_F32) + t->bias[j] - vf_load(m->lse, i, PB_F32));
            vf ds = p * (vf_load(m->ds, at, PB_F32) - vf_load(m->delta, i, PB_F32));
            if (t->masked) {
                const vi see = seen(q, t, i, j);
                p = vf_select(see, p, (vf){0}), ds = vf_select(see, ds, (vf){0});
            }
            vf_store(m->p, at, PB_F32, p);
            vf_store(m->ds, at, PB_F32, ds);
            sum += ds;
        }
        dbias[slot[j]] += vf_sum(sum);
    }
}

static void add_rows(float *to, const float *x, const int32_t *slot, int n, size_t width)
{
    for (int j = 0; j < n; j++)
        for (size_t d = 0; d < width; d += PB_VLEN) {
            const size_t at = slot[j] * width + d;
            vf_store(to, at, PB_F32, vf_load(to, at, PB_F32) + vf_load(x, j * width + d, PB_F32));
        }
}

/* Processes one block of queries of one head: writes its dq, adds to dk, dv [L,width] and dbias [L]. */
static void bwd_block(const pb_dynmask_attention_bwd_args *a, bwd_room *m, int b, int h, int number, float *dk)
{
    const problem p = PROBLEM(a);
    const int D = a->D;
    const size_t width = pb_attn_width(D);
    float *dv = dk + a->L * width, *dbias = dv + a->L * width, scale[QUERIES];
    block *q = &m->block;
    find_block(q, &p, b, h, number);
    bwd_load(a, m);
    for (int j = 0; j < q->slots; j += KEYS) {
        load_tile(&m->t, &p, q, j);
        dot_products(m->p, q, &m->t, m->t.k, m->qt, D);
        dot_products(m->ds, q, &m->t, m->t.v, m->dot, D);
        bwd_weigh(m, q->slot + j, dbias);
        add_over_keys(m->dqt, q, &m->t, m->t.k, m->ds, D);
        sum_over_queries(m->dk, q, &m->t, m->q, m->ds, D);
        sum_over_queries(m->dv, q, &m->t, m->dO, m->p, D);
        add_rows(dk, m->dk, q->slot + j, m->t.n, width);
        add_rows(dv, m->dv, q->slot + j, m->t.n, width);
    }
    const rows dq = rows_of(q, a->dq, a->S, a->lddq, D, a->dtype);
    for (int i = 0; i < QUERIES; i++) scale[i] = a->scale;
    store_transposed(m->dqt, QUERIES, scale, &dq, q->n, D);
}

/* Computes one of the `parts` partial sums of a kv head. It covers every parts-th block of queries of the query heads
 * that share the kv head. */
static void bwd_part(const pb_dynmask_attention_bwd_args *a, bwd_room *m, float *sums, int parts, int t)
{
    const int group = a->H / a->K, b = t / parts / a->K, kv = t / parts % a->K;
    const size_t n = pb_dynmask_part(a->D, a->L);
    float *part = sums + (size_t)t * n;
    memset(part, 0, n * sizeof *part);
    for (int i = t % parts; i < group * pb_attn_blocks(a->S); i += parts)
        bwd_block(a, m, b, kv * group + i % group, i / group, part);
}

/* Adds the partial sums of a key of a list and stores dk, dv and dbias; slot -1: no list has the key, stores 0. sums:
 * of the kv head `head` = b K + kv. */
static void bwd_gather(const pb_dynmask_attention_bwd_args *a, const float *sums, int parts, size_t head, int j,
                       int slot)
{
    const size_t width = pb_attn_width(a->D), n = pb_dynmask_part(a->D, a->L), side = a->L * width;
    const size_t token = head / a->K * a->S_kv + j, at = head % a->K * a->D;
    float dbias = 0;
    for (int d = 0; d < a->D; d += PB_VLEN) {
        vf dk = {0}, dv = {0};
        for (int p = 0; slot >= 0 && p < parts; p++) {
            dk += vf_load(sums, p * n + slot * width + d, PB_F32);
            dv += vf_load(sums, p * n + side + slot * width + d, PB_F32);
        }
        store_some(a->dk, token * a->lddk + at + d, pb_dynmask_dkv_dtype(a), dk * a->scale, a->D - d);
        store_some(a->dv, token * a->lddv + at + d, pb_dynmask_dkv_dtype(a), dv, a->D - d);
    }
    for (int p = 0; slot >= 0 && p < parts; p++) dbias += sums[p * n + 2 * side + slot];
    a->dbias[head * a->S_kv + j] = dbias;
}

/* Stores the gradients of all keys of one kv head. slot_of: scratch array [S_kv]. */
static void bwd_gather_head(const pb_dynmask_attention_bwd_args *a, const float *sums, int parts, size_t head,
                            int32_t *slot_of)
{
    for (int j = 0; j < a->S_kv; j++) slot_of[j] = -1;
    for (int l = 0; l < a->L; l++) {
        const int32_t j = a->list[head * a->L + l];
        if (j >= 0 && j < a->S_kv) slot_of[j] = l;
    }
    for (int j = 0; j < a->S_kv; j++) bwd_gather(a, sums, parts, head, j, slot_of[j]);
}

pb_status PB_FAST(pb_dynmask_attention_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_attention_bwd_args *a = args;
    const int parts = pb_attn_parts(a->B, a->S, a->H, a->K), heads = a->B * a->K;
    const size_t each = pb_dynmask_bwd_tiles(a->D, a->L), part = pb_dynmask_part(a->D, a->L);
    const size_t shared = pb_dynmask_shared(a->B, a->S, a->S_kv, a->H, a->K, a->D, a->L);
    float *sums = ctx->scratch;
    int32_t *slots = (void *)(sums + heads * parts * part);
#pragma omp parallel num_threads(pb_threads_for(ctx, shared, each))
    {
        bwd_room m;
        bwd_carve(&m, sums + shared + omp_get_thread_num() * each, a->D);
#pragma omp for schedule(dynamic)
        for (int t = 0; t < heads * parts; t++) bwd_part(a, &m, sums, parts, t);
#pragma omp for schedule(dynamic)
        for (int t = 0; t < heads; t++)
            bwd_gather_head(a, sums + t * parts * part, parts, t, slots + (size_t)t * a->S_kv);
    }
    return PB_OK;
}
