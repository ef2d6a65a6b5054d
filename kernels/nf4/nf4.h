/* nf4.h - 4-bit NormalFloat (NF4): blockwise quantisation with the same results as bitsandbytes.
 *
 * Dettmers et al. 2023, arXiv:2305.14314, section 3. w has n elements in row-major order. They are divided into
 * blocks of `block` elements. Block j has absmax[j] = max|w|. The code of an element is the number of thresholds that
 * are less than w * (1/absmax[j]). A threshold is the midpoint of two neighbouring levels; a value equal to a
 * threshold takes the lower level. Byte i holds element 2i in its HIGH nibble and element 2i+1 in its low nibble.
 * When n is odd, the last low nibble holds the code of 0. A dequantised value is pb_nf4_level[code] * absmax[j] in
 * f32; for bf16 that f32 is rounded.
 *
 * Double quantisation also stores the scales in 8 bits. With offset = mean(absmax), each (absmax - offset) is coded
 * with bitsandbytes' dynamic map `code` [256] (pb_dynamic_map), in blocks of 256 with scales absmax2:
 *     absmax[j] = code[absmax_q[j]] * absmax2[j/256] + offset, rounded after the product and after the sum.
 *
 * The CUDA and CPU builds of bitsandbytes differ. This op follows csrc/kernels.cu, evaluated in IEEE arithmetic:
 * - A block of zeros: 1/0 * 0 is NaN, which is above no threshold. The code is 0 and the value -0. (CPU build: code 7,
 *   value 0; a short last block of zeros gets absmax 1e-38.)
 * - A short last block is multiplied by 1/absmax like every other block. (CPU build: divided by absmax.)
 * - NaN gets code 0 and does not change absmax. (CPU build: absmax becomes NaN.) A block of NaN only has absmax 0. Inf
 *   makes absmax Inf; Inf itself gets code 0, finite values get code 7.
 * - The 8-bit code is the nearest entry of the map; a tie takes the entry with the even index, as the search in
 *   dQuantize does. (CPU build: a table of 65536 bins, which is wrong by one for about 1.5 of 1000 codes.)
 * - offset is summed in double in the order of the blocks, divided, and rounded once. torch's mean may differ in the
 *   last bit, and differs between devices.
 *
 * bitsandbytes compiles its CUDA build with --use_fast_math: there 1/absmax may be wrong in the last bit,
 * and subnormals count as 0. */
#ifndef PB_NF4_H
#define PB_NF4_H
#include "kernels/cpu/gemm.h"
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

extern const float pb_nf4_level[16]; /* 16 levels, ascending from -1 to 1 */
/* Computes bitsandbytes' create_dynamic_map(signed=both_signs), which ascends. */
void pb_dynamic_map(bool both_signs, float code[256]);

typedef struct pb_nf4_quantize_args {
    const void *w; /* [n] dtype */
    uint8_t *q;    /* [ceil(n/2)], out */
    float *absmax; /* [ceil(n/block)], out; f32 scales, also with double quantisation */
    /* These four are for double quantisation: give all of them, or leave all NULL. */
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

/* Double quantisation on the host: from absmax [blocks], computes codes absmax_q [blocks], absmax2 [ceil(blocks/256)]
 * and *offset, with the map `code` [256]. Gives what the op nf4_quantize gives for the whole tensor, for callers that
 * quantise a tensor in parts: offset is a mean over all of it. */
void pb_nf4_quantize_scales(const float *absmax, size_t blocks, const float *code, uint8_t *absmax_q, float *absmax2,
                            float *offset);
/* Checks the scales. EINVAL, with `op` in the message, if an array is missing or the block size is not supported. */
pb_status pb_nf4_check_scales(const char *op, const pb_nf4_scales *s);
/* Makes random scales for n elements as inputs of a test. `nested`: with double quantisation; otherwise absmax is in
 * [0.5,1.5). */
pb_nf4_scales pb_nf4_bind_scales(pb_binder *b, size_t n, int block, bool nested);
/* Returns the bytes of the scales of n elements. */
double pb_nf4_scale_bytes(const pb_nf4_scales *s, size_t n);

PB_DECLARE_OP(nf4, quantize)
PB_DECLARE_OP(nf4, dequantize)

#ifdef __cplusplus
}
#endif
#endif
