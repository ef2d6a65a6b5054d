/* e4m3.h - 8-bit floating point E4M3 (OCP OFP8 1.0, 2023): 4 exponent bits (bias 7), 3 mantissa bits, no infinity, NaN
 * is 0x7f and 0xff, largest value 448, subnormals in steps of 2^-9 below 2^-6. */
#ifndef PB_E4M3_H
#define PB_E4M3_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef PB_E4M3_FN /* device code defines it as __host__ __device__ */
#define PB_E4M3_FN static inline
#endif

PB_E4M3_FN float pb_e4m3_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
PB_E4M3_FN uint32_t pb_e4m3_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns the value of a code, exactly. The code's exponent is moved to the exponent field of a float, where the
 * difference of the biases (127 and 7) makes it too small by 120. The factor 2^120 corrects this. */
PB_E4M3_FN float pb_e4m3_decode(uint8_t code)
{
    if ((code & 0x7f) == 0x7f) return NAN;
    return pb_e4m3_bits((uint32_t)(code & 0x80) << 24 | (uint32_t)(code & 0x7f) << 20) * 0x1p120f;
}

/* Rounds to nearest even; values beyond 448 become 448; NaN becomes 0x7f. */
PB_E4M3_FN uint8_t pb_e4m3_encode(float x)
{
    const uint32_t sign = pb_e4m3_of(x) >> 24 & 0x80;
    const float size = fabsf(x) < 448.0f ? fabsf(x) : 448.0f;
    if (x != x) return 0x7f;
    if (size < 0x1p-6f) /* adding 2^14 rounds to steps of 2^-9 */
        return (uint8_t)(sign | (pb_e4m3_of(size + 0x1p14f) - pb_e4m3_of(0x1p14f)));
    const uint32_t bits = pb_e4m3_of(size);
    return (uint8_t)(sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)));
}

/* Returns the scale of a row whose largest magnitude is amax: amax / scale is at most 448, except for rounding. */
PB_E4M3_FN float pb_e4m3_scale(float amax, int f32_scale)
{
    const float t = (amax > 1e-4f ? amax : 1e-4f) * (1 / 448.0f);
    return f32_scale ? t : pb_e4m3_bits((pb_e4m3_of(t) + 0x7fffff) & 0x7f800000); /* 2^ceil(log2 t) */
}
#endif
