/* simd.h - vectors of PB_VLEN floats for family_fast.c files, in GCC/Clang vector extensions: the same
 * source gives AVX-512, AVX2 and SSE2 (or NEON) code, depending on the flags it is compiled with.
 *
 * A `vf` is PB_VLEN lanes. Loads and stores are unaligned. bf16 is widened exactly and rounded to
 * nearest even. Tails: the *_n forms touch exactly n < PB_VLEN elements, other lanes read as 0. */
#ifndef PB_SIMD_H
#define PB_SIMD_H
#include <stdint.h>
#include <string.h>

#include "kernels/core/dtype.h"

/* The prototypes stand with the tables of implementations (PB_FAST_DECLARE). */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#if defined(__AVX512F__)
enum { PB_VLEN = 16 };
#elif defined(__AVX__)
enum { PB_VLEN = 8 };
#else
enum { PB_VLEN = 4 };
#endif

typedef float vf __attribute__((vector_size(PB_VLEN * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(PB_VLEN * 4), aligned(4), may_alias));
typedef uint32_t vu __attribute__((vector_size(PB_VLEN * 4), aligned(4), may_alias));
typedef uint16_t vh __attribute__((vector_size(PB_VLEN * 2), aligned(2), may_alias));

static inline vf vf_set(float x) { return x - (vf){0}; } /* x - 0 is x, also for -0: a broadcast alone */

static inline vf vf_load(const void *p, size_t i, pb_dtype t)
{
    /* The types are unaligned and alias anything. Not memcpy, which gcc cuts into halves for AVX2. */
    if (t == PB_F32) return *(const vf *)((const float *)p + i);
    return (vf)(__builtin_convertvector(*(const vh *)((const uint16_t *)p + i), vu) << 16);
}

static inline void vf_store(void *p, size_t i, pb_dtype t, vf v)
{
    if (t == PB_F32) {
        *(vf *)((float *)p + i) = v;
        return;
    }
    vu bits = (vu)v, nan = (vu)(v != v);
    vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
    *(vh *)((uint16_t *)p + i) = __builtin_convertvector((rounded & ~nan) | (quiet & nan), vh);
}

static inline vf vf_load_n(const void *p, size_t i, pb_dtype t, size_t n)
{
    vf v = {0};
    if (t == PB_F32) {
        memcpy(&v, (const float *)p + i, n * 4);
        return v;
    }
    vh h = {0};
    memcpy(&h, (const uint16_t *)p + i, n * 2);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

static inline void vf_store_n(void *p, size_t i, pb_dtype t, vf v, size_t n)
{
    unsigned char lanes[sizeof(vf)];
    vf_store(lanes, 0, t, v);
    memcpy((unsigned char *)p + i * pb_dtype_size(t), lanes, n * pb_dtype_size(t));
}

static inline float vf_sum(vf v)
{
    float s[PB_VLEN];
    memcpy(s, &v, sizeof s);
    for (int w = PB_VLEN / 2; w; w /= 2) /* pairwise: the order does not depend on the instruction set's width */
        for (int i = 0; i < w; i++) s[i] += s[i + w];
    return s[0];
}

static inline vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
static inline vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }

static inline float vf_hmax(vf v)
{
    float m = v[0];
    for (int i = 1; i < PB_VLEN; i++) m = v[i] > m ? v[i] : m;
    return m;
}

/* e^x to about 1 ulp: x = n ln2 + r, a degree-6 polynomial in r (Cephes expf), scaled by 2^n.
 * Below -87.3 the result is 0 (no denormals), above 88.7 +Inf; NaN stays NaN. */
static inline vf vf_exp(vf x)
{
    vf t = x * 1.44269504088896341f;
    vf n = (t + 12582912.0f) - 12582912.0f; /* round to nearest by the 1.5*2^23 trick */
    vf r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vf p = vf_set(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    vf clamped = vf_select(n > 127.0f, vf_set(127.0f), vf_select(n < -126.0f, vf_set(-126.0f), n));
    vf y = p * (vf)((__builtin_convertvector(clamped, vi) + 127) << 23);
    y = vf_select(x < -87.33654f, (vf){0}, y);
    y = vf_select(x > 88.72283f, vf_set(__builtin_inff()), y);
    return vf_select(x != x, x, y);
}

/* 1/(1+e^-x), finite for every finite x. */
static inline vf vf_sigmoid(vf x) { return 1.0f / (1.0f + vf_exp(-x)); }
#endif
