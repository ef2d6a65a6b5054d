/* attention_check.c - compares a pass's outputs with small reference problems, several at a time, one chunk of queries
 * after the other. */
#include "bench/suites/attention_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sparse_mla/sparse_mla.h"

/* ---- measures of deviation ----------------------------------------------------------------------------- */

void pb_deviation_add(pb_deviation *d, double want, double got)
{
    const double apart = fabs(want - got);
    d->diff += apart * apart;
    d->norm += want * want;
    d->xy += want * got;
    d->squares += want * want + got * got;
    if (isnan(apart) || apart > d->most) d->most = apart; /* once `most` is NaN, no later value replaces it */
    d->n++;
}

double pb_deviation_rel(const pb_deviation *d) { return sqrt(d->diff / (d->norm > 0 ? d->norm : 1)); }
double pb_deviation_most(const pb_deviation *d) { return d->norm > 0 ? d->most / sqrt(d->norm / d->n) : d->most; }
double pb_deviation_rel_diff(const pb_deviation *d)
{
    return !(d->squares <= 0) ? 1 - 2 * d->xy / d->squares : 0; /* the negated test lets NaN through */
}

/* ---- choosing the elements to check -------------------------------------------------------------------- */

/* Limits of the sample. QUERIES, HEADS, ROWS: most queries, heads and rows of kv that are checked. PARTS: parts of a
 * chunk whose contributions are computed in parallel. PAIRS: a row of kv is checked only if at most this many (query,
 * head) pairs attend to it. */
enum { QUERIES = 16, HEADS = 8, ROWS = 6, PARTS = 16, PAIRS = 1 << 18 };

typedef struct sample {
    const pb_attn_call *c;
    pb_attn_error *e;
    float scale;
    int query[QUERIES], nq, nh, row[ROWS], nr;
    void *kv;              /* [S_kv,D], copied from the device */
    float *sink;           /* [H] */
    double *dkv, *dsink;   /* [ROWS,D], [H]: sums of the reference so far */
    void *q, *dO, *o, *dq; /* [n,H,D or V], copied from the device: the current chunk of queries */
    float *lse;            /* [n,H] */
    int32_t *listed_by;    /* [S_kv]: number of slots that list the row */
    /* current chunk: queries first..first+n-1; most: queries of the largest chunk; tasks: parallel tasks per chunk */
    int first, n, most, tasks;
} sample;

static int clamp(int v, int least, int most) { return v < least ? least : v > most ? most : v; }

static int slots(const pb_attn *a) { return a->variant == PB_VARIANT_DENSE && (!a->W || a->W > a->S) ? a->S : a->W; }

/* Writes the rows that query i attends to into rows[slots(a)] and returns their number. */
static int seen(const pb_attn_call *c, int i, int32_t *rows)
{
    const pb_attn *a = &c->a;
    int n = 0;
    if (a->variant == PB_VARIANT_DENSE) {
        for (int r = a->W && i >= a->W ? i - a->W + 1 : 0; r <= i; r++) rows[n++] = r;
        return n;
    }
    const int32_t *list = c->lists + (size_t)i * a->W;
    for (int w = 0; w < a->W; w++)
        if (list[w] >= 0 && list[w] < a->S_kv) rows[n++] = list[w];
    return n;
}

/* Returns how often query i lists the row. */
static int times(const pb_attn_call *c, int i, int row)
{
    const pb_attn *a = &c->a;
    int n = 0;
    if (a->variant == PB_VARIANT_DENSE) return row <= i && (!a->W || row > i - a->W);
    for (int w = 0; w < a->W; w++) n += c->lists[(size_t)i * a->W + w] == row;
    return n;
}

/* Chooses the queries and heads to check: fewer for longer lists, so that the reference takes about equal time for
 * every case. */
static void choose_queries(sample *s)
{
    const pb_attn *a = &s->c->a;
    s->nq = clamp((1 << 17) / slots(a), 4, QUERIES);
    s->nh = clamp((1 << 15) / slots(a), 1, a->H < HEADS ? a->H : HEADS);
    if (s->nq > a->S) s->nq = a->S;
    for (int k = 0; k < s->nq; k++)
        s->query[k] = k == 0 ? 0 : k == 1 ? a->S - 1 : (int)(pb_uniform(11, (uint64_t)k) * a->S);
}

/* Chooses the rows of kv to check, among those that are not listed too often. In a dense case fewer queries attend to
 * later rows, so rows are drawn from the end. */
