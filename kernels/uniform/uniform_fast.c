/* uniform_fast.c - vectorised seeded random values. Limited by the two 64-bit multiplications per value.
 *
 * Threads take PIECE values at a time. The product and the sum are in separate loops with an array between them, so
 * that the compiler cannot fuse them into an FMA, whatever the instruction set. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/uniform/uniform.h"

enum { PIECE = 1024 };

static inline void draw(double *v, uint64_t base, size_t n, double half)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = base + i;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        v[i] = half * (2 * ((double)((x ^ (x >> 31)) >> 11) * 0x1p-53) - 1);
    }
}

static inline void store(const pb_uniform_fill_args *a, const double *v, size_t at, size_t n)
{
    if (a->dtype == PB_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)a->w)[at + i] = pb_f32_to_bf16((float)v[i]);
    else if (a->as_bf16)
        for (size_t i = 0; i < n; i++) ((float *)a->w)[at + i] = pb_bf16_to_f32(pb_f32_to_bf16((float)v[i]));
    else
        for (size_t i = 0; i < n; i++) ((float *)a->w)[at + i] = (float)v[i];
    for (size_t i = at; a->master && i < at + n; i++) a->master[i] = (float)pb_load(a->w, i, a->dtype);
}

pb_status PB_FAST(pb_uniform_fill)(pb_ctx *ctx, const void *args)
{
    const pb_uniform_fill_args *a = args;
    const uint64_t base = a->stream * 0xd1342543de82ef95u + 0x9e3779b97f4a7c15u + a->first;
    (void)ctx;
#pragma omp parallel for schedule(static) if (a->n > 16 * PIECE)
    for (size_t at = 0; at < a->n; at += PIECE) {
        double v[PIECE];
        const size_t n = a->n - at < PIECE ? a->n - at : PIECE;
        draw(v, base + at, n, a->half);
        if (a->centre < 0 || a->centre > 0)
            for (size_t i = 0; i < n; i++) v[i] += a->centre;
        store(a, v, at, n);
    }
    return PB_OK;
}
