/* rope_fast.c - rotary position embedding on the CPU with SIMD. Each thread owns whole tokens; the token's row of cos
 * and sin stays in L1 while all heads of q and k are rotated. Memory-bound. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/rope/rows.h"

static inline vf load(const void *p, size_t i, pb_dtype t, int n)
{
    return n >= PB_VLEN ? vf_load(p, i, t) : vf_load_n(p, i, t, n > 0 ? (size_t)n : 0);
}

static inline void store(void *p, size_t i, pb_dtype t, vf v, int n)
{
    if (n >= PB_VLEN) vf_store(p, i, t, v);
    else if (n > 0) vf_store_n(p, i, t, v, (size_t)n);
}

/* Shuffle indices: EVEN and ODD split two vectors of adjacent pairs into first and second elements; LOW
 * and HIGH merge these again. */
#if defined(__AVX512F__)
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX__)
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD  1, 3, 5, 7, 9, 11, 13, 15
#define LOW  0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD  1, 3, 5, 7
#define LOW  0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#endif

/* Rotates min(n, PB_VLEN) pairs, from pair i on, of the head at element x. */
PB_INLINE void pairs(const pb_rope_rows *r, const bool half, int side, size_t x, size_t y, int i, int n, vf c, vf s)
{
    const pb_dtype t = r->dtype;
    if (half) {
        const vf a = load(r->x[side], x + i, t, n), b = load(r->x[side], x + r->R / 2 + i, t, n);
        store(r->y[side], y + i, t, a * c - b * s, n);
        store(r->y[side], y + r->R / 2 + i, t, b * c + a * s, n);
        return;
    }
    const int first = n >= PB_VLEN ? PB_VLEN : 2 * n, second = n >= PB_VLEN ? PB_VLEN : 2 * n - PB_VLEN;
    const vf lo = load(r->x[side], x + 2 * i, t, first), hi = load(r->x[side], x + 2 * i + PB_VLEN, t, second);
    const vf a = __builtin_shufflevector(lo, hi, EVEN), b = __builtin_shufflevector(lo, hi, ODD);
    const vf a_ = a * c - b * s, b_ = b * c + a * s;
    store(r->y[side], y + 2 * i, t, __builtin_shufflevector(a_, b_, LOW), first);
    store(r->y[side], y + 2 * i + PB_VLEN, t, __builtin_shufflevector(a_, b_, HIGH), second);
}

/* Rotates the heads of q (side 0) or k (side 1) of one token. */
PB_INLINE void row(const pb_rope_rows *r, const bool half, int side, size_t b, size_t s)
{
    const int p = pb_rope_position(r, b, s), width = r->R / 2;
    const size_t e = pb_dtype_size(r->dtype), still = (size_t)(r->D - r->R);
    const bool in = p >= 0 && p < r->P;
    for (int h = 0; h < r->heads[side]; h++) {
        const size_t x = b * r->seqx[side] + s * r->ldx[side] + (size_t)h * r->D;
        const size_t y = b * r->seqy[side] + s * r->ldy[side] + (size_t)h * r->D;
        if (r->x[side] != r->y[side]) memcpy((char *)r->y[side] + y * e, (const char *)r->x[side] + x * e, still * e);
        for (int i = 0; i < width; i += PB_VLEN) {
            vf cos_ = vf_set(NAN), sin_ = cos_;
            if (in) {
                cos_ = load(r->cos, (size_t)p * width + i, PB_F32, width - i);
                sin_ = load(r->sin, (size_t)p * width + i, PB_F32, width - i) * r->sign;
            }
            pairs(r, half, side, x + still, y + still, i, width - i, cos_, sin_);
        }
    }
}

/* `half` is a constant in every call, so that the loop is compiled once for each pairing. */
PB_INLINE void rotate_all(const pb_rope_rows *r, bool half)
{
    const size_t tokens = (size_t)r->B * r->S, work = tokens * r->D * (size_t)(r->heads[0] + r->heads[1]);
#pragma omp parallel for schedule(static) if (work > 8192)
    for (size_t n = 0; n < tokens; n++) {
        row(r, half, 0, n / (size_t)r->S, n % (size_t)r->S);
        row(r, half, 1, n / (size_t)r->S, n % (size_t)r->S);
    }
}

static void rotate(const pb_rope_rows *r)
{
    if (r->pairing == PB_ROPE_HALF) rotate_all(r, true);
    else rotate_all(r, false);
}

pb_status PB_FAST(pb_rope_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_rope_rows r = pb_rope_fwd_rows(args);
    (void)ctx;
    rotate(&r);
    return PB_OK;
}

pb_status PB_FAST(pb_rope_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_rope_rows r = pb_rope_bwd_rows(args);
    (void)ctx;
    rotate(&r);
    return PB_OK;
}
