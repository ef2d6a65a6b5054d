/* simd.h - vectors of PB_VLEN floats for family_fast.c files, in GCC/Clang vector extensions. The same source gives
 * AVX-512, AVX2 and SSE2 (or NEON) code, depending on the compiler flags.
 *
 * A `vf` has PB_VLEN lanes. Loads and stores are unaligned. bf16 is widened exactly and rounded to nearest even. For
 * tails, the *_n functions access exactly n < PB_VLEN elements; on loads, the other lanes are 0. */
#ifndef PB_SIMD_H
#define PB_SIMD_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/engine/dtype.h"

/* The prototypes of functions in family_fast.c files are in family.c (PB_FAST_DECLARE), which gcc does not see here. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#if defined(__AVX512F__)
enum { PB_VLEN = 16 };
#elif defined(__AVX__)
enum { PB_VLEN = 8 };
#else
enum { PB_VLEN = 4 };
#endif

/* Declares a function that is fast only if some arguments become constants by inlining: a dtype, a NULL, n =
 * PB_VLEN. */
#define PB_INLINE static inline __attribute__((always_inline))
/* Calls f(..., t) with a constant t, so that the loops inside are compiled once per element type. */
#define PB_PER_DTYPE(t, f, ...) ((t) == PB_F32 ? f(__VA_ARGS__, PB_F32) : f(__VA_ARGS__, PB_BF16))

typedef float vf __attribute__((vector_size(PB_VLEN * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(PB_VLEN * 4), aligned(4), may_alias));
typedef uint32_t vu __attribute__((vector_size(PB_VLEN * 4), aligned(4), may_alias));
typedef uint16_t vh __attribute__((vector_size(PB_VLEN * 2), aligned(2), may_alias));

static inline vf vf_set(float x) { return x - (vf){0}; } /* x - 0 is x, also for -0; compiles to a broadcast */

/* Converts bf16 to f32 exactly. Uses intrinsics because gcc compiles __builtin_convertvector
 * to six instructions here. */
static inline vf vf_widen(vh h)
{
#if defined(__AVX512F__)
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)h) << 16);
#elif defined(__AVX2__)
    return (vf)((vu)_mm256_cvtepu16_epi32((__m128i)h) << 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

static inline vf vf_load(const void *p, size_t i, pb_dtype t)
{
    /* The vector types are unaligned and may alias, so a plain load is valid. gcc would split
     * a memcpy in two for AVX2. */
    if (t == PB_F32) return *(const vf *)((const float *)p + i);
    return vf_widen(*(const vh *)((const uint16_t *)p + i));
}

/* Returns the bf16 bits of each lane in the low half of 32 bits: rounded to nearest even, NaN stays NaN. */
static inline vu vf_bf16_bits(vf v)
{
    vu bits = (vu)v, rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
#if defined(__AVX512F__)
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    return (vu)_mm512_mask_mov_epi32((__m512i)rounded, nan, (__m512i)quiet);
#else
    vu nan = (vu)(v != v);
    return (rounded & ~nan) | (quiet & nan);
#endif
}

/* Converts f32 to bf16, rounding to nearest even. */
static inline vh vf_narrow(vf v)
{
#if defined(__AVX512F__)
    return (vh)_mm512_cvtepi32_epi16((__m512i)vf_bf16_bits(v));
#else
    return __builtin_convertvector(vf_bf16_bits(v), vh);
#endif
}

/* Rounds v to the precision of type t. */
static inline vf vf_round(vf v, pb_dtype t) { return t == PB_F32 ? v : (vf)(vf_bf16_bits(v) << 16); }

static inline void vf_store(void *p, size_t i, pb_dtype t, vf v)
{
    if (t == PB_F32) {
        *(vf *)((float *)p + i) = v;
        return;
    }
    *(vh *)((uint16_t *)p + i) = vf_narrow(v);
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
    return vf_widen(h);
}

static inline void vf_store_n(void *p, size_t i, pb_dtype t, vf v, size_t n)
{
    unsigned char lanes[sizeof(vf)];
    vf_store(lanes, 0, t, v);
    memcpy((unsigned char *)p + i * pb_dtype_size(t), lanes, n * pb_dtype_size(t));
}

/* Load or store 1 <= n <= PB_VLEN elements. With n = PB_VLEN as a constant, the code for tails disappears. */
PB_INLINE vf vf_get(const void *p, size_t i, pb_dtype t, int n)
{
    return n == PB_VLEN ? vf_load(p, i, t) : vf_load_n(p, i, t, (size_t)n);
}
PB_INLINE void vf_put(void *p, size_t i, pb_dtype t, vf v, int n)
{
    if (n == PB_VLEN) vf_store(p, i, t, v);
    else vf_store_n(p, i, t, v, (size_t)n);
}

/* Streaming stores bypass the caches: a cache line is not fetched before it is overwritten, which saves a third of the
 * traffic of a copy. This pays only for outputs that are too large to stay in the cache and that the same loop does not
 * read. Element i must be aligned to the size of a vector. */
enum { PB_STREAM_BYTES = 32 << 20 };

/* Returns true if an output of `bytes` bytes is large enough for streaming stores, and if its address and the length
 * of its rows (`row` bytes) are multiples of a vector. */
static inline bool pb_should_stream(const void *out, size_t bytes, size_t row)
{
    return bytes >= PB_STREAM_BYTES && ((uintptr_t)out | row) % (sizeof(float) * PB_VLEN) == 0;
}

static inline void vf_stream(void *p, size_t i, pb_dtype t, vf v)
{
#if defined(__x86_64__)
    vh h;
    if (t == PB_BF16) h = vf_narrow(v);
#if defined(__AVX512F__)
    if (t == PB_F32) _mm512_stream_ps((float *)p + i, (__m512)v);
    else _mm256_stream_si256((__m256i *)((uint16_t *)p + i), (__m256i)h);
#elif defined(__AVX__)
    if (t == PB_F32) _mm256_stream_ps((float *)p + i, (__m256)v);
    else _mm_stream_si128((__m128i *)((uint16_t *)p + i), (__m128i)h);
#else
    if (t == PB_F32) _mm_stream_ps((float *)p + i, (__m128)v);
    else _mm_stream_si64((long long *)((uint16_t *)p + i), (long long)h);
#endif
#else
    vf_store(p, i, t, v);
#endif
}

/* A thread calls this after its streaming stores: they become visible to other threads before its later stores do. */
static inline void pb_stream_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* Like vf_put; whole vectors are streamed if `stream`. */
PB_INLINE void vf_out(void *p, size_t i, pb_dtype t, vf v, int n, bool stream)
{
    if (n == PB_VLEN && stream) vf_stream(p, i, t, v);
    else vf_put(p, i, t, v, n);
}

static inline float vf_sum(vf v)
{
    float s[PB_VLEN];
    memcpy(s, &v, sizeof s);
    for (int w = PB_VLEN / 2; w; w /= 2) /* pairwise, in a fixed order */
        for (int i = 0; i < w; i++) s[i] += s[i + w];
    return s[0];
}

/* Computes a b + c, rounded once where the instruction set has such an instruction. Two functions that must give the
 * same bits call it, because a compiler may fuse either product of a b + c d. */
static inline vf vf_fma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__x86_64__)
    return a * b + c;
