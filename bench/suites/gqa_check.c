/* gqa_check.c - compares the outputs of a case with grouped-query attention with small reference problems: one query of
 * one head, or the queries of one chunk that attend to one key. */
#include "bench/suites/gqa_check.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/dynmask_attention/dynmask_attention.h"

/* QUERIES, KEYS: most queries and keys that are compared. CHUNK: tokens that are in host memory at a time. */
enum { QUERIES = 8, KEYS = 4, CHUNK = 2048 };
enum { DQ, DK, DV, DBIAS }; /* outputs of the backward pass, in the order of pb_attn_error */

/* A key to check: key j of a kv head, which the queries [j, until) attend to, and the reference's sums so far. */
typedef struct sampled_key {
    int kv, j, until;
    double *dk, *dv, dbias; /* [D] */
} sampled_key;

typedef struct sample {
    const pb_gqa_call *c;
    pb_attn_error *e;
    void *k, *v;              /* [S,K,D], copied from the device */
    float *bias, *lse, *zero; /* [K,S], [H,S], one bias of 0 */
    int32_t *list, *until;    /* [lists,slots]; dense: one list of all keys */
    int lists, slots;
    void *q, *dO, *o; /* [CHUNK,H,D]: the tokens from `first` on */
    void *got;        /* [CHUNK,H,D] or [CHUNK,K,D]: an output */
    int first, n;
    sampled_key keys[KEYS];
    int nk;
} sample;

static const int32_t *list_of(const sample *s, int kv) { return s->list + (size_t)(kv % s->lists) * (size_t)s->slots; }
static const int32_t *until_of(const sample *s, int kv) { return s->until + (list_of(s, kv) - s->list); }
static float *bias_of(const sample *s, int kv) { return s->bias + (size_t)(kv % s->lists) * (size_t)s->c->a.S; }

/* ---- copying ------------------------------------------------------------------------------------------------ */

/* Copies tokens [first, first + n) of a tensor of `width` elements per token. */
static pb_status fetch(pb_ctx *ctx, void *to, const void *from, size_t first, size_t n, size_t width, pb_dtype t)
{
    const size_t e = pb_dtype_size(t);
    return pb_download(ctx, to, (const unsigned char *)from + first * width * e, n * width * e);
}

/* Copies what all checks read. Dense attention gets a list of all keys, which all later queries attend to. */
static pb_status fetch_inputs(pb_ctx *ctx, sample *s)
{
    const pb_gqa_call *c = s->c;
    const size_t S = (size_t)c->a.S, kv = (size_t)c->K * (size_t)c->a.D, slots = (size_t)s->lists * (size_t)s->slots;
    PB_TRY(fetch(ctx, s->k, c->k, 0, S, kv, c->a.dtype));
    PB_TRY(fetch(ctx, s->v, c->v, 0, S, kv, c->a.dtype));
    PB_TRY(fetch(ctx, s->lse, c->lse, 0, S, (size_t)c->a.H, PB_F32));
    for (int j = 0; !c->L && j < c->a.S; j++) s->list[j] = j, s->until[j] = c->a.S;
    if (!c->L) return PB_OK;
    PB_TRY(fetch(ctx, s->bias, c->bias, 0, S, (size_t)c->K, PB_F32));
    PB_TRY(pb_download(ctx, s->list, c->list, slots * sizeof *s->list));
    return pb_download(ctx, s->until, c->until, slots * sizeof *s->until);
}

/* ---- queries ------------------------------------------------------------------------------------------------ */

/* Compares o and lse, or dq, of head h of query i, which is the last query of a problem with i + 1 keys. room: [2,S,D]
 * elements and [S] floats for the gradients of the keys. */
