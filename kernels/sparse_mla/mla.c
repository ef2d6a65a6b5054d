/* mla.c - the code on the host that sparse_mla and dense_mla share: the reference in double precision, checks, costs,
 * and the inputs of tests. */
#include "kernels/sparse_mla/mla.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "kernels/dense_mla/dense_mla.h"
#include "kernels/sparse_mla/convert.h"
#include "kernels/sparse_mla/plan.h"
#include "kernels/sparse_mla/sparse_mla.h"

/* ---- reference in double precision -------------------------------------------------------------------- */

static double dot(const void *x, size_t at, const void *y, size_t to, int n, pb_dtype t)
{
    double sum = 0;
    for (int d = 0; d < n; d++) sum += pb_load(x, at + d, t) * pb_load(y, to + d, t);
    return sum;
}

/* head_at returns the index of head h of token (b,i) in lse; times D or V it is the head's first element in q or o.
 * row_at returns the first element of a row of kv. */
static size_t head_at(const pb_mla *p, int b, int i, int h) { return ((size_t)b * p->S + i) * p->H + h; }
static size_t row_at(const pb_mla *p, int b, int row) { return ((size_t)b * p->S_kv + row) * p->D; }

static double score(const pb_mla *p, int b, size_t head, int row)
{
    return (double)p->scale * dot(p->q, head * p->D, p->kv, row_at(p, b, row), p->D, p->dtype);
}

/* Computes o and lse of one head of one token. s and o: scratch arrays [W] and [V]. */
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
    p->lse[head] = (float)(top + log(sum)); /* no key and no sink: -inf + -inf */
    for (int d = 0; d < p->V; d++) pb_store(p->o, head * p->V + d, p->dtype, sum == 0 ? 0 : o[d] / sum);
}

size_t pb_mla_fwd_ref_workspace(const void *args)
{
    const pb_mla p = pb_mla_fwd_problem(args);
    return ((size_t)p.W + p.V) * sizeof(double);
}

pb_status pb_mla_fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_mla_fwd_problem(args);
    double *s = ctx->scratch, *o = s + p.W;
    for (int b = 0; b < p.B; b++)
        for (int i = 0; i < p.S; i++)
            for (int h = 0; h < p.H; h++) fwd_head(&p, b, i, h, s, o);
    return PB_OK;
}

/* Computes dq of one head of one token and adds to dkv [S_kv,D] and *dsink. dq: scratch array [D]. */
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

size_t pb_mla_bwd_ref_workspace(const void *args)
{
    const pb_mla_bwd_args *a = args;
    return ((size_t)a->H + ((size_t)a->S_kv + 1) * a->D) * sizeof(double);
}

pb_status pb_mla_bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_mla p = pb_mla_bwd_problem(args);
    double *dsink = ctx->scratch, *dq = dsink + p.H, *dkv = dq + p.D;
    const size_t n = (size_t)p.S_kv * p.D;
    for (int h = 0; h < p.H; h++) dsink[h] = 0;
    for (int b = 0; b < p.B; b++) {
        for (size_t e = 0; e < n; e++) dkv[e] = 0;
        for (int i = 0; i < p.S; i++)
            for (int h = 0; h < p.H; h++) bwd_head(&p, b, i, h, dq, dkv, &dsink[h]);
        for (size_t e = 0; e < n; e++) pb_store(p.dkv, b * n + e, pb_mla_dkv_dtype(&p), dkv[e]);
    }
    for (int h = 0; h < p.H; h++) p.dsink[h] = (float)dsink[h];
    return PB_OK;
}

/* ---- workspace of the vectorised implementation --------------------------------------------------------- */

size_t pb_mla_fwd_fast_workspace(const void *args)
{
    const pb_mla_fwd_args *a = args;
    return (size_t)omp_get_max_threads() * pb_mla_fwd_tiles(a->D, a->V) * sizeof(float);
}

size_t pb_mla_bwd_fast_workspace(const void *args)
{
    const pb_mla_bwd_args *a = args;
    return ((size_t)omp_get_max_threads() * pb_mla_bwd_tiles(a->D, a->V) +
            pb_mla_bwd_sums(a->B, a->S, a->S_kv, a->H, a->D)) *
           sizeof(float);
}

/* ---- checks and costs, for the descriptors of both families --------------------------------------------- */

pb_status pb_mla_check(const char *op, const pb_mla *p, bool lists)
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
    if (!isfinite(p->scale)) return pb_fail(PB_EINVAL, "%s: scale=%g, need a finite number", op, (double)p->scale);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (t[i].needed && !t[i].p) return pb_fail(PB_EINVAL, "%s: %s is NULL", op, t[i].name);
    if (lists != (p->idx != NULL)) return pb_fail(PB_EINVAL, "%s: idx is %sNULL", op, lists ? "" : "not ");
    if (lists && (p->window || p->causal))
        return pb_fail(PB_EINVAL, "%s: window and causal must be 0: only dense_mla has them", op);
    if (p->W < 0) return pb_fail(PB_EINVAL, "%s: W=%d, need W >= 0", op, p->W);
    return p->window >= 0 ? PB_OK : pb_fail(PB_EINVAL, "%s: window=%d, need window >= 0", op, p->window);
}

static size_t heads(const pb_mla *p) { return (size_t)p->B * p->S * p->H; }
static size_t rows(const pb_mla *p) { return (size_t)p->B * p->S_kv; }

