/* indexer_kl_fast.c - the indexer's loss and its gradient on the CPU with SIMD: a task per query, slots along the
 * lanes.
 *
 * Masked lanes are replaced when they are loaded, so their contents do not matter. Each query's loss is summed in
 * double; the queries are added in order. Bound by the logarithms of the target, which are scalar. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/indexer_kl/indexer_kl.h"

typedef struct query {
    const float *score, *mass;
    const int32_t *pick;
    int K;
    float top, sum, log_sum; /* the largest score; sum of e^(score - top), and its logarithm */
    float total;             /* sum of mass */
    bool counts;             /* false: the loss and gradient are 0, because no slot is listed or total is 0 */
} query;

static int left(const query *q, int j) { return q->K - j < PB_VLEN ? q->K - j : PB_VLEN; }

/* Returns a mask for slots j, j+1, ...: all bits of a lane are set if its slot has pick < 0 or is beyond K. */
static vi masked(const query *q, int j)
{
    vi g = (vi){0} - 1;
    memcpy(&g, q->pick + j, (size_t)left(q, j) * sizeof *q->pick);
    return g < 0;
}
/* Loads x[j], x[j+1], ...; masked lanes become `none`. */
static vf lanes(const query *q, const float *x, int j, float none)
{
    return vf_select(masked(q, j), vf_set(none), vf_get(x, (size_t)j, PB_F32, left(q, j)));
}

static query query_of(const float *score, const float *mass, const int32_t *pick, int K, size_t r)
{
    query q = {.score = score + r * K, .mass = mass + r * K, .pick = pick + r * K, .K = K};
    vf top = vf_set(-INFINITY), total = {0}, sum = {0}, some = {0};
    for (int j = 0; j < K; j += PB_VLEN) {
        top = vf_max(top, lanes(&q, q.score, j, -INFINITY)); /* vf_max can drop a NaN; the sum still becomes NaN */
        total += lanes(&q, q.mass, j, 0);
        some += vf_select(masked(&q, j), vf_set(0), vf_set(1));
    }
    q.top = vf_hmax(top), q.total = vf_sum(total);
    q.counts = vf_sum(some) > 0 && q.total != 0;
    for (int j = 0; q.counts && j < K; j += PB_VLEN)
        sum += vf_select(masked(&q, j), vf_set(0), vf_exp(lanes(&q, q.score, j, 0) - q.top));
    q.sum = vf_sum(sum), q.log_sum = logf(q.sum);
    return q;
}

pb_status PB_FAST(pb_indexer_kl_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_indexer_kl_fwd_args *a = args;
    double *part = ctx->scratch, loss = 0;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < (size_t)a->R; r++) {
        const query q = query_of(a->score, a->mass, a->pick, a->K, r);
        double sum = 0;
        for (int j = 0; q.counts && j < a->K; j++) {
            if (q.pick[j] < 0) continue;
            const double y = (double)q.mass[j] / (double)q.total, ly = log(y);
            const double lp = (double)q.score[j] - (double)q.top - (double)q.log_sum;
            if (!(y == 0)) sum += y * ((ly < -100 ? -100 : ly) - (lp < -100 ? -100 : lp));
        }
        part[r] = sum;
    }
    for (size_t r = 0; r < (size_t)a->R; r++) loss += part[r];
    *a->loss = (float)loss;
    return PB_OK;
}

/* Returns, for slots j, j+1, ..., the target y, or 0 where ln p is clipped. */
static vf unclipped_target(const query *q, int j)
{
    const vf lp = lanes(q, q->score, j, 0) - q->top - q->log_sum;
    return vf_select(lp < -100.0f, vf_set(0), lanes(q, q->mass, j, 0) / q->total);
}

static void bwd_query(const query *q, float *dscore, float scale)
{
    vf sum = {0};
    for (int j = 0; q->counts && j < q->K; j += PB_VLEN) sum += unclipped_target(q, j);
    const float all = vf_sum(sum) / q->sum;
    for (int j = 0; j < q->K; j += PB_VLEN) {
        const vf p = vf_exp(lanes(q, q->score, j, 0) - q->top) * all;
        const vf ds = vf_select(masked(q, j), vf_set(0), (p - unclipped_target(q, j)) * scale);
        vf_put(dscore, (size_t)j, PB_F32, q->counts ? ds : vf_set(0), left(q, j));
    }
}

pb_status PB_FAST(pb_indexer_kl_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_indexer_kl_bwd_args *a = args;
    const float scale = a->scale ? *a->scale : 1;
    (void)ctx;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < (size_t)a->R; r++) {
        const query q = query_of(a->score, a->mass, a->pick, a->K, r);
        bwd_query(&q, a->dscore + r * a->K, scale);
    }
    return PB_OK;
}
