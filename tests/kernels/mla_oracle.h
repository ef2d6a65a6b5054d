/* mla_oracle.h - sparse MLA, forward and backward, in double precision on OpenBLAS.
 * It is fast enough for the shapes that models train with. It shares no code with the ops that it judges, except for
 * reading a key list (mla.h).
 *
 * In bf16 its backward pass uses its own o and lse in double precision. In f32 it uses the o and lse that the op is
 * given: their rounding alone takes most of the allowed error of 1e-6. */
#ifndef PB_MLA_ORACLE_H
#define PB_MLA_ORACLE_H
#include <cblas.h>
#include <omp.h>

#include "kernels/sparse_mla/mla.h"
#include "tests/test.h"

/* Outputs in double, in the layout of the op's outputs. */
typedef struct mla_want {
    double *o, *lse, *dq, *dkv, *dsink;
} mla_want;

static inline double *mla_doubles(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static inline void mla_want_free(mla_want *w) { free(w->o), free(w->lse), free(w->dq), free(w->dkv), free(w->dsink); }

/* Working memory of one thread for one token: the n keys it attends to, its heads, and products of both. */
typedef struct mla_room {
    int n, *row;
    double *kv, *dkv;        /* [n][D] */
    double *q, *dO;          /* [H][D], [H][V] */
    double *p, *ds;          /* [H][n] */
    double *sums, *sum_sink; /* this thread's part of the sums dkv [B][S_kv][D] and dsink [H] */
} mla_room;

static inline mla_room mla_room_make(const pb_mla *p)
{
    mla_room r = {.row = malloc(((size_t)p->W + 1) * sizeof *r.row)};
    assert_non_null(r.row);
    r.kv = mla_doubles((size_t)p->W * p->D), r.dkv = mla_doubles((size_t)p->W * p->D);
    r.q = mla_doubles((size_t)p->H * p->D), r.dO = mla_doubles((size_t)p->H * p->V);
    r.p = mla_doubles((size_t)p->H * p->W), r.ds = mla_doubles((size_t)p->H * p->W);
    r.sums = mla_doubles((size_t)p->B * p->S_kv * p->D), r.sum_sink = mla_doubles(p->H);
    return r;
}

static inline void mla_room_free(mla_room *r)
{
    double *all[] = {r->kv, r->dkv, r->q, r->dO, r->p, r->ds, r->sums, r->sum_sink};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(r->row);
}

static inline void mla_load(double *to, const void *from, size_t at, size_t n, pb_dtype t)
{
    for (size_t e = 0; e < n; e++) to[e] = pb_load(from, at + e, t);
}

/* Computes c [m,n] = a b (+ c if `add`), row-major. ta: a is stored as [k,m]; tb: b is stored as [n,k]. */
static inline void mla_mul(bool ta, bool tb, int m, int n, int k, const double *a, int lda, const double *b, int ldb,
                           double *c, int ldc, bool add)
{
    cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b,
                ldb, add, c, ldc);
}

/* Turns the scores in r->p into softmax weights; writes lse of every head. */
static inline void mla_weigh(const pb_mla *p, mla_room *r, double *lse)
{
    for (int h = 0; h < p->H; h++) {
        double *s = r->p + (size_t)h * r->n, top = (double)p->sink[h], sum;
        for (int k = 0; k < r->n; k++) s[k] *= (double)p->scale, top = s[k] > top ? s[k] : top;
        sum = top == (double)-INFINITY ? 0 : exp((double)p->sink[h] - top);
        for (int k = 0; k < r->n; k++) sum += exp(s[k] - top);
        lse[h] = top + log(sum);
        for (int k = 0; k < r->n; k++) s[k] = exp(s[k] - lse[h]);
    }
}