/* Returns the number of (query, slot) pairs. Masked slots count too: the lists are in device memory, and the host does
 * not read them. */
static double pairs(const pb_mla *p)
{
    double n = 0;
    if (p->idx) return (double)p->B * p->S * p->W;
    for (int i = 0; i < p->S; i++) n += pb_mla_keys_of(p, 0, i).n;
    return p->B * n;
}

/* Returns the minimum memory traffic in bytes: lse, the key lists, and `times` times the bytes of q, o and kv. times is
 * 1 in the forward pass, and 2 in the backward pass, where q, o and kv have gradients of the same size. */
static double traffic(const pb_mla *p, int times)
{
    const double lists = p->idx ? 4.0 * p->B * p->S * p->W : 0;
    return (double)pb_dtype_size(p->dtype) * times * ((double)heads(p) * (p->D + p->V) + (double)rows(p) * p->D) +
           4 * (double)heads(p) + lists;
}

pb_cost pb_mla_fwd_cost(const void *args)
{
    const pb_mla p = pb_mla_fwd_problem(args);
    return (pb_cost){.flops = pairs(&p) * p.H * 2.0 * (p.D + p.V), .bytes = traffic(&p, 1)};
}

pb_cost pb_mla_bwd_cost(const void *args)
{
    const pb_mla p = pb_mla_bwd_problem(args);
    return (pb_cost){.flops = pairs(&p) * p.H * (6.0 * p.D + 4.0 * p.V), .bytes = traffic(&p, 2)};
}

/* ---- tensors for tests and benchmarks --------------------------------------------------------------------- */

/* Binds the inputs of both passes. */
static pb_mla bind_inputs(pb_binder *b, const int *dim, bool wide)
{
    const double unit =
        sqrt(3); /* values in [-unit, unit) have variance 1, as normalised q and kv have; then scores have it too */
    pb_mla p = {.B = dim[0], .S = dim[1], .S_kv = dim[2], .H = dim[3], .D = dim[4], .V = dim[5], .wide = wide};
    p.dtype = b->dtype;
    p.scale = 1 / sqrtf((float)p.D);
    p.q = pb_in_range(b, "q", b->dtype, heads(&p) * p.D, -unit, unit);
    p.kv = pb_in_range(b, "kv", b->dtype, rows(&p) * p.D, -unit, unit);
    p.sink = pb_in(b, "sink", PB_F32, p.H);
    return p;
}

pb_mla pb_mla_fwd_bind(pb_binder *b, const int *dim, bool wide)
{
    pb_mla p = bind_inputs(b, dim, wide);
    p.o = pb_out(b, "o", b->dtype, heads(&p) * p.V);
    p.lse = pb_out_log(b, "lse", heads(&p));
    return p;
}

pb_mla pb_mla_bwd_bind(pb_binder *b, const int *dim, bool wide)
{
    pb_mla p = bind_inputs(b, dim, wide);
    p.backward = true;
    p.dO = pb_in(b, "do", b->dtype, heads(&p) * p.V);
    p.o = (void *)pb_in(b, "o", b->dtype, heads(&p) * p.V);
    p.lse = (float *)pb_in(b, "lse", PB_F32, heads(&p));
    p.dq = pb_out(b, "dq", b->dtype, heads(&p) * p.D);
    p.dkv = pb_out(b, "dkv", wide ? PB_F32 : b->dtype, rows(&p) * p.D);
    p.dsink = pb_out(b, "dsink", PB_F32, p.H);
    return p;
}

/* Writes NaN, infinities and extreme sinks into the inputs, as pb_mla_fwd_prepare in mla.h describes. */
static pb_status plant_extremes(const pb_mla *p)
{
    static const float extremes[] = {200, -200, -INFINITY};
    bool extreme = p->window > 0, *seen = calloc(rows(p), sizeof *seen);
    if (!seen) return pb_fail(PB_ENOMEM, "mla: no host memory for flags of %zu rows", rows(p));
    for (int b = 0; b < p->B; b++)
        for (int i = 0; i < p->S; i++) {
            const pb_mla_keys keys = pb_mla_keys_of(p, b, i);
            for (int w = 0; w < keys.n; w++) {
                const int row = pb_mla_row(p, &keys, w);
                if (row >= 0) seen[(size_t)b * p->S_kv + row] = true;
                else extreme = true;
            }
        }
    for (size_t r = 0; r < rows(p); r++)
        for (int d = 0; !seen[r] && d < p->D; d++)
            pb_store((void *)p->kv, r * p->D + d, p->dtype, (double)(r % 2 ? INFINITY : NAN));
    free(seen);
    for (int h = 0; extreme && h < p->H; h++)
        if (h % 4) ((float *)p->sink)[h] = extremes[h % 4 - 1];
    return PB_OK;
}

pb_status pb_mla_fwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_mla p = pb_mla_fwd_problem(args);
    (void)cpu;
    return plant_extremes(&p);
}

pb_status pb_mla_bwd_prepare(pb_ctx *cpu, const void *args)
{
    const pb_mla p = pb_mla_bwd_problem(args);
    const pb_mla_fwd_args forward = pb_mla_fwd_of(&p);
    PB_TRY(plant_extremes(&p));
    return p.idx ? pb_sparse_mla_fwd(cpu, &forward) : pb_dense_mla_fwd(cpu, &forward);
}