static pb_status check_query(pb_ctx *cpu, const sample *s, int i, int h, void *room)
{
    const pb_gqa_call *c = s->c;
    const pb_attn *a = &c->a;
    const size_t e = pb_dtype_size(a->dtype), D = (size_t)a->D, kv = (size_t)(h / PB_GQA_GROUP);
    const size_t at = ((size_t)(i - s->first) * (size_t)a->H + (size_t)h) * D;
    unsigned char *dk = room, *dv = dk + (size_t)a->S * D * e;
    float lse = s->lse[(size_t)h * (size_t)a->S + (size_t)i];
    float out[512];
    const pb_dynmask_attention_bwd_args b = {.dO = (unsigned char *)s->dO + at * e,
                                             .q = (unsigned char *)s->q + at * e,
                                             .k = (unsigned char *)s->k + kv * D * e,
                                             .v = (unsigned char *)s->v + kv * D * e,
                                             .bias = bias_of(s, (int)kv),
                                             .list = list_of(s, (int)kv),
                                             .until = until_of(s, (int)kv),
                                             .o = (unsigned char *)s->o + at * e,
                                             .lse = &lse,
                                             .dq = out,
                                             .dk = dk,
                                             .dv = dv,
                                             .dbias = (void *)(dv + (size_t)a->S * D * e),
                                             .B = 1,
                                             .S = 1,
                                             .S_kv = i + 1,
                                             .H = 1,
                                             .K = 1,
                                             .D = a->D,
                                             .L = s->slots,
                                             .keep = a->W > 0 ? a->W : a->S,
                                             .lddo = D,
                                             .ldq = D,
                                             .ldk = (size_t)c->K * D,
                                             .ldv = (size_t)c->K * D,
                                             .ldo = D,
                                             .lddq = D,
                                             .lddk = D,
                                             .lddv = D,
                                             .scale = 1 / sqrtf((float)a->D),
                                             .dtype = a->dtype};
    const void *got = a->backward ? s->got : s->o;
    if (a->backward) PB_TRY(pb_dynmask_attention_bwd(cpu, &b));
    else
        PB_TRY(pb_dynmask_attention_fwd(cpu, &(pb_dynmask_attention_fwd_args){.q = b.q,
                                                                              .k = b.k,
                                                                              .v = b.v,
                                                                              .bias = b.bias,
                                                                              .list = b.list,
                                                                              .until = b.until,
                                                                              .o = out,
                                                                              .lse = &lse,
                                                                              .B = 1,
                                                                              .S = 1,
                                                                              .S_kv = i + 1,
                                                                              .H = 1,
                                                                              .K = 1,
                                                                              .D = a->D,
                                                                              .L = s->slots,
                                                                              .keep = b.keep,
                                                                              .ldq = D,
                                                                              .ldk = b.ldk,
                                                                              .ldv = b.ldv,
                                                                              .ldo = D,
                                                                              .scale = b.scale,
                                                                              .dtype = a->dtype}));
    for (size_t d = 0; d < D; d++)
        pb_deviation_add(&s->e->of[DQ], pb_load(out, d, a->dtype), pb_load(got, at + d, a->dtype));
    const double own = (double)s->lse[(size_t)h * (size_t)a->S + (size_t)i];
    if (!a->backward && isfinite(lse)) pb_deviation_add(&s->e->of[1], (double)lse, own);
    else if (!a->backward && !(own == (double)lse)) pb_deviation_add(&s->e->of[1], 1, (double)NAN);
    return PB_OK;
}

/* Compares the sampled queries of the current chunk. */
static pb_status check_queries(pb_ctx *cpu, const sample *s, void *room)
{
    const pb_attn *a = &s->c->a;
    for (int k = 0; k < QUERIES; k++) {
        const int i = k == 0 ? 0 : k == 1 ? a->S - 1 : (int)(pb_uniform(11, (uint64_t)k) * a->S);
        const int h = k * 5 % a->H;
        if (i >= s->first && i < s->first + s->n) PB_TRY(check_query(cpu, s, i, h, room));
    }
    return PB_OK;
}

