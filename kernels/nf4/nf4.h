/* nf4.h - 4-bit NormalFloat: blockwise quantisation, bit-compatible with bitsandbytes.
 *
 * Dettmers et al. 2023, arXiv:2305.14314, section 3. The n elements of w (flattened, row-major) are cut
 * into blocks of `block`; block j has absmax[j] = max|w|, and an element's code is the level nearest to
 * w * (1/absmax[j]), found with bitsandbytes' thresholds (the midpoints; a value on a threshold takes
 * the lower level). Byte i holds element 2i in its HIGH nibble and 2i+1 in its low one; the low nibble of
 * a last odd element is padding. Value: pb_nf4_level[code] * absmax[j].
 *
 * Double quantisation: offset = mean(absmax); (absmax - offset) is coded in 8 bits by bitsandbytes'
 * dynamic map `code` [256] (pb_nf4_dynamic_map) in blocks of 256 with scales absmax2, and
 *     absmax[j] = code[absmax_q[j]] * absmax2[j/256] + offset. */
#ifndef PB_NF4_H
#define PB_NF4_H
#include "kernels/core/op.h"
#include "kernels/core/gemm.h"
#ifdef __cplusplus
extern "C" {
#endif

extern const float pb_nf4_level[16];      /* ascending, -1 .. 1 */
void pb_nf4_dynamic_map(float code[256]); /* ascending; as bitsandbytes' create_dynamic_map() */

typedef struct pb_nf4_quantize_args {
    const void *w; /* [n] dtype */
    uint8_t *q;    /* [ceil(n/2)], out */
    float *absmax; /* [ceil(n/block)], out; without double quantisation; else scratch that it uses */
    /* With double quantisation; all NULL without: */
    const float *code; /* [256] */
    uint8_t *absmax_q; /* [ceil(n/block)], out */
    float *absmax2;    /* [ceil(ceil(n/block)/256)], out */
    float *offset;     /* [1], out */
    size_t n;
    int block; /* a power of two, 32..4096 */
    pb_dtype dtype;
} pb_nf4_quantize_args;

typedef struct pb_nf4_dequantize_args {
    const uint8_t *q;     /* [ceil(n/2)] */
    pb_nf4_scales scales; /* plain or double-quantised */
    void *w;              /* [n] dtype, out */
    size_t n;
    pb_dtype dtype;
} pb_nf4_dequantize_args;

PB_DECLARE_OP(nf4, quantize)
PB_DECLARE_OP(nf4, dequantize)

#ifdef __cplusplus
}
#endif
#endif
