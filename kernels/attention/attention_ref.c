/* attention_ref.c - the reference of attention, which computes one row of scores at a time in double precision. */
#include "kernels/attention/attention_ref.h"

#include <math.h>

#include "kernels/cpu/cpu.h"

static double dot(const void *x, size_t at, const void *y, size_t to, int D, pb_dtype t)
{
    double sum = 0;
    for (int d = 0; d < D; d++) sum += pb_load(x, at + d, t) * pb_load(y, to + d, t);
    return sum;
}

static int first_key(const int32_t *start, size_t query) { return start && start[query] > 0 ? start[query] : 0; }

pb_status pb_attention_fwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_attention_fwd_args *a = args;
    double *p = ctx->scratch; /* [N] scores, then weights, of one query */
    const int N = pb_attention_keys(a), before = pb_attention_before(a);
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->S; i++) {
                const size_t row = (size_t)b * a->S, key = (size_t)b * N;
                const size_t kv = (size_t)(h / (a->H / a->K)) * a->D, head = (size_t)h * a->D;
                const int from = first_key(a->start, row + i), to = a->causal ? before + i + 1 : N;
                double top = (double)-INFINITY, sum = 0;
                for (int j = from; j < to; j++) {
                    p[j] = (double)a->scale *
                           dot(a->q, (row + i) * a->ldq + head, a->k, (key + j) * a->ldk + kv, a->D, a->dtype);
                    if (!(p[j] <= top)) top = p[j];
                }
                for (int j = from; j < to; j++) sum += p[j] = exp(p[j] - top);
                for (int j = from; j < to; j++) p[j] /= sum;
                a->lse[((size_t)b * a->H + h) * a->S + i] = (float)(from < to ? top + log(sum) : top);
                for (int d = 0; d < a->D; d++) {
                    double o = 0;
                    for (int j = from; j < to; j++) o += p[j] * pb_load(a->v, (key + j) * a->ldv + kv + d, a->dtype);
                    pb_store(a->o, (row + i) * a->ldo + head + d, a->dtype, o);
                }
            }
    return PB_OK;
}

/* Returns p_ij and sets *ds to ds_ij, as attention.h defines them. Query i must attend to key j. */
static double weight(const pb_attention_bwd_args *a, int b, int h, int i, int j, double *ds)
{
    const size_t head = (size_t)h * a->D, kv = (size_t)(h / (a->H / a->K)) * a->D;
    const size_t qi = (size_t)b * a->S + i, kj = (size_t)b * pb_attention_bwd_keys(a) + j;
    const double s = (double)a->scale * dot(a->q, qi * a->ldq + head, a->k, kj * a->ldk + kv, a->D, a->dtype);
    const double p = exp(s - (double)a->lse[((size_t)b * a->H + h) * a->S + i]);
    const double dp = dot(a->dO, qi * a->lddo + head, a->v, kj * a->ldv + kv, a->D, a->dtype);
    const double delta = dot(a->dO, qi * a->lddo + head, a->o, qi * a->ldo + head, a->D, a->dtype);
    *ds = p * (dp - delta);
    return p;
}

/* Computes dq of one query. sum: scratch array of D elements. */
static void dq_ref(const pb_attention_bwd_args *a, int b, int h, int i, double *sum)
{
    const int N = pb_attention_bwd_keys(a), to = a->causal ? N - a->S + i + 1 : N;
    const size_t row = (size_t)b * a->S, key = (size_t)b * N, kv = (size_t)(h / (a->H / a->K)) * a->D;
    for (int d = 0; d < a->D; d++) sum[d] = 0;
    for (int j = first_key(a->start, row + i); j < to; j++) {
        double ds;
        weight(a, b, h, i, j, &ds);
        for (int d = 0; d < a->D; d++) sum[d] += ds * pb_load(a->k, (key + j) * a->ldk + kv + d, a->dtype);
    }
    for (int d = 0; d < a->D; d++)
        pb_store(a->dq, (row + i) * a->lddq + (size_t)h * a->D + d, a->dtype, (double)a->scale * sum[d]);
}

/* Computes dk and dv of one key. sum: scratch array [2,D]. */
static void dkv_ref(const pb_attention_bwd_args *a, int b, int kv, int j, double *sum)
{
    const int D = a->D, group = a->H / a->K, N = pb_attention_bwd_keys(a), before = N - a->S;
    const size_t row = (size_t)b * a->S, key = (size_t)b * N;
    const pb_dtype t = pb_attention_dkv_dtype(a);
    for (int d = 0; d < 2 * D; d++) sum[d] = 0;
    for (int h = kv * group; h < (kv + 1) * group; h++)
        for (int i = a->causal && j > before ? j - before : 0; i < a->S; i++) {
            const size_t head = (size_t)h * D;
            double ds, p;
            if (j < first_key(a->start, row + i)) continue;
            p = weight(a, b, h, i, j, &ds);
            for (int d = 0; d < D; d++) {
                sum[d] += (double)a->scale * ds * pb_load(a->q, (row + i) * a->ldq + head + d, a->dtype);
                sum[D + d] += p * pb_load(a->dO, (row + i) * a->lddo + head + d, a->dtype);
            }
        }
    for (int d = 0; d < D; d++) {
        pb_store(a->dk, (key + j) * a->lddk + (size_t)kv * D + d, t, sum[d]);
        pb_store(a->dv, (key + j) * a->lddv + (size_t)kv * D + d, t, sum[D + d]);
    }
}

pb_status pb_attention_bwd_ref(pb_ctx *ctx, const void *args)
{
    const pb_attention_bwd_args *a = args;
    for (int b = 0; b < a->B; b++) {
        for (int s = 0; s < a->S; s++)
            for (int h = 0; h < a->H; h++) dq_ref(a, b, h, s, ctx->scratch);
        for (int j = 0; j < pb_attention_bwd_keys(a); j++)
            for (int kv = 0; kv < a->K; kv++) dkv_ref(a, b, kv, j, ctx->scratch);
    }
    return PB_OK;
}