/* ---- keys --------------------------------------------------------------------------------------------------- */

static pb_status choose_keys(sample *s)
{
    const pb_attn *a = &s->c->a;
    for (int k = 0; k < 64 && s->nk < KEYS; k++) {
        const int kv = k % s->c->K, l = (int)(pb_uniform(12, (uint64_t)k) * s->slots), j = list_of(s, kv)[l];
        if (j < 0) continue;
        double *sums = calloc(2 * (size_t)a->D, sizeof *sums);
        if (!sums) return pb_fail(PB_ENOMEM, "attention: no memory for the gradients of a key");
        s->keys[s->nk++] = (sampled_key){kv, j, until_of(s, kv)[l], sums, sums + a->D, 0};
    }
    return PB_OK;
}

static void add(double *sum, const float *x, int n)
{
    for (int d = 0; d < n; d++) sum[d] += (double)x[d];
}

/* Converts n tokens from `from` on of the heads of a kv head to f32: [n,GROUP,D]. */
static void load(const sample *s, float *to, const void *x, int from, int n, int kv)
{
    const pb_attn *a = &s->c->a;
    const size_t width = PB_GQA_GROUP * (size_t)a->D;
    for (size_t i = 0; i < (size_t)n; i++)
        for (size_t d = 0; d < width; d++) {
            const size_t token = (size_t)(from - s->first) + i;
            to[i * width + d] =
                (float)pb_load(x, (token * (size_t)a->H + (size_t)(kv * PB_GQA_GROUP)) * (size_t)a->D + d, a->dtype);
        }
}

/* Adds what the queries of the current chunk contribute to the gradients of a key: a problem in which all of them
 * attend to key 0, the only one that is listed. */
static pb_status add_key(pb_ctx *cpu, const sample *s, sampled_key *key)
{
    const pb_attn *a = &s->c->a;
    const int from = key->j > s->first ? key->j : s->first;
    const int end = key->until < s->first + s->n ? key->until : s->first + s->n, n = end - from;
    const size_t D = (size_t)a->D, width = PB_GQA_GROUP * D,
                 kv = ((size_t)key->j * (size_t)s->c->K + (size_t)key->kv) * D;
    const int32_t list = 0;
    if (n <= 0) return PB_OK;
    float *q = calloc((size_t)n * (4 * width + PB_GQA_GROUP + 4 * D + 2), sizeof *q);
    if (!q) return pb_fail(PB_ENOMEM, "attention: no memory for the reference of %d queries", n);
    float *dO = q + (size_t)n * width, *o = dO + (size_t)n * width, *dq = o + (size_t)n * width;
    float *lse = dq + (size_t)n * width, *k = lse + (size_t)n * PB_GQA_GROUP, *v = k + (size_t)n * D;
    float *dk = v + (size_t)n * D, *dv = dk + (size_t)n * D, *dbias = dv + (size_t)n * D, *bias = dbias + n;
    load(s, q, s->q, from, n, key->kv), load(s, dO, s->dO, from, n, key->kv), load(s, o, s->o, from, n, key->kv);
    for (size_t d = 0; d < D; d++)
        k[d] = (float)pb_load(s->k, kv + d, a->dtype), v[d] = (float)pb_load(s->v, kv + d, a->dtype);
    for (int g = 0; g < PB_GQA_GROUP; g++)
        for (int i = 0; i < n; i++)
            lse[g * n + i] = s->lse[(size_t)(key->kv * PB_GQA_GROUP + g) * (size_t)a->S + (size_t)(from + i)];
    bias[0] = bias_of(s, key->kv)[key->j];
    const pb_dynmask_attention_bwd_args b = {.dO = dO,
                                             .q = q,
                                             .k = k,
                                             .v = v,
                                             .bias = bias,
                                             .list = &list,
                                             .until = &n,
                                             .o = o,
                                             .lse = lse,
                                             .dq = dq,
                                             .dk = dk,
                                             .dv = dv,
                                             .dbias = dbias,
                                             .B = 1,
                                             .S = n,
                                             .S_kv = n,
                                             .H = PB_GQA_GROUP,
                                             .K = 1,
                                             .D = a->D,
                                             .L = 1,
                                             .keep = 1,
                                             .lddo = width,
                                             .ldq = width,
                                             .ldk = D,
                                             .ldv = D,
                                             .ldo = width,
                                             .lddq = width,
                                             .lddk = D,
                                             .lddv = D,
                                             .scale = 1 / sqrtf((float)a->D),
                                             .dtype = PB_F32};
    const pb_status st = pb_dynmask_attention_bwd(cpu, &b);
    if (st == PB_OK) add(key->dk, dk, a->D), add(key->dv, dv, a->D), key->dbias += (double)dbias[0];
    free(q);
    return st;
}

