/* nf4_fast.c - NF4 with vectors: threads own whole blocks. Quantising counts the thresholds below a value
 * (or searches them by permutation); dequantising looks levels up. Bound: memory. */
#include <math.h>

#include "kernels/core/cpu.h"
#include "kernels/core/nf4_decode.h"
#include "kernels/nf4/nf4.h"

/* ---- quantise ------------------------------------------------------------------------------------ */

static inline vf absolute(vf x) { return (vf)((vi)x & 0x7fffffff); }

/* x > max is false for NaN, which therefore never becomes the maximum. */
static inline float block_max(const void *w, size_t at, size_t n, pb_dtype t)
{
    vf m0 = {0}, m1 = {0};
    size_t i = 0;
    for (; i + 2 * PB_VLEN <= n; i += 2 * PB_VLEN) {
        m0 = vf_max(absolute(vf_load(w, at + i, t)), m0);
        m1 = vf_max(absolute(vf_load(w, at + i + PB_VLEN, t)), m1);
    }
    for (; i < n; i += PB_VLEN) m0 = vf_max(absolute(vf_load_n(w, at + i, t, n - i < PB_VLEN ? n - i : PB_VLEN)), m0);
    return vf_hmax(vf_max(m0, m1));
}

typedef struct thresholds {
    float t[16]; /* the last is never reached */
} thresholds;

static inline thresholds midpoints(void)
{
    thresholds m = {.t[15] = __builtin_inff()};
    for (int i = 0; i < 15; i++) m.t[i] = (pb_nf4_level[i] + pb_nf4_level[i + 1]) / 2;
    return m;
}

/* How many thresholds lie below each lane. */
static inline vi codes(const thresholds *m, vf x)
{
#if defined(__AVX512F__)
    /* four halvings: the next threshold to compare with is number code + half - 1 */
    const __m512 t = _mm512_loadu_ps(m->t), v = (__m512)x;
    __m512i c = _mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(v, _mm512_set1_ps(m->t[7]), _CMP_GT_OQ), 8);
    for (int half = 4; half; half /= 2) {
        const __m512 next = _mm512_permutexvar_ps(_mm512_add_epi32(c, _mm512_set1_epi32(half - 1)), t);
        c = _mm512_mask_add_epi32(c, _mm512_cmp_ps_mask(v, next, _CMP_GT_OQ), c, _mm512_set1_epi32(half));
    }
    return (vi)c;
#else
    vi c = {0};
    for (int i = 0; i < 15; i++) c -= x > m->t[i];
    return c;
#endif
}

typedef uint64_t vpair __attribute__((vector_size(PB_VLEN * 4), aligned(4), may_alias));
typedef uint8_t vbyte __attribute__((vector_size(PB_VLEN / 2), aligned(1), may_alias));

/* Two neighbouring lanes are one 64-bit lane on a little-endian machine, the first in its lower half. */
static inline vbyte pack(vi c)
{
    const vpair p = (vpair)c;
    return __builtin_convertvector((p << 4 | p >> 32) & 0xff, vbyte);
}

static inline void quantize_block(const pb_nf4_quantize_args *a, size_t j, size_t from, size_t n, const thresholds *m)
{
    const pb_dtype t = a->dtype;
    const float inverse = 1 / (a->absmax[j] = block_max(a->w, from, n, t));
    uint8_t *q = a->q + from / 2;
    size_t i = 0;
    for (; i + PB_VLEN <= n; i += PB_VLEN) {
        const vbyte b = pack(codes(m, vf_load(a->w, from + i, t) * inverse));
        memcpy(q + i / 2, &b, sizeof b);
    }
    if (i == n) return;
    const vbyte b = pack(codes(m, vf_load_n(a->w, from + i, t, n - i) * inverse));
    memcpy(q + i / 2, &b, (n - i + 1) / 2);
}

/* The kernel's search ends on an even entry and compares with the midpoints to its neighbours, so that a
 * tie goes to the even one: between entries i and i+1 the step up needs x > midpoint when i is even and
 * x >= midpoint, that is x > the float before it, when i is odd. The code is the number of steps. */
typedef struct dynamic_steps {
    float t[255];
} dynamic_steps;

static inline dynamic_steps dynamic_midpoints(const float *code)
{
    dynamic_steps m;
    for (int i = 0; i < 255; i++) {
        m.t[i] = (code[i] + code[i + 1]) * 0.5f;
        if (i & 1) m.t[i] = nextafterf(m.t[i], -__builtin_inff());
    }
    return m;
}

/* One group of the second level: n <= 256. A halving of all values at a time, so that it vectorises. */
static inline void quantize_group(const float *absmax, size_t n, float offset, const dynamic_steps *m, float *absmax2,
                                  uint8_t *q)
{
    float x[256], max = 0;
    int c[256] = {0};
    for (size_t k = 0; k < n; k++) {
        x[k] = absmax[k] - offset;
        max = __builtin_fabsf(x[k]) > max ? __builtin_fabsf(x[k]) : max;
    }
    const float inverse = 1 / (*absmax2 = max);
    for (size_t k = 0; k < n; k++) x[k] *= inverse;
    for (int half = 128; half; half /= 2)
        for (size_t k = 0; k < n; k++) c[k] += x[k] > m->t[c[k] + half - 1] ? half : 0;
    for (size_t k = 0; k < n; k++) q[k] = (uint8_t)c[k];
}

static void quantize_scales(const pb_nf4_quantize_args *a, size_t blocks)
{
    double sum = 0; /* in order, like the reference: the bits of offset decide all that follows */
    for (size_t j = 0; j < blocks; j++) sum += (double)a->absmax[j];
    const float offset = *a->offset = (float)(sum / (double)blocks);
    const dynamic_steps m = dynamic_midpoints(a->code);
#pragma omp parallel for schedule(static) if (blocks > 4096)
    for (size_t g = 0; g < (blocks + 255) / 256; g++) {
        const size_t from = g * 256, n = blocks - from < 256 ? blocks - from : 256;
        quantize_group(a->absmax + from, n, offset, &m, a->absmax2 + g, a->absmax_q + from);
    }
}

pb_status PB_FAST(pb_nf4_quantize)(pb_ctx *ctx, const void *args)
{
    const pb_nf4_quantize_args *a = args;
    const size_t block = (size_t)a->block, blocks = (a->n + block - 1) / block;
    const thresholds m = midpoints();
    (void)ctx;
#pragma omp parallel for schedule(static) if (a->n > 16384)
    for (size_t j = 0; j < blocks; j++)
        quantize_block(a, j, j * block, a->n - j * block < block ? a->n - j * block : block, &m);
    if (a->absmax_q && blocks) quantize_scales(a, blocks);
    return PB_OK;
}

/* ---- dequantise ---------------------------------------------------------------------------------- */

pb_status PB_FAST(pb_nf4_dequantize)(pb_ctx *ctx, const void *args)
{
    enum { CHUNK = 4096 }; /* a whole number of blocks of every size */
    const pb_nf4_dequantize_args *a = args;
    (void)ctx;
#pragma omp parallel for schedule(static) if (a->n > 16384)
    for (size_t e = 0; e < a->n; e += CHUNK)
        pb_nf4_decode(a->q, &a->scales, e, a->n - e < CHUNK ? a->n - e : CHUNK, a->w, e, a->dtype);
    return PB_OK;
}
