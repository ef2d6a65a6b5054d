/* swiglu_fast.c - the vectorised gated activation; each thread computes whole rows. Limited by memory bandwidth. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/swiglu/swiglu.h"

/* Computes n elements. g, u, o: element indices of gate, up and output. */
PB_INLINE void fwd_step(const pb_swiglu_fwd_args *a, size_t g, size_t u, size_t o, int n, bool stream, pb_dtype t)
{
    vf gate = vf_get(a->gu, g, t, n), up = vf_get(a->gu, u, t, n);
    vf_out(a->y, o, t, gate * vf_sigmoid(gate) * up, n, stream);
}

PB_INLINE void fwd_row(const pb_swiglu_fwd_args *a, size_t row, bool stream, pb_dtype t)
{
    const size_t I = a->I, o = row * I, g = 2 * o, u = g + I;
    size_t i = 0;
    for (; i + PB_VLEN <= I; i += PB_VLEN) fwd_step(a, g + i, u + i, o + i, PB_VLEN, stream, t);
    if (i < I) fwd_step(a, g + i, u + i, o + i, (int)(I - i), false, t);
}

pb_status PB_FAST(pb_swiglu_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_swiglu_fwd_args *a = args;
    const size_t row_bytes = a->I * pb_dtype_size(a->dtype);
    const bool stream = pb_should_stream(a->y, a->T * row_bytes, row_bytes);
    (void)ctx;
#pragma omp parallel if ((size_t)a->T * a->I > 4096)
    {
#pragma omp for schedule(static)
        for (int r = 0; r < a->T; r++) PB_PER_DTYPE(a->dtype, fwd_row, a, r, stream);
        pb_stream_fence();
    }
    return PB_OK;
}

PB_INLINE void bwd_step(const pb_swiglu_bwd_args *a, size_t g, size_t u, size_t o, int n, bool stream_d, bool stream_y,
                        pb_dtype t)
{
    vf gate = vf_get(a->gu, g, t, n), up = vf_get(a->gu, u, t, n), dy = vf_get(a->dy, o, t, n);
    vf s = vf_sigmoid(gate), silu = gate * s;
    vf_out(a->dgu, g, t, dy * up * (s + silu * (1.0f - s)), n, stream_d);
    vf_out(a->dgu, u, t, dy * silu, n, stream_d);
    if (a->y) vf_out(a->y, o, t, silu * up, n, stream_y);
}

PB_INLINE void bwd_row(const pb_swiglu_bwd_args *a, size_t row, bool stream_d, bool stream_y, pb_dtype t)
{
    const size_t I = a->I, o = row * I, g = 2 * o, u = g + I;
    size_t i = 0;
    for (; i + PB_VLEN <= I; i += PB_VLEN) bwd_step(a, g + i, u + i, o + i, PB_VLEN, stream_d, stream_y, t);
    if (i < I) bwd_step(a, g + i, u + i, o + i, (int)(I - i), false, false, t);
}

pb_status PB_FAST(pb_swiglu_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_swiglu_bwd_args *a = args;
    const size_t row_bytes = a->I * pb_dtype_size(a->dtype), bytes = a->T * row_bytes;
    const bool stream_d = a->dgu != a->gu && pb_should_stream(a->dgu, 2 * bytes, row_bytes);
    const bool stream_y = a->y && a->y != a->dy && pb_should_stream(a->y, bytes, row_bytes);
    (void)ctx;
#pragma omp parallel if ((size_t)a->T * a->I > 4096)
    {
#pragma omp for schedule(static)
        for (int r = 0; r < a->T; r++) PB_PER_DTYPE(a->dtype, bwd_row, a, r, stream_d, stream_y);
        pb_stream_fence();
    }
    return PB_OK;
}