/* Compares the sums of the keys with the device's. */
static pb_status check_keys(pb_ctx *ctx, const sample *s)
{
    const pb_gqa_call *c = s->c;
    const pb_attn *a = &c->a;
    for (int n = 0; n < s->nk; n++) {
        const sampled_key *key = &s->keys[n];
        const size_t at = (size_t)key->kv * (size_t)a->D, width = (size_t)c->K * (size_t)a->D;
        float dbias;
        PB_TRY(fetch(ctx, s->got, c->dk, (size_t)key->j, 1, width, a->dtype));
        for (int d = 0; d < a->D; d++)
            pb_deviation_add(&s->e->of[DK], key->dk[d], pb_load(s->got, at + (size_t)d, a->dtype));
        PB_TRY(fetch(ctx, s->got, c->dv, (size_t)key->j, 1, width, a->dtype));
        for (int d = 0; d < a->D; d++)
            pb_deviation_add(&s->e->of[DV], key->dv[d], pb_load(s->got, at + (size_t)d, a->dtype));
        if (!c->dbias) continue;
        PB_TRY(fetch(ctx, &dbias, c->dbias, (size_t)key->kv * (size_t)a->S + (size_t)key->j, 1, 1, PB_F32));
        pb_deviation_add(&s->e->of[DBIAS], key->dbias, (double)dbias);
    }
    return PB_OK;
}

/* ---- the whole check ------------------------------------------------------------------------------------------ */

/* Looks at all elements of an output, `rows` of `width`, a chunk at a time. */
static pb_status look(pb_ctx *ctx, const sample *s, const char *name, const void *x, size_t rows, size_t width,
                      pb_dtype t)
{
    for (size_t r = 0; r < rows; r += CHUNK) {
        const size_t n = rows - r < CHUNK ? rows - r : CHUNK;
        PB_TRY(fetch(ctx, s->got, x, r, n, width, t));
        pb_attn_look(s->e, name, s->got, n * width, t);
    }
    return PB_OK;
}

static pb_status look_at_outputs(pb_ctx *ctx, const sample *s)
{
    const pb_gqa_call *c = s->c;
    const pb_attn *a = &c->a;
    const size_t S = (size_t)a->S, queries = (size_t)a->H * (size_t)a->D, kv = (size_t)c->K * (size_t)a->D;
    if (!a->backward) return look(ctx, s, "o", c->o, S, queries, a->dtype);
    PB_TRY(look(ctx, s, "dq", c->dq, S, queries, a->dtype));
    PB_TRY(look(ctx, s, "dk", c->dk, S, kv, a->dtype));
    PB_TRY(look(ctx, s, "dv", c->dv, S, kv, a->dtype));
    return c->dbias ? look(ctx, s, "dbias", c->dbias, S, (size_t)c->K, PB_F32) : PB_OK;
}