static pb_status choose_rows(sample *s)
{
    const pb_attn *a = &s->c->a;
    const bool dense = a->variant == PB_VARIANT_DENSE;
    const int limit = PAIRS / a->H, late = limit < a->S ? limit : a->S;
    for (size_t e = 0; !dense && e < (size_t)a->S * a->W; e++) {
        const int32_t r = s->c->lists[e];
        if (r >= 0 && r < a->S_kv) s->listed_by[r]++;
    }
    for (int k = 0; k < 64 && s->nr < ROWS; k++) {
        const double u = pb_uniform(12, (uint64_t)k);
        const int group = k % 2 && a->S_kv > a->S ? a->S + (int)(u * (a->S_kv - a->S)) : -1;
        const int r = dense ? a->S - 1 - (int)(u * late) : group >= 0 ? group : (int)(u * a->S);
        if (s->listed_by[r] <= limit) s->row[s->nr++] = r;
    }
    return s->nr ? PB_OK
                 : pb_fail(PB_EUNSUPPORTED, "attention: every row of kv is in too many key lists to be checked");
}

/* ---- one small reference problem -------------------------------------------------------------------------- */

typedef struct problem {
    float *q, *kv, *dO, *o, *lse, *sink, *dq, *dkv, *dsink; /* one allocation, freed through q */
    int32_t *idx;
    int S, S_kv, H, W;
} problem;

/* Allocates the arrays of a problem, filled with zeros. With W = 0 no query lists a row. */
static pb_status problem_open(const sample *s, int S, int H, int S_kv, int W, problem *out)
{
    const size_t D = (size_t)s->c->a.D, heads = (size_t)S * (size_t)H, kv = (size_t)S_kv * D;
    float *at = calloc(heads * (4 * D + 1) + 2 * kv + 2 * (size_t)H, sizeof *at);
    problem p = {.q = at, .S = S, .S_kv = S_kv, .H = H, .W = W};
    p.idx = calloc((size_t)S * (size_t)W + 1, sizeof *p.idx);
    if (!at || !p.idx) {
        free(at), free(p.idx);
        return pb_fail(PB_ENOMEM, "attention: no memory for the reference of %d queries", S);
    }
    p.dO = at += heads * D, p.o = at += heads * D, p.dq = at += heads * D, p.lse = at += heads * D;
    p.kv = at += heads, p.dkv = at += kv, p.sink = at += kv, p.dsink = at + H;
    *out = p;
    return PB_OK;
}

static void problem_close(problem *p)
{
    free(p->q);
    free(p->idx);
}

static pb_status problem_run(pb_ctx *cpu, const sample *s, const problem *p)
{
    const pb_attn *a = &s->c->a;
    const pb_sparse_mla_bwd_args b = {.dO = p->dO,
                                      .q = p->q,
                                      .kv = p->kv,
                                      .idx = p->idx,
                                      .sink = p->sink,
                                      .o = p->o,
                                      .lse = p->lse,
                                      .dq = p->dq,
                                      .dkv = p->dkv,
                                      .dsink = p->dsink,
                                      .B = 1,
                                      .S = p->S,
                                      .S_kv = p->S_kv,
                                      .H = p->H,
                                      .D = a->D,
                                      .V = a->V,
                                      .W = p->W,
                                      .scale = s->scale};
    if (a->backward) return pb_sparse_mla_bwd(cpu, &b);
    return pb_sparse_mla_fwd(cpu, &(pb_sparse_mla_fwd_args){.q = b.q,
                                                            .kv = b.kv,
                                                            .idx = b.idx,
                                                            .sink = b.sink,
                                                            .o = p->o,
                                                            .lse = p->lse,
                                                            .B = 1,
                                                            .S = b.S,
                                                            .S_kv = b.S_kv,
                                                            .H = b.H,
                                                            .D = b.D,
                                                            .V = b.V,
                                                            .W = b.W,
                                                            .scale = b.scale});
}

static void load(const sample *s, float *to, const void *from, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = (float)pb_load(from, at + i, s->c->a.dtype);
}

/* Copies p->H heads, from head h on, of query i of the chunk to query k of the problem. */
static void load_query(const sample *s, problem *p, int k, int i, int h)
{
    const pb_attn *a = &s->c->a;
    const size_t D = (size_t)a->D, V = (size_t)a->V, H = (size_t)p->H;
    const size_t from = (size_t)(i - s->first) * (size_t)a->H + (size_t)h, to = (size_t)k * H;
    load(s, p->q + to * D, s->q, from * D, H * D);
    if (!a->backward) return;
    load(s, p->dO + to * V, s->dO, from * V, H * V);
    load(s, p->o + to * V, s->o, from * V, H * V);
    memcpy(p->lse + to, s->lse + from, H * sizeof *p->lse);
}

