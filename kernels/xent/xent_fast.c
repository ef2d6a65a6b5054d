/* xent_fast.c - vectorised masked cross-entropy; threads take rows dynamically. The first pass computes maximum and sum
 * together, chunk by chunk; the second writes the gradient. Between them the row stays in L2 (600 KB for V = 151936 in
 * f32), so memory is read once. Limited by memory bandwidth. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/xent/xent.h"

enum { CHUNK = 1024 }; /* logits between two updates of the maximum: a multiple of 4 vectors */

typedef struct row_sum {
    float max, sum; /* sum of exp(x - max) */
} row_sum;

/* Loads the last n < PB_VLEN logits; the other lanes are -Inf and add nothing. */
static inline vf load_tail(const void *x, size_t i, pb_dtype t, size_t n)
{
    float lanes[PB_VLEN];
    for (size_t k = 0; k < PB_VLEN; k++) lanes[k] = k < n ? (float)pb_load(x, i + k, t) : -INFINITY;
    return vf_load(lanes, 0, PB_F32);
}

PB_INLINE vf load_logits(const void *x, size_t i, size_t end, pb_dtype t)
{
    return i + PB_VLEN <= end ? vf_load(x, i, t) : load_tail(x, i, t, end - i);
}

PB_INLINE float chunk_max(const void *x, size_t i, size_t end, pb_dtype t)
{
    vf m[4] = {vf_set(-FLT_MAX), vf_set(-FLT_MAX), vf_set(-FLT_MAX), vf_set(-FLT_MAX)};
    for (; i + 4 * PB_VLEN <= end; i += 4 * PB_VLEN)
        for (int k = 0; k < 4; k++) m[k] = vf_max(vf_load(x, i + (size_t)k * PB_VLEN, t), m[k]);
    for (; i < end; i += PB_VLEN) m[0] = vf_max(load_logits(x, i, end, t), m[0]);
    return vf_hmax(vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3])));
}

/* The maximum starts at -FLT_MAX and not at -Inf, so that a chunk of only -Inf adds
 * exp(-Inf) = 0. NaN propagates to sum. */
PB_INLINE row_sum sum_row(const void *logits, size_t row, size_t V, pb_dtype t)
{
    float max = -FLT_MAX;
    vf s0 = {0}, s1 = {0};
    for (size_t at = 0; at < V; at += CHUNK) {
        size_t i = row + at, end = row + (V - at < CHUNK ? V : at + CHUNK);
        float m = chunk_max(logits, i, end, t);
        if (m > max) {
            vf shrink = vf_exp_neg(vf_set(max - m));
            s0 *= shrink;
            s1 *= shrink;
            max = m;
        }
        for (; i + 2 * PB_VLEN <= end; i += 2 * PB_VLEN) {
            s0 += vf_exp_neg(vf_load(logits, i, t) - max);
            s1 += vf_exp_neg(vf_load(logits, i + PB_VLEN, t) - max);
        }
        for (; i < end; i += PB_VLEN) s0 += vf_exp_neg(load_logits(logits, i, end, t) - max);
    }
    return (row_sum){max, vf_sum(s0 + s1)};
}

/* Writes the row's gradient as if no token were the target: k*softmax. The caller then overwrites the element of the
 * target. */
PB_INLINE void write_gradient(const pb_xent_bwd_args *a, size_t row, row_sum s, float k, bool stream, pb_dtype t)
{
    const float c = k / s.sum;
    size_t i = row, end = row + a->V;
    for (; i + PB_VLEN <= end; i += PB_VLEN)
        vf_out(a->dlogits, i, t, vf_exp_neg(vf_load(a->logits, i, t) - s.max) * c, PB_VLEN, stream);
    if (i < end) vf_put(a->dlogits, i, t, vf_exp_neg(load_logits(a->logits, i, end, t) - s.max) * c, (int)(end - i));
    if (stream) pb_stream_fence();
}

static inline float nll_of(row_sum s, double target) { return (float)((double)s.max - target + log((double)s.sum)); }

static inline void gradient_row(const pb_xent_bwd_args *a, size_t r, bool stream)
{
    const pb_dtype t = a->dtype;
    const size_t V = a->V, row = r * V;
    const int32_t target = a->target[r];
    const float k = a->mask[r] * a->inv_count[0] * (a->loss_scale ? a->loss_scale[0] : 1);
    if (target < 0 || target >= a->V) {
        for (size_t v = 0; v < V; v++) pb_store(a->dlogits, row + v, t, (double)NAN);
        a->nll[r] = NAN;
        return;
    }
    const double x = pb_load(a->logits, row + target, t); /* before it is overwritten */
    const row_sum s = PB_PER_DTYPE(t, sum_row, a->logits, row, V);
    a->nll[r] = nll_of(s, x);
    PB_PER_DTYPE(t, write_gradient, a, row, s, k, stream);
    pb_store(a->dlogits, row + target, t, (double)k * (exp(x - (double)s.max) / (double)s.sum - 1));
}

/* The loss is summed in the order of t, in double, so it does not depend on the number of threads. */
static inline void sum_loss(const float *mask, const float *nll, float inv_count, int T, float *loss)
{
    double sum = 0;
    for (int t = 0; t < T; t++) sum += (double)mask[t] * (double)nll[t];
    loss[0] = (float)(sum * (double)inv_count);
}

pb_status PB_FAST(pb_xent_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_xent_fwd_args *a = args;
    const size_t V = a->V;
    (void)ctx;
#pragma omp parallel for schedule(dynamic) if (a->T * V > 4096)
    for (int r = 0; r < a->T; r++) {
        const size_t row = (size_t)r * V;
        if (a->mask[r] == 0) a->nll[r] = 0;
        else if (a->target[r] < 0 || a->target[r] >= a->V) a->nll[r] = NAN;
        else
            a->nll[r] = nll_of(PB_PER_DTYPE(a->dtype, sum_row, a->logits, row, V),
                               pb_load(a->logits, row + a->target[r], a->dtype));
    }
    sum_loss(a->mask, a->nll, a->inv_count[0], a->T, a->loss);
    return PB_OK;
}

pb_status PB_FAST(pb_xent_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_xent_bwd_args *a = args;
    const size_t row_bytes = a->V * pb_dtype_size(a->dtype);
    const bool stream = a->dlogits != a->logits && pb_should_stream(a->dlogits, a->T * row_bytes, row_bytes);
    (void)ctx;
#pragma omp parallel for schedule(dynamic) if ((size_t)a->T * a->V > 4096)
    for (int r = 0; r < a->T; r++) {
        if (a->mask[r] != 0) gradient_row(a, r, stream);
        else {
            a->nll[r] = 0;
            memset((unsigned char *)a->dlogits + (size_t)r * row_bytes, 0, row_bytes);
        }
    }
    sum_loss(a->mask, a->nll, a->inv_count[0], a->T, a->loss);
    if (a->total) a->total[0] = (a->add ? a->total[0] : 0) + a->loss[0];
    return PB_OK;
}
