/* mla.c - what sparse_mla and dense_mla share on the host: the reference in double, checks, costs, and the tensors of a
 * problem. */
#include "kernels/sparse_mla/mla.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "kernels/sparse_mla/plan.h"

/* ---- reference ---------------------------------------------------------------------------------------- */

static double dot(const void *x, size_t at, const void *y, size_t to, int n, pb_dtype t)
{
    double sum = 0;
    for (int d = 0; d < n; d++) sum += pb_load(x, at + d, t) * pb_load(y, to + d, t);
    return sum;
}

/* Where head h of token (b,i) begins in q and in o, and row `row` in kv; its place in lse. */
static size_t head_at(const pb_mla *p, int b, int i, int h) { return ((size_t)b * p->S + i) * p->H + h; }
static size_t row_at(const pb_mla *p, int b, int row) { return ((size_t)b * p->S_kv + row) * p->D; }

static double score(const pb_mla *p, int b, size_t head, int row)
{
    return (double)p->scale * dot(p->q, head * p->D, p->kv, row_at(p, b, row), p->D, p->dtype);
}

/* One head of one token. s is [W], o is [V]. */
static void fwd_head(const pb_mla *p, int b, int i, int h, double *s, double *o)
{
    const pb_mla_keys keys = pb_mla_keys_of(p, b, i);
    const size_t head = head_at(p, b, i, h);
    const double sink = (double)p->sink[h];
    double top = sink, sum;
    for (int w = 0; w < keys.n; w++) {
        const int row = pb_mla_row(p, &keys, w);
        s[w] = row < 0 ? (double)-INFINITY : score(p, b, head, row);
        if (row >= 0 && !(s[w] <= top)) top = s[w];
    }
    for (int d = 0; d < p->V; d++) o[d] = 0;
    sum = sink == (double)-INFINITY ? 0 : exp(sink - top);
    for (int w = 0; w < keys.n; w++) {
        const int row = pb_mla_row(p, &keys, w);
        if (row < 0) continue;
        const double weight = exp(s[w] - top);
        sum += weight;
        for (int d = 0; d < p->V; d++) o[d] += weight * pb_load(p->kv, row_at(p, b, row) + d, p->dtype);
    }
    p->lse[head] = (float)(top + log(sum)); /* nothing seen and no sink: -inf + -inf */
    for (int d = 0; d < p->V; d++) pb_store(p->o, head * p->V + d, p->dtype, sum == 0 ? 0 : o[d] / sum);
}

size_t pb_mla_fwd_ref_workspace(const pb_mla *p) { return ((size_t)p->W + p->V) * sizeof(double); }

pb_status pb_mla_fwd_ref(pb_ctx *ctx, const pb_mla *p)
{
    double *s = ctx->scratch, *o = s + p->W;
    for (int b = 0; b < p->B; b++)
        for (int i = 0; i < p->S; i++)
            for (int h = 0; h < p->H; h++) fwd_head(p, b, i, h, s, o);
    return PB_OK;
}

/* One head of one token: its dq, and what it adds to dkv [S_kv,D] and dsink. dq is [D]. */
static void bwd_head(const pb_mla *p, int b, int i, int h, double *dq, double *dkv, double *dsink)
{
    const pb_mla_keys keys = pb_mla_keys_of(p, b, i);
    const size_t head = head_at(p, b, i, h);
    const double lse = (double)p->lse[head], sink = (double)p->sink[h];
    const double delta = dot(p->dO, head * p->V, p->o, head * p->V, p->V, p->dtype);
    if (sink != (double)-INFINITY) *dsink -= delta * exp(sink - lse);
    for (int d = 0; d < p->D; d++) dq[d] = 0;
    for (int w = 0; w < keys.n; w++) {
        const int row = pb_mla_row(p, &keys, w);
        if (row < 0) continue;
        const size_t kv = row_at(p, b, row);
        const double weight = exp(score(p, b, head, row) - lse);
        const double dp = dot(p->dO, head * p->V, p->kv, kv, p->V, p->dtype);
        const double ds = (double)p->scale * weight * (dp - delta);
        double *to = dkv + (size_t)row * p->D;
        for (int d = 0; d < p->D; d++) {
            dq[d] += ds * pb_load(p->kv, kv + d, p->dtype);
            to[d] += ds * pb_load(p->q, head * p->D + d, p->dtype);
        }
        for (int d = 0; d < p->V; d++) to[d] += weight * pb_load(p->dO, head * p->V + d, p->dtype);
    }
    for (int d = 0; d < p->D; d++) pb_store(p->dq, head * p->D + d, p->dtype, dq[d]);
}

