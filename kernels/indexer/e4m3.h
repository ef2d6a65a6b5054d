/* e4m3.h - 8-bit floating point E4M3 (OCP OFP8 1.0, 2023): 4 bits of exponent (bias 7), 3 of mantissa, no infinity, NaN
 * as 0x7f and 0xff, largest value 448, steps of 2^-9 below 2^-6. */
#ifndef PB_E4M3_H
#define PB_E4M3_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef PB_E4M3_FN /* device code says more */
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

/* Exact: the exponent's field is moved to that of a float and then 120 too small. */
PB_E4M3_FN float pb_e4m3_decode(uint8_t code)
{
    if ((code & 0x7f) == 0x7f) return NAN;
    return pb_e4m3_bits((uint32_t)(code & 0x80) << 24 | (uint32_t)(code & 0x7f) << 20) * 0x1p120f;
}

/* To nearest even, saturated. */
PB_E4M3_FN uint8_t pb_e4m3_encode(float x)
{
    const uint32_t sign = pb_e4m3_of(x) >> 24 & 0x80;
    const float size = fabsf(x) < 448.0f ? fabsf(x) : 448.0f;
    if (x != x) return 0x7f;
    if (size < 0x1p-6f)
        return (uint8_t)(sign | (pb_e4m3_of(size + 0x1p14f) - pb_e4m3_of(0x1p14f))); /* in steps of 2^-9 */
    const uint32_t bits = pb_e4m3_of(size);
    return (uint8_t)(sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)));
}

/* The scale of a row whose largest magnitude is amax: such that amax / scale is 448 at most, up to rounding. */
PB_E4M3_FN float pb_e4m3_scale(float amax, int f32_scale)
{
    const float t = (amax > 1e-4f ? amax : 1e-4f) * (1 / 448.0f);
    return f32_scale ? t : pb_e4m3_bits((pb_e4m3_of(t) + 0x7fffff) & 0x7f800000); /* 2^ceil(log2 t) */
}
#endif