static pb_status check_chunk(pb_ctx *ctx, pb_ctx *cpu, sample *s, void *room)
{
    const pb_gqa_call *c = s->c;
    const size_t first = (size_t)s->first, n = (size_t)s->n, width = (size_t)c->a.H * (size_t)c->a.D;
    pb_status worst = PB_OK;
    PB_TRY(fetch(ctx, s->q, c->q, first, n, width, c->a.dtype));
    PB_TRY(fetch(ctx, s->o, c->o, first, n, width, c->a.dtype));
    if (!c->a.backward) return check_queries(cpu, s, room);
    PB_TRY(fetch(ctx, s->dO, c->dO, first, n, width, c->a.dtype));
    PB_TRY(fetch(ctx, s->got, c->dq, first, n, width, c->a.dtype));
    for (int k = 0; k < s->nk && worst == PB_OK; k++) worst = add_key(cpu, s, &s->keys[k]);
    return worst == PB_OK ? check_queries(cpu, s, room) : worst;
}

static pb_status check_all(pb_ctx *ctx, pb_ctx *cpu, sample *s, void *room)
{
    const pb_attn *a = &s->c->a;
    PB_TRY(fetch_inputs(ctx, s));
    if (a->backward) PB_TRY(choose_keys(s));
    for (s->first = 0; s->first < a->S; s->first += CHUNK) {
        s->n = a->S - s->first < CHUNK ? a->S - s->first : CHUNK;
        PB_TRY(check_chunk(ctx, cpu, s, room));
    }
    if (a->backward) PB_TRY(check_keys(ctx, s));
    return look_at_outputs(ctx, s);
}

/* Allocates all arrays of the sample in one block, which the caller frees through k, and sets *room. */
static pb_status sample_open(sample *s, void **room)
{
    const pb_gqa_call *c = s->c;
    const size_t S = (size_t)c->a.S, D = (size_t)c->a.D, H = (size_t)c->a.H, e = pb_dtype_size(c->a.dtype);
    const size_t kv = S * (size_t)c->K * D * e, chunk = CHUNK * H * D * 4, slots = (size_t)s->lists * (size_t)s->slots;
    const size_t rooms = 2 * S * D * e + S * sizeof(float);
    unsigned char *at = calloc(2 * kv + 4 * chunk + rooms + 4 * (S * (size_t)s->lists + S * H + 2 * slots), 1);
    if (!at) return pb_fail(PB_ENOMEM, "attention: no memory to check a case");
    s->k = at, s->v = at += kv, s->q = at += kv, s->dO = at += chunk, s->o = at += chunk, s->got = at += chunk;
    *room = at += chunk, s->bias = (void *)(at + rooms), s->lse = s->bias + S * (size_t)s->lists;
    s->list = (void *)(s->lse + S * H), s->until = s->list + slots;
    return PB_OK;
}

pb_status pb_gqa_check(pb_ctx *ctx, const pb_gqa_call *c, pb_attn_error *out)
{
    static const char *const names[2][PB_CHECKED] = {{"o", "lse"}, {"dq", "dk", "dv", "dbias"}};
    const double tol = pb_gqa_op(&c->a)->tol[c->a.dtype];
    pb_attn_error e = {.bad = 0};
    sample s = {.c = c, .e = &e, .lists = c->L ? c->K : 1, .slots = c->L ? c->L : c->a.S};
    void *room = NULL;
    pb_ctx cpu;
    for (int k = 0; k < PB_CHECKED; k++) e.name[k] = names[c->a.backward][k], e.tol[k] = 1.5 * tol;
    if (!c->L && c->a.backward) e.name[DBIAS] = NULL;
    PB_TRY(sample_open(&s, &room));
    pb_status st = pb_ctx_open(&cpu, PB_CPU, 0);
    if (st == PB_OK) {
        cpu.impl = "ref";
        st = check_all(ctx, &cpu, &s, room);
        pb_ctx_close(&cpu);
    }
    for (int k = 0; k < s.nk; k++) free(s.keys[k].dk);
    free(s.k);
    if (st == PB_OK) *out = e;
    return st;
}
