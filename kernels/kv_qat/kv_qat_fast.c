/* kv_qat_fast.c - FP8 quantise-dequantise on the CPU with SIMD. Each thread owns rows. A block is read twice, the
 * second time from L1. Memory-bound. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/indexer/e4m3.h"
#include "kernels/kv_qat/kv_qat.h"

/* Returns the bits of the block's largest |x|. As integers, the bits of NaN and infinity are larger than those of
 * finite numbers. */
PB_INLINE uint32_t largest(const void *x, size_t at, int n, pb_dtype t)
{
    vu most = {0};
    uint32_t lanes[PB_VLEN], bits = 0;
    for (int i = 0; i < n; i += PB_VLEN) {
        const vu v = (vu)vf_get(x, at + (size_t)i, t, n - i < PB_VLEN ? n - i : PB_VLEN) & 0x7fffffffu;
        const vu more = (vu)(v > most);
        most = (v & more) | (most & ~more);
    }
    memcpy(lanes, &most, sizeof lanes);
    for (int i = 0; i < PB_VLEN; i++) bits = lanes[i] > bits ? lanes[i] : bits;
    return bits;
}

/* Returns the scale of a block; NaN if the block has an element that is not finite. */
static float scale_of(uint32_t amax, pb_qat_scale kind)
{
    return amax < 0x7f800000u ? pb_e4m3_scale(pb_e4m3_bits(amax), kind == PB_QAT_F32) : NAN;
}

/* Rounds |v| <= 448 to E4M3. Adding and subtracting a number whose ulp is the E4M3 step at |v| rounds to that step. */
PB_INLINE vf e4m3(vf v)
{
    const vu sign = (vu)v & 0x80000000u, bits = (vu)v & 0x7f800000u, least = (vu){0} + (121u << 23);
    const vu small = (vu)(bits < least);
    const vf big = (vf)(((least & small) | (bits & ~small)) + (20u << 23));
    const vf q = ((vf)((vu)v & 0x7fffffffu) + big) - big;
    return (vf)((vu)q | sign);
}

PB_INLINE void block(const pb_kv_qat_fwd_args *a, size_t x, size_t y, pb_dtype t)
{
    const float s = scale_of(largest(a->x, x, a->block, t), a->scale);
    for (int i = 0; i < a->block; i += PB_VLEN) {
        const int n = a->block - i < PB_VLEN ? a->block - i : PB_VLEN;
        const vf v = vf_get(a->x, x + (size_t)i, t, n) / vf_set(s);
        const vf q = e4m3(vf_max(vf_min(v, vf_set(448)), vf_set(-448)));
        vf_put(a->y, y + (size_t)i, t, q * s, n);
    }
}

PB_INLINE void rows(const pb_kv_qat_fwd_args *a, pb_dtype t)
{
    const size_t n = (size_t)(a->D - a->R), e = pb_dtype_size(t);
#pragma omp parallel for schedule(static) if ((size_t)a->T * (size_t)a->D > 8192)
    for (size_t r = 0; r < (size_t)a->T; r++) {
        const size_t x = r * a->ldx, y = r * a->ldy;
        for (size_t i = 0; i < n; i += (size_t)a->block) block(a, x + i, y + i, t);
        memcpy((char *)a->y + (y + n) * e, (const char *)a->x + (x + n) * e, (size_t)a->R * e);
    }
}

pb_status PB_FAST(pb_kv_qat_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_kv_qat_fwd_args *a = args;
    (void)ctx;
    PB_PER_DTYPE(a->dtype, rows, a);
    return PB_OK;
}
