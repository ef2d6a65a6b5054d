/* kv_qat.h - quantises key/value rows to FP8 and back, for quantisation-aware training of DeepSeek-V4.
 *
 * The first D - R elements of each row are quantised in blocks of `block`. The last R elements, which carry the rotary
 * embedding, are copied bit for bit. For each block, in f32 as DeepSeek's own kernel computes it:
 *     amax = max(max |x|, 1e-4)        t = amax * (1/448)
 *     s = 2^ceil(log2 t), from the bits of t (PB_QAT_UE8M0)     or s = t (PB_QAT_F32)
 *     y = e4m3(clamp(x / s, -448, 448)) * s
 * e4m3 rounds to the nearest E4M3 value, ties to even (OCP OFP8 1.0, 2023): 3 mantissa bits, smallest normal exponent
 * -6, subnormal steps of 2^-9, largest value 448. y is rounded once to `dtype`. Every implementation gives the same
 * bits. A block of zeros stays zeros. If an element of a block is not finite, the whole block becomes NaN.
 *
 * No backward op exists: the gradient is straight-through, so the gradient of y is used as the gradient of x.
 * DeepSeek-V4 uses block 64 and R 64 for compressed rows and rows of the sliding window, and block 128 and R 0 for the
 * indexer's queries and keys after their Hadamard transform. EINVAL: T < 0, D - R is not a multiple of block, ldx or
 * ldy < D, y overlaps x, or a tensor is NULL. */
#ifndef PB_KV_QAT_H
#define PB_KV_QAT_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum pb_qat_scale { PB_QAT_UE8M0, PB_QAT_F32 } pb_qat_scale;

typedef struct pb_kv_qat_fwd_args {
    const void *x; /* [T,D] dtype; rows are ldx elements apart */
    void *y;       /* [T,D] dtype, out; rows are ldy elements apart; must not overlap x */
    int T, D, R;   /* 0 <= R <= D; R: elements copied */
    int block;     /* must divide D - R */
    size_t ldx, ldy;
    pb_qat_scale scale;
    pb_dtype dtype;
} pb_kv_qat_fwd_args;

PB_DECLARE_OP(kv_qat, fwd)

#ifdef __cplusplus
}
#endif
#endif