size_t pb_mla_bwd_ref_workspace(const pb_mla *p)
{
    return ((size_t)p->H + ((size_t)p->S_kv + 1) * p->D) * sizeof(double);
}

pb_status pb_mla_bwd_ref(pb_ctx *ctx, const pb_mla *p)
{
    double *dsink = ctx->scratch, *dq = dsink + p->H, *dkv = dq + p->D;
    const size_t n = (size_t)p->S_kv * p->D;
    for (int h = 0; h < p->H; h++) dsink[h] = 0;
    for (int b = 0; b < p->B; b++) {
        for (size_t e = 0; e < n; e++) dkv[e] = 0;
        for (int i = 0; i < p->S; i++)
            for (int h = 0; h < p->H; h++) bwd_head(p, b, i, h, dq, dkv, &dsink[h]);
        for (size_t e = 0; e < n; e++) pb_store(p->dkv, b * n + e, p->dtype, dkv[e]);
    }
    for (int h = 0; h < p->H; h++) p->dsink[h] = (float)dsink[h];
    return PB_OK;
}

/* ---- workspace of the vectorised code ------------------------------------------------------------------- */

size_t pb_mla_fwd_fast_workspace(const pb_mla *p)
{
    return (size_t)omp_get_max_threads() * pb_mla_fwd_tiles(p->D, p->V) * sizeof(float);
}

size_t pb_mla_bwd_fast_workspace(const pb_mla *p)
{
    return ((size_t)omp_get_max_threads() * pb_mla_bwd_tiles(p->D, p->V) +
            pb_mla_bwd_sums(p->B, p->S, p->S_kv, p->H, p->D)) *
           sizeof(float);
}

/* ---- what both descriptors need ------------------------------------------------------------------------- */

pb_status pb_mla_check(const char *op, const pb_mla *p)
{
    const struct {
        const char *name;
        const void *p;
        bool needed;
    } t[] = {{"q", p->q, true},          {"kv", p->kv, true},          {"sink", p->sink, true},
             {"o", p->o, true},          {"lse", p->lse, true},        {"do", p->dO, p->backward},
             {"dq", p->dq, p->backward}, {"dkv", p->dkv, p->backward}, {"dsink", p->dsink, p->backward}};
    if (p->B < 1 || p->S < 1 || p->S_kv < 1 || p->H < 1 || p->V < 1)
        return pb_fail(PB_EINVAL, "%s: B=%d S=%d S_kv=%d H=%d V=%d, need at least 1", op, p->B, p->S, p->S_kv, p->H,
                       p->V);
    if (p->V > p->D) return pb_fail(PB_EINVAL, "%s: V=%d D=%d, need V <= D", op, p->V, p->D);
    if (!isfinite(p->scale)) return pb_fail(PB_EINVAL, "%s: scale=%g", op, (double)p->scale);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (t[i].needed && !t[i].p) return pb_fail(PB_EINVAL, "%s: %s is NULL", op, t[i].name);
    return PB_OK;
}

