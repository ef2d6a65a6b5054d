/* kv_qat.h - what a key/value row is after a trip through FP8: quantise-dequantise for training (DeepSeek-V4).
 *
 * The first D - R elements of each row, in blocks of `block`; the last R, which carry the rotation, are copied bit for
 * bit. Of a block, in f32 as the model's own kernel computes it:
 *
 *     amax = max(max |x|, 1e-4)        t = amax * (1/448)
 *     s = 2^ceil(log2 t) from the bits of t (PB_QAT_UE8M0)     or t (PB_QAT_F32)
 *     y = e4m3(clamp(x / s, -448, 448)) * s
 *
 * e4m3 rounds to nearest even on the grid of OCP 8-bit floating point E4M3 (OFP8 1.0, 2023): 3 bits of mantissa, least
 * exponent -6, steps of 2^-9 below it, largest value 448. y is rounded once to `dtype`. Every implementation gives the
 * same bits. A block of zeros stays zeros. A block with an element that is not finite is NaN throughout.
 *
 * Backward is straight-through: the gradient of y is that of x, and there is no op for it. Training without it does not
 * call it, so that its bits are those of a model that knows nothing of it. The compressed rows and the window's take
 * block 64 and R 64; the indexer's queries and keys, after their Hadamard transform, block 128 and R 0.
 * EINVAL: T < 0, sizes that do not divide, rows closer than D, y overlapping x (out of place only), a NULL tensor. */
#ifndef PB_KV_QAT_H
#define PB_KV_QAT_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum pb_qat_scale { PB_QAT_UE8M0, PB_QAT_F32 } pb_qat_scale;

typedef struct pb_kv_qat_fwd_args {
    const void *x; /* [T,D] dtype, rows ldx apart */
    void *y;       /* [T,D] dtype, rows ldy apart, out; shares no memory with x */
    int T, D, R;   /* 0 <= R <= D */
    int block;     /* D - R is a multiple of it */
    size_t ldx, ldy;
    pb_qat_scale scale;
    pb_dtype dtype;
} pb_kv_qat_fwd_args;

PB_DECLARE_OP(kv_qat, fwd)

#ifdef __cplusplus
}
#endif
#endif