/* Replaces dP in r->ds by dS, the gradient of the scores, and adds to the gradient of the sink. */
static inline void mla_weigh_back(const pb_mla *p, mla_room *r, const double *o, const double *lse, size_t head)
{
    for (int h = 0; h < p->H; h++) {
        const bool given = p->dtype == PB_F32;
        const double of = given ? (double)p->lse[head + h] : lse[h], moved = exp(lse[h] - of);
        double delta = 0;
        for (size_t d = (size_t)h * p->V; d < (size_t)(h + 1) * p->V; d++)
            delta += (given ? pb_load(p->o, head * p->V + d, p->dtype) : o[d]) * r->dO[d];
        if (p->sink[h] != -INFINITY) r->sum_sink[h] -= delta * exp((double)p->sink[h] - of);
        for (size_t k = (size_t)h * r->n; k < (size_t)(h + 1) * r->n; k++) {
            r->p[k] *= moved;
            r->ds[k] = (double)p->scale * r->p[k] * (r->ds[k] - delta);
        }
    }
}

static inline void mla_oracle_token(const pb_mla *p, mla_room *r, const mla_want *w, size_t token)
{
    const int H = p->H, D = p->D, V = p->V, b = (int)(token / p->S), i = (int)(token % p->S);
    const pb_mla_keys keys = pb_mla_keys_of(p, b, i);
    const size_t head = token * H;
    double *o = w->o + head * V, *dq = w->dq + head * D, *sums = r->sums + (size_t)b * p->S_kv * D;
    r->n = 0;
    for (int k = 0; k < keys.n; k++) {
        const int row = pb_mla_row(p, &keys, k);
        if (row < 0) continue;
        mla_load(r->kv + (size_t)r->n * D, p->kv, ((size_t)b * p->S_kv + row) * D, D, p->dtype);
        r->row[r->n++] = row;
    }
    mla_load(r->q, p->q, head * D, (size_t)H * D, p->dtype);
    mla_load(r->dO, p->dO, head * V, (size_t)H * V, p->dtype);
    if (r->n) mla_mul(false, true, H, r->n, D, r->q, D, r->kv, D, r->p, r->n, false);
    mla_weigh(p, r, w->lse + head);
    if (!r->n) return; /* no keys: o and all gradients stay 0 */
    mla_mul(false, false, H, V, r->n, r->p, r->n, r->kv, D, o, V, false);
    mla_mul(false, true, H, r->n, V, r->dO, V, r->kv, D, r->ds, r->n, false);
    mla_weigh_back(p, r, o, w->lse + head, head);
    mla_mul(false, false, H, D, r->n, r->ds, r->n, r->kv, D, dq, D, false);
    mla_mul(true, false, r->n, D, H, r->ds, r->n, r->q, D, r->dkv, D, false);
    mla_mul(true, false, r->n, V, H, r->p, r->n, r->dO, V, r->dkv, D, true);
    for (int k = 0; k < r->n; k++)
        for (int d = 0; d < D; d++) sums[(size_t)r->row[k] * D + d] += r->dkv[(size_t)k * D + d];
}

/* Computes the outputs of both passes for a backward problem in host memory. Free the result with mla_want_free(). */
static inline mla_want mla_oracle(const pb_mla *p)
{
    const size_t tokens = (size_t)p->B * p->S, heads = tokens * p->H, kv = (size_t)p->B * p->S_kv * p->D;
    mla_want w = {mla_doubles(heads * p->V), mla_doubles(heads), mla_doubles(heads * p->D), mla_doubles(kv),
                  mla_doubles(p->H)};
#pragma omp parallel
    {
        mla_room r = mla_room_make(p);
#pragma omp for schedule(static)
        for (size_t t = 0; t < tokens; t++) mla_oracle_token(p, &r, &w, t);
#pragma omp for ordered schedule(static, 1)
        for (int thread = 0; thread < omp_get_num_threads(); thread++) {
#pragma omp ordered
            {
                for (size_t e = 0; e < kv; e++) w.dkv[e] += r.sums[e];
                for (int h = 0; h < p->H; h++) w.dsink[h] += r.sum_sink[h];
            }
        }
        mla_room_free(&r);
    }
    return w;
}
#endif