static void compare(const sample *s, int which, const float *want, const void *got, size_t at, size_t n, pb_dtype t)
{
    pb_deviation *d = &s->e->of[which];
#pragma omp critical(pb_attn_compare)
    for (size_t i = 0; i < n; i++) pb_deviation_add(d, (double)want[i], pb_load(got, at + i, t));
}

/* ---- the parallel tasks of one chunk ---------------------------------------------------------------------- */

/* Checks one head of one query: o and lse of a forward case, dq of a backward case. */
static pb_status check_head(pb_ctx *cpu, const sample *s, int i, int h)
{
    const pb_attn *a = &s->c->a;
    const size_t head = (size_t)(i - s->first) * (size_t)a->H + (size_t)h;
    int32_t *rows = malloc((size_t)slots(a) * sizeof *rows);
    problem p;
    if (!rows) return pb_fail(PB_ENOMEM, "attention: no memory for a list");
    const int n = seen(s->c, i, rows);
    pb_status st = problem_open(s, 1, 1, n ? n : 1, n, &p);
    if (st == PB_OK) {
        load_query(s, &p, 0, i, h);
        p.sink[0] = s->sink[h];
        for (int w = 0; w < n; w++) {
            p.idx[w] = w;
            load(s, p.kv + (size_t)w * a->D, s->kv, (size_t)rows[w] * a->D, (size_t)a->D);
        }
        st = problem_run(cpu, s, &p);
        if (st == PB_OK && a->backward) compare(s, 0, p.dq, s->dq, head * a->D, (size_t)a->D, a->dtype);
        if (st == PB_OK && !a->backward) {
            compare(s, 0, p.o, s->o, head * a->V, (size_t)a->V, a->dtype);
            compare(s, 1, p.lse, s->lse, head, 1, PB_F32);
        }
        problem_close(&p);
    }
    free(rows);
    return st;
}

static void add(double *sum, const float *part, int n)
{
#pragma omp critical(pb_attn_add)
    for (int i = 0; i < n; i++) sum[i] += (double)part[i];
}

/* Adds the contribution of queries from..to-1 to the gradient of the sampled row with index `which`, or to dsink if
 * `which` is nr. A query that lists the row twice contributes twice. */
static pb_status add_queries(pb_ctx *cpu, const sample *s, int from, int to, int which)
{
    const pb_attn *a = &s->c->a;
    const int row = which < s->nr ? s->row[which] : -1;
    int n = 0, k = 0;
    problem p;
    for (int i = from; i < to; i++) n += row < 0 ? 1 : times(s->c, i, row);
    if (!n) return PB_OK;
    PB_TRY(problem_open(s, n, a->H, 1, row < 0 ? 0 : 1, &p));
    for (int i = from; i < to; i++)
        for (int left = row < 0 ? 1 : times(s->c, i, row); left > 0; left--) load_query(s, &p, k++, i, 0);
    memcpy(p.sink, s->sink, (size_t)a->H * sizeof *p.sink);
    if (row >= 0) load(s, p.kv, s->kv, (size_t)row * a->D, (size_t)a->D);
    pb_status st = problem_run(cpu, s, &p);
    if (st == PB_OK && row >= 0) add(s->dkv + (size_t)which * a->D, p.dkv, a->D);
    if (st == PB_OK && row < 0) add(s->dsink, p.dsink, a->H);
    problem_close(&p);
    return st;
}

/* Runs task t of the chunk. The first nq * nh tasks check one head of a sampled query each. The others add up the
 * gradients: PARTS ranges of queries, and in each the nr sampled rows and dsink. */
static pb_status task(pb_ctx *cpu, const sample *s, int t)
{
    const int H = s->c->a.H, heads = s->nq * s->nh;
    if (t < heads) {
        const int k = t / s->nh, i = s->query[k];
        const bool here = i >= s->first && i < s->first + s->n;
        return here ? check_head(cpu, s, i, (t % s->nh * H / s->nh + k) % H) : PB_OK;
    }
    const int part = (t - heads) / (s->nr + 1), which = (t - heads) % (s->nr + 1);
    return add_queries(cpu, s, s->first + part * s->n / PARTS, s->first + (part + 1) * s->n / PARTS, which);
}

