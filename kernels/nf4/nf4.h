/* nf4.h - 4-bit NormalFloat: blockwise quantisation, bit-compatible with bitsandbytes.
 *
 * Dettmers et al. 2023, arXiv:2305.14314, section 3. The n elements of w (flattened, row-major) are cut
 * into blocks of `block`; block j has absmax[j] = max|w|, and an element's code is the number of
 * thresholds (the midpoints of neighbouring levels) that lie below w * (1/absmax[j]); a value on a
 * threshold takes the lower level. Byte i holds element 2i in its HIGH nibble and 2i+1 in its low one; the
 * low nibble after a last odd element holds the code of 0. Value: pb_nf4_level[code] * absmax[j], in
 * f32; a bf16 result is that f32 rounded.
 *
 * Double quantisation: offset = mean(absmax); (absmax - offset) is coded in 8 bits by bitsandbytes'
 * dynamic map `code` [256] (pb_nf4_dynamic_map) in blocks of 256 with scales absmax2, and
 *     absmax[j] = code[absmax_q[j]] * absmax2[j/256] + offset, rounded after the product and after the sum.
 *
 * bitsandbytes' CUDA and CPU builds differ; this follows csrc/kernels.cu read as IEEE arithmetic:
 * - a block of zeros: 1/0 * 0 is NaN, above no threshold, so code 0 and value -0 (CPU: code 7, value 0;
 *   and a short last block of zeros gets absmax 1e-38 there);
 * - a short last block is multiplied by 1/absmax like any other (CPU: divided by absmax);
 * - NaN gives code 0 and leaves absmax alone (CPU: absmax becomes NaN); a block of nothing but NaN has
 *   absmax 0; Inf gives absmax Inf, code 0 to itself and 7 to finite values;
 * - the 8-bit code is the nearest entry, and between two the one of even index, which is where the search
 *   of dQuantize ends (CPU: a table of 65536 bins, which misses about 1.5 of 1000 codes by one);
 * - offset is the sum in double, in the order of the blocks, divided and rounded once; torch's mean may
 *   differ from it in the last bit, and differs from device to device.
 * The CUDA build is compiled with --use_fast_math: its 1/absmax may be off by the last bit and subnormals
 * count as 0 there. */
#ifndef PB_NF4_H
#define PB_NF4_H
#include "kernels/core/gemm.h"
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

extern const float pb_nf4_level[16];      /* ascending, -1 .. 1 */
void pb_nf4_dynamic_map(float code[256]); /* ascending; as bitsandbytes' create_dynamic_map() */

typedef struct pb_nf4_quantize_args {
    const void *w; /* [n] dtype */
    uint8_t *q;    /* [ceil(n/2)], out */
    float *absmax; /* [ceil(n/block)], out; with double quantisation as they were before it */
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

/* EINVAL naming `op` when the scales are incomplete or the block size is none of bitsandbytes'. */
pb_status pb_nf4_check_scales(const char *op, const pb_nf4_scales *s);
/* Random scales for n elements as bound inputs: absmax in [0.5,1.5), or a consistent double quantisation. */
pb_nf4_scales pb_nf4_bind_scales(pb_binder *b, size_t n, int block, bool nested);
/* The bytes of the scales of n elements. */
double pb_nf4_scale_bytes(const pb_nf4_scales *s, size_t n);

PB_DECLARE_OP(nf4, quantize)
PB_DECLARE_OP(nf4, dequantize)

#ifdef __cplusplus
}
#endif
#endif