/* Pairs of a query and a listed key; the host does not see which slots of a list are masked. */
static double pairs(const pb_mla *p)
{
    double n = 0;
    if (p->idx) return (double)p->B * p->S * p->W;
    for (int i = 0; i < p->S; i++) n += pb_mla_keys_of(p, 0, i).n;
    return p->B * n;
}

pb_cost pb_mla_cost(const pb_mla *p)
{
    const double e = (double)pb_dtype_size(p->dtype), heads = (double)p->B * p->S * p->H;
    const double kv = (double)p->B * p->S_kv * p->D, lists = p->idx ? 4.0 * p->B * p->S * p->W : 0;
    if (p->backward)
        return (pb_cost){.flops = pairs(p) * p->H * (6.0 * p->D + 4.0 * p->V),
                         .bytes = e * (heads * 2 * (p->D + p->V) + 2 * kv) + 4 * heads + lists};
    return (pb_cost){.flops = pairs(p) * p->H * 2.0 * (p->D + p->V),
                     .bytes = e * (heads * (p->D + p->V) + kv) + 4 * heads + lists};
}

pb_mla pb_mla_bind(pb_binder *b, const pb_mla *sizes)
{
    const double unit = sqrt(3); /* of variance 1, as normalised q and kv are: then so are the scores */
    const size_t heads = (size_t)sizes->B * sizes->S * sizes->H, kv = (size_t)sizes->B * sizes->S_kv * sizes->D;
    pb_mla p = *sizes;
    p.dtype = b->dtype;
    p.scale = 1 / sqrtf((float)p.D);
    p.q = pb_in_range(b, "q", b->dtype, heads * p.D, -unit, unit);
    p.kv = pb_in_range(b, "kv", b->dtype, kv, -unit, unit);
    p.sink = pb_in(b, "sink", PB_F32, p.H);
    if (!p.backward) {
        p.o = pb_out(b, "o", b->dtype, heads * p.V);
        p.lse = pb_out(b, "lse", PB_F32, heads);
        return p;
    }
    p.dO = pb_in(b, "do", b->dtype, heads * p.V);
    p.o = (void *)pb_in(b, "o", b->dtype, heads * p.V);
    p.lse = (float *)pb_in(b, "lse", PB_F32, heads);
    p.dq = pb_out(b, "dq", b->dtype, heads * p.D);
    p.dkv = pb_out(b, "dkv", b->dtype, kv);
    p.dsink = pb_out(b, "dsink", PB_F32, p.H);
    return p;
}

pb_status pb_mla_prepare(pb_ctx *cpu, const pb_mla *p, pb_status (*forward)(pb_ctx *, const pb_mla *))
{
    bool extreme = p->window > 0, blind = false, *seen = calloc((size_t)p->B * p->S_kv, sizeof *seen);
    if (!seen) return pb_fail(PB_ENOMEM, "mla: no memory for %d rows", p->B * p->S_kv);
    for (int b = 0; b < p->B; b++)
        for (int i = 0; i < p->S; i++) {
            const pb_mla_keys keys = pb_mla_keys_of(p, b, i);
            int n = 0;
            for (int w = 0; w < keys.n; w++) {
                const int row = pb_mla_row(p, &keys, w);
                if (row >= 0) seen[(size_t)b * p->S_kv + row] = true, n++;
            }
            extreme |= n < keys.n;
            blind |= n == 0;
        }
    for (size_t r = 0; r < (size_t)p->B * p->S_kv; r++)
        for (int d = 0; !seen[r] && d < p->D; d++)
            pb_store((void *)p->kv, r * p->D + d, p->dtype, (double)(r % 2 ? INFINITY : NAN));
    free(seen);
    /* an lse of -inf is right, but no output that is compared may be */
    const float extremes[] = {200, -200, blind && !p->backward ? -300 : -INFINITY};
    for (int h = 0; extreme && h < p->H; h++)
        if (h % 4) ((float *)p->sink)[h] = extremes[h % 4 - 1];
    return forward ? forward(cpu, p) : PB_OK;
}