static pb_status run_tasks(const sample *s)
{
    char why[400] = "";
    pb_status worst = PB_OK;
#pragma omp parallel
    {
        pb_ctx cpu;
        pb_status st = pb_ctx_open(&cpu, PB_CPU, 0);
        const bool open = st == PB_OK;
        cpu.impl = "ref";
#pragma omp for schedule(dynamic)
        for (int t = 0; t < s->tasks; t++)
            if (st == PB_OK) st = task(&cpu, s, t);
        if (open) pb_ctx_close(&cpu);
#pragma omp critical(pb_attn_failed)
        if (st != PB_OK && worst == PB_OK) worst = st, snprintf(why, sizeof why, "%s", pb_error());
    }
    return worst == PB_OK ? PB_OK : pb_fail(worst, "%s", why);
}

/* ---- checking all chunks ---------------------------------------------------------------------------------- */

void pb_attn_look(pb_attn_error *e, const char *name, const void *p, size_t n, pb_dtype t)
{
    double bad = 0;
#pragma omp parallel for reduction(+ : bad)
    for (size_t i = 0; i < n; i++) bad += !(fabs(pb_load(p, i, t)) < PB_UNWRITTEN / 10);
    if (bad > 0 && !e->bad_in) e->bad_in = name;
    e->bad += bad;
}

static pb_status fetch(pb_ctx *ctx, void *to, const void *from, size_t at, size_t n, pb_dtype t)
{
    const size_t e = pb_dtype_size(t);
    return pb_download(ctx, to, (const unsigned char *)from + at * e, n * e);
}

static pb_status check_piece(pb_ctx *ctx, const sample *s)
{
    const pb_attn_call *c = s->c;
    const pb_attn *a = &c->a;
    const size_t at = (size_t)s->first * (size_t)a->H, n = (size_t)s->n * (size_t)a->H, D = (size_t)a->D,
                 V = (size_t)a->V;
    PB_TRY(fetch(ctx, s->q, c->q, at * D, n * D, a->dtype));
    PB_TRY(fetch(ctx, s->o, c->o, at * V, n * V, a->dtype));
    PB_TRY(fetch(ctx, s->lse, c->lse, at, n, PB_F32));
    if (a->backward) {
        PB_TRY(fetch(ctx, s->dO, c->dO, at * V, n * V, a->dtype));
        PB_TRY(fetch(ctx, s->dq, c->dq, at * D, n * D, a->dtype));
        pb_attn_look(s->e, "dq", s->dq, n * D, a->dtype);
    } else {
        pb_attn_look(s->e, "o", s->o, n * V, a->dtype);
        pb_attn_look(s->e, "lse", s->lse, n, PB_F32);
    }
    return run_tasks(s);
}

/* Compares the reference's sums over all queries with the device's dkv and dsink. */
static pb_status check_sums(pb_ctx *ctx, sample *s)
{
    const pb_attn_call *c = s->c;
    const pb_attn *a = &c->a;
    const size_t n = (size_t)a->S_kv * (size_t)a->D;
    float *dsink = malloc((size_t)a->H * sizeof *dsink);
    void *dkv = malloc(n * pb_dtype_size(a->dtype));
    pb_status st = dsink && dkv ? PB_OK : pb_fail(PB_ENOMEM, "attention: no memory for gradients");
    if (st == PB_OK) st = fetch(ctx, dkv, c->dkv, 0, n, a->dtype);
    if (st == PB_OK) st = fetch(ctx, dsink, c->dsink, 0, (size_t)a->H, PB_F32);
    if (st == PB_OK) {
        pb_attn_look(s->e, "dkv", dkv, n, a->dtype);
        pb_attn_look(s->e, "dsink", dsink, (size_t)a->H, PB_F32);
        for (int r = 0; r < s->nr; r++)
            for (int d = 0; d < a->D; d++)
                pb_deviation_add(&s->e->of[1], s->dkv[(size_t)r * a->D + d],
                                 pb_load(dkv, (size_t)s->row[r] * a->D + d, a->dtype));
        for (int h = 0; h < a->H; h++) pb_deviation_add(&s->e->of[2], s->dsink[h], (double)dsink[h]);
    }
    free(dkv);
    free(dsink);
    return st;
}