#else
    for (int i = 0; i < PB_VLEN; i++) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return a;
#endif
}

/* Returns, per lane, a if the lane of `mask` has all bits set, and b if it is 0. Other masks are not allowed. */
static inline vf vf_select(vi mask, vf a, vf b)
{
#if defined(__AVX__) && !defined(__AVX512F__)
    return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
#else
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
#endif
}

/* vf_max and vf_min return the maximum and the minimum per lane. If either lane is NaN, the result is the lane of b. */
static inline vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vf_select(a > b, a, b);
#endif
}

static inline vf vf_min(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vf_select(a < b, a, b);
#endif
}

static inline float vf_hmax(vf v)
{
    float m = v[0];
    for (int i = 1; i < PB_VLEN; i++) m = v[i] > m ? v[i] : m;
    return m;
}

/* Computes e^x to about 1 ulp: x = n ln2 + r; e^r = 1 + r + r^2 q(r), q of degree 4 (minimax, 3e-9); scaled by 2^n. x <
 * -87.3 gives 0 (no denormals), x > 88.7 gives +Inf, NaN stays NaN. */
static inline vf vf_exp(vf x)
{
    vf y = vf_min(vf_set(89.0f), x);               /* clamped: r would be Inf - Inf = NaN */
    vf t = y * 1.44269504088896341f + 12582912.0f; /* adding 1.5*2^23 rounds to the nearest integer */
    vf n = t - 12582912.0f;
    vf r = y - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vf p = vf_set(1.3814431245e-3f);
    p = p * r + 8.3687971138e-3f;
    p = p * r + 4.1668395853e-2f;
    p = p * r + 1.6666519969e-1f;
    p = p * r + 4.9999993403e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.33654f), _CMP_NLT_UQ), (__m512)p,
                                      (__m512)n);
#else
    /* The low bits of t hold n. Adding them to p's exponent works for n = 128 too, where 2^n itself overflows. */
    y = (vf)((vu)p + ((vu)t << 23));
    y = (vf)((vi)y & ~(x < -87.33654f));
    y = vf_select(x > 88.72283f, vf_set(__builtin_inff()), y);
    return vf_select(x != x, x, y);
#endif
}

/* Computes e^x for x <= 0, as in a softmax after its maximum is subtracted, in two thirds of the instructions of
 * vf_exp. The relative error is 1.5e-7 + 2e-8 |x|, or 1e-7 (1 + |x|) without FMA. x < -87 gives 0, NaN stays NaN. */
static inline vf vf_exp_neg(vf x)
{
    vf t = x * 1.44269504088896341f + 12582912.0f;
    vf n = t - 12582912.0f;
    vf f = x * 1.44269504088896341f - n; /* 2^f for |f| <= 1/2: minimax of degree 5, error 9e-8 */
    vf p = vf_set(1.326464382e-3f);
    p = p * f + 9.671576896e-3f;
    p = p * f + 5.550734524e-2f;
    p = p * f + 2.402224110e-1f;
    p = p * f + 6.931469769e-1f;
    p = p * f + 1.0f;
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ), (__m512)p,
                                      (__m512)n);
#else
    p = p * (vf)(((vu)t << 23) + 0x3f800000u);
    return (vf)((vi)p & ~(x < -87.0f));
#endif
}

/* Computes the square root, correctly rounded. */
static inline vf vf_sqrt(vf x)
{
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
    return (vf)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < PB_VLEN; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

/* Computes 1/(1+e^-x); finite for every finite x. */
static inline vf vf_sigmoid(vf x) { return 1.0f / (1.0f + vf_exp(-x)); }
#endif
