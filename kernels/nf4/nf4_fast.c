/* nf4_fast.c - NF4 on the CPU with SIMD; each thread owns whole blocks. Memory-bound.
 *
 * Quantising: the code of a value is the number of thresholds below it, which AVX-512 finds by a binary search.
 * Dequantising: the code is an index into the table of levels. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/nf4_decode.h"
#include "kernels/nf4/nf4.h"

/* ---- quantise to NF4 ----------------------------------------------------------------------------- */

static inline vf absolute(vf x) { return (vf)((vi)x & 0x7fffffff); }

/* Returns the maximum of |w|. NaN never becomes the maximum, because x > max is false for NaN. */
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
    float t[16]; /* 15 thresholds; t[15] is padding */
} thresholds;

static inline thresholds midpoints(void)
{
    thresholds m = {.t[15] = __builtin_inff()};
    for (int i = 0; i < 15; i++) m.t[i] = (pb_nf4_level[i] + pb_nf4_level[i + 1]) / 2;
    return m;
}

/* Returns the code of each lane's value: the number of thresholds below it. */
static inline vi codes(const thresholds *m, vf x)
{
#if defined(__AVX512F__)
    /* Binary search in four steps. c thresholds are known to be below the value; the next one to test is t[c + half -
     * 1]. */
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

/* Packs two neighbouring codes into a byte, the first in the high nibble. On a little-endian machine two neighbouring
 * lanes form one 64-bit lane with the first in its lower half. */
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

/* Thresholds between neighbouring entries of the dynamic map, such that the code of x is the number of t[i] < x. They
 * reproduce the tie rule of bitsandbytes, by which a tie goes to the even entry: entry i+1 instead of i requires x >
 * midpoint if i is even, and x >= midpoint if i is odd. So t[i] is the midpoint, or the next smaller float if i is
 * odd. */
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

/* Quantises one group of n <= 256 scales. Each step of the binary search runs over all n values, so that
 * the inner loop vectorises. */
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
    double sum = 0; /* summed in order like the reference, so that offset has the same bits */
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

/* ---- dequantise from NF4 ------------------------------------------------------------------------- */

pb_status PB_FAST(pb_nf4_dequantize)(pb_ctx *ctx, const void *args)
{
    enum { CHUNK = 4096 }; /* a multiple of every block size */
    const pb_nf4_dequantize_args *a = args;
    (void)ctx;
#pragma omp parallel for schedule(static) if (a->n > 16384)
    for (size_t e = 0; e < a->n; e += CHUNK)
        pb_nf4_decode(a->q, &a->scales, e, a->n - e < CHUNK ? a->n - e : CHUNK, a->w, e, a->dtype);
    return PB_OK;
}