static pb_status check_pieces(pb_ctx *ctx, sample *s)
{
    const pb_attn *a = &s->c->a;
    PB_TRY(fetch(ctx, s->kv, s->c->kv, 0, (size_t)a->S_kv * (size_t)a->D, a->dtype));
    PB_TRY(fetch(ctx, s->sink, s->c->sink, 0, (size_t)a->H, PB_F32));
    for (s->first = 0; s->first < a->S; s->first += s->n) {
        s->n = a->S - s->first < s->most ? a->S - s->first : s->most;
        PB_TRY(check_piece(ctx, s));
    }
    return a->backward ? check_sums(ctx, s) : PB_OK;
}

/* Allocates all arrays of the sample in one block, freed through kv. */
static pb_status sample_open(sample *s)
{
    const pb_attn *a = &s->c->a;
    const size_t e = pb_dtype_size(a->dtype), kv = ((size_t)a->S_kv * a->D * e + 7) / 8 * 8, H = (size_t)a->H;
    s->most = clamp((1 << 23) / (a->H * a->D), 1, a->S);
    const size_t heads = (size_t)s->most * H, piece = (heads * (size_t)a->D * e + 7) / 8 * 8;
    const size_t sums = (ROWS * (size_t)a->D + H) * sizeof(double), small = (heads + H) * sizeof(float);
    unsigned char *at = calloc(kv + 4 * piece + sums + small + (size_t)a->S_kv * sizeof(int32_t), 1);
    if (!at) return pb_fail(PB_ENOMEM, "attention: no memory to check a case");
    s->kv = at, s->q = at += kv, s->dO = at += piece, s->o = at += piece, s->dq = at += piece;
    s->dkv = (void *)(at += piece), s->dsink = s->dkv + ROWS * (size_t)a->D;
    s->lse = (void *)(at += sums), s->sink = s->lse + heads;
    s->listed_by = (void *)(at + small);
    return PB_OK;
}

pb_status pb_attn_check(pb_ctx *ctx, const pb_attn_call *c, pb_attn_error *out)
{
    static const char *const names[2][PB_CHECKED] = {{"o", "lse", NULL}, {"dq", "dkv", "dsink"}};
    /* In f32 gradients differ more than o does: they subtract dO . o from dO . v, and both, and lse, have been rounded.
     * With 8 heads dq of dense attention differs by 0.8e-6 to 1.03e-6 at 256 to 640 tokens. */
    const bool f32 = c->a.dtype == PB_F32;
    const double tol = pb_attn_op(&c->a)->tol[c->a.dtype], wider = f32 ? 2 * tol : 1.5 * tol;
    pb_attn_error e = {.bad = 0};
    sample s = {.c = c, .e = &e, .scale = 1 / sqrtf((float)c->a.D)};
    for (int k = 0; k < PB_CHECKED; k++) {
        e.name[k] = names[c->a.backward][k];
        e.tol[k] = c->a.backward && (k > 0 || f32) ? wider : tol;
    }
    PB_TRY(sample_open(&s));
    choose_queries(&s);
    pb_status st = c->a.backward ? choose_rows(&s) : PB_OK;
    s.tasks = s.nq * s.nh + (c->a.backward ? PARTS * (s.nr + 1) : 0);
    if (st == PB_OK) st = check_pieces(ctx, &s);
    free(s.kv);
    if (st == PB_OK) *out = e;
    return st;
}

/* ---- the verdict on all outputs --------------------------------------------------------------------------- */

int pb_attn_worst(const pb_attn_error *e)
{
    int worst = 0;
    for (int k = 1; k < PB_CHECKED && e->name[k]; k++) {
        const double rel = pb_deviation_rel(&e->of[k]), so_far = pb_deviation_rel(&e->of[worst]);
        if (isnan(rel) || rel > so_far) worst = k;
    }
    return worst;
}

bool pb_attn_right(const pb_attn_error *e, char *why, size_t n)
{
    if (e->bad > 0) {
        snprintf(why, n, "%.0f elements are not finite or never written, the first in %s", e->bad, e->bad_in);
        return false;
    }
    for (int k = 0; k < PB_CHECKED && e->name[k]; k++) {
        const double rel = pb_deviation_rel(&e->of[k]), most = pb_deviation_most(&e->of[k]);
        if (rel <= e->tol[k] && most <= 100 * e->tol[k]) continue;
        snprintf(why, n, "%s differs from the reference: rel %.3g, largest %.3g, tolerance %.3g", e->name[k], rel, most,
                 e->tol[k]);
        return false;
    }
    return true;
}
