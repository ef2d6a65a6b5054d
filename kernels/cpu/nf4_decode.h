/* nf4_decode.h - decodes NF4: single elements for references, and runs of elements in vectors for files compiled per
 * instruction set. The dequantiser and the packing step of gemm.h both use it.
 *
 * kernels/nf4/nf4.h defines layout and formula. All functions give identical bits: level times
 * scale, rounded once to f32. */
#ifndef PB_NF4_DECODE_H
#define PB_NF4_DECODE_H
#include "kernels/cpu/gemm.h"

extern const float pb_nf4_level[16];

/* Returns the scale (absmax) of block j. bitsandbytes rounds after the product and after the sum; `volatile` keeps
 * compilers from fusing the two. */
static inline float pb_nf4_scale(const pb_nf4_scales *s, size_t j)
{
    if (s->absmax) return s->absmax[j];
    const volatile float product = s->code[s->absmax_q[j]] * s->absmax2[j / 256];
    return product + *s->offset;
}

static inline int pb_nf4_code(const uint8_t *q, size_t e) { return e & 1 ? q[e / 2] & 15 : q[e / 2] >> 4; }

static inline float pb_nf4_value(const uint8_t *q, const pb_nf4_scales *s, size_t e)
{
    return pb_nf4_level[pb_nf4_code(q, e)] * pb_nf4_scale(s, e / (size_t)s->block);
}

#ifdef PB_ISA
#include "kernels/cpu/simd.h"
#ifdef __AVX2__
#include <immintrin.h> /* a table look-up by a vector of indices has no portable form */
#endif

/* Returns the levels of the PB_VLEN codes in q[0 .. PB_VLEN/2). After inlining, the table stays in registers. */
static inline vf pb_nf4_levels(const uint8_t *q)
{
#if defined(__AVX512F__)
    /* Each byte is widened to 64 bits: its high nibble goes to the lower 32-bit lane, its low nibble to the upper one.
     * The permutation reads only the low four bits of an index. */
    const __m512i b = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)q));
    const __m512i index = _mm512_or_si512(_mm512_slli_epi64(b, 32), _mm512_srli_epi64(b, 4));
    return (vf)_mm512_permutexvar_ps(index, _mm512_loadu_ps(pb_nf4_level));
#elif defined(__AVX2__)
    /* Three bits of an index select within each half of the table; the fourth bit selects the half. */
    const __m256i b = _mm256_cvtepu8_epi64(_mm_loadu_si32(q));
    const __m256i index = _mm256_or_si256(_mm256_slli_epi64(b, 32), _mm256_srli_epi64(b, 4));
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(pb_nf4_level), index);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(pb_nf4_level + 8), index);
    return (vf)_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
#else
    vf v;
    for (int i = 0; i < PB_VLEN / 2; i++) v[2 * i] = pb_nf4_level[q[i] >> 4], v[2 * i + 1] = pb_nf4_level[q[i] & 15];
    return v;
#endif
}

/* Decodes elements [e, e+n) of one block, whose scale is `scale`, to out[at .. at+n) of type t. */
static inline void pb_nf4_decode_run(const uint8_t *q, size_t e, size_t n, float scale, void *out, size_t at,
                                     pb_dtype t)
{
    uint8_t tail[PB_VLEN / 2] = {0};
    size_t i = 0;
    if (e & 1 && n) {
        vf_store_n(out, at, t, vf_set(pb_nf4_level[q[e / 2] & 15] * scale), 1);
        i = 1;
    }
    for (; i + PB_VLEN <= n; i += PB_VLEN) vf_store(out, at + i, t, pb_nf4_levels(q + (e + i) / 2) * scale);
    if (i == n) return;
    memcpy(tail, q + (e + i) / 2, (n - i + 1) / 2);
    vf_store_n(out, at + i, t, pb_nf4_levels(tail) * scale, n - i);
}

/* Decodes elements [e, e+n) of any blocks to out[at .. at+n) of type t. */
static inline void pb_nf4_decode(const uint8_t *q, const pb_nf4_scales *s, size_t e, size_t n, void *out, size_t at,
                                 pb_dtype t)
{
    const int shift = __builtin_ctz((unsigned)s->block);
    while (n) {
        const size_t j = e >> shift, left = ((j + 1) << shift) - e, m = left < n ? left : n;
        pb_nf4_decode_run(q, e, m, pb_nf4_scale(s, j), out, at, t);
        e += m, at += m, n -= m;
    }
}
#endif
#endif
