/* dynmask_bias_fast.c - the bias of dynamic-mask attention on the CPU, vectorised over the elements of a token. The
 * tokens are divided among the threads. Limit: reading the values once for each kv head, from the cache. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/dynmask_bias/dynmask_bias.h"
#include "kernels/dynmask_bias/plan.h"

static float softplus(float u) { return u > 20 ? u : log1pf(expf(u)); }
static float slope(float u) { return u > 20 ? 1 : 1 / (1 + expf(-u)); }

static int width(size_t n, size_t e) { return n - e < PB_VLEN ? (int)(n - e) : PB_VLEN; }

/* ---- forward pass ----------------------------------------------------------------------------------- */

static void fwd_key(const pb_dynmask_bias_fwd_args *p, int b, int j)
{
    const size_t n = (size_t)p->K * p->D, token = ((size_t)b * p->S + j) * p->ldv;
    for (int k = 0; k < p->K; k++) {
        const size_t at = ((size_t)b * p->K + k) * p->S + j;
        vf sum = {0};
        for (size_t e = 0; e < n; e += PB_VLEN)
            sum += vf_get(p->v, token + e, p->dtype, width(n, e)) * vf_get(p->w, k * n + e, p->dtype, width(n, e));
        const float u = vf_sum(sum) + (p->dt ? p->dt[k] : 0), x = p->a[k] * softplus(u);
        p->u[at] = u;
        p->bias[at] = p->exponential ? expf(x) : x;
    }
}

pb_status PB_FAST(pb_dynmask_bias_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_bias_fwd_args *p = args;
    const size_t tokens = (size_t)p->B * p->S;
    (void)ctx;
#pragma omp parallel for schedule(static) if (tokens * p->K * p->D > 4096)
    for (size_t t = 0; t < tokens; t++) fwd_key(p, (int)(t / p->S), (int)(t % p->S));
    return PB_OK;
}

/* ---- backward pass ---------------------------------------------------------------------------------- */

/* Adds the terms of one token to the sums dw [K,K*D], ddt [K] and da [K] of a part, unless the weights are frozen, and
 * stores du [K]. */
static void add_weights(const pb_dynmask_bias_bwd_args *p, size_t t, float *dw, float *ddt, float *da, float *du)
{
    const size_t n = (size_t)p->K * p->D, b = t / p->S, j = t % p->S;
    for (int k = 0; k < p->K; k++) {
        const size_t at = (b * p->K + k) * p->S + j;
        const float u = p->u[at], z = softplus(u), g = p->dbias[at] * (p->exponential ? expf(p->a[k] * z) : 1);
        du[k] = g * p->a[k] * slope(u);
        da[k] += g * z, ddt[k] += du[k];
        for (size_t e = 0; p->dw && e < n; e += PB_VLEN) {
            const vf sum = vf_get(dw, k * n + e, PB_F32, width(n, e));
            vf_put(dw, k * n + e, PB_F32, sum + vf_get(p->v, t * p->ldv + e, p->dtype, width(n, e)) * du[k],
                   width(n, e));
        }
    }
}

/* Adds the terms of all kv heads to dv of one token, which is rounded once. */
static void add_dv(const pb_dynmask_bias_bwd_args *p, size_t t, const float *du)
{
    const size_t n = (size_t)p->K * p->D;
    for (size_t e = 0; e < n; e += PB_VLEN) {
        vf sum = vf_get(p->dv, t * p->lddv + e, p->dtype, width(n, e));
        for (int k = 0; k < p->K; k++) sum += vf_get(p->w, k * n + e, p->dtype, width(n, e)) * du[k];
        vf_put(p->dv, t * p->lddv + e, p->dtype, sum, width(n, e));
    }
}

pb_status PB_FAST(pb_dynmask_bias_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_bias_bwd_args *p = args;
    const size_t tokens = (size_t)p->B * p->S, K = p->K, n = K * K * p->D;
    const int parts = pb_dw_parts(tokens);
    float *dw = ctx->scratch, *ddt = dw + parts * n, *da = ddt + parts * K, *du = da + parts * K;
    memset(dw, 0, parts * (n + 2 * K) * sizeof *dw);
#pragma omp parallel for schedule(static) if (tokens * n > 4096)
    for (int i = 0; i < parts; i++)
        for (size_t t = pb_dw_first(tokens, parts, i); t < pb_dw_first(tokens, parts, i + 1); t++) {
            add_weights(p, t, dw + i * n, ddt + i * K, da + i * K, du + t * K);
            add_dv(p, t, du + t * K);
        }
    if (!p->dw) return PB_OK;
    pb_dw_finish(p->dw, dw, parts, (int)n, p->accumulate);
    pb_dw_finish(p->da, da, parts, (int)K, p->accumulate);
    if (p->ddt) pb_dw_finish(p->ddt, ddt, parts, (int)K, p->accumulate);
    return PB_OK;
}
