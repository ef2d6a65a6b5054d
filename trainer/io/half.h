/* half.h - converts f16 to f32. */
#ifndef PB_IO_HALF_H
#define PB_IO_HALF_H
#include <stdint.h>
#include <string.h>

/* f16 has 5 exponent bits (bias 15) and 10 fraction bits. Shifting them to the position of an f32's exponent and
 * fraction gives 2^-112 times the value, because the f32 bias is 127. The multiplication by 2^112 is exact, also for
 * subnormals. Inf and NaN become numbers of at least 2^16; their exponent is then set to all ones. */
static inline float pb_f16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fffu) << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    f *= 0x1p112f;
    memcpy(&bits, &f, sizeof bits);
    bits |= (f >= 65536.0f ? 0x7f800000u : 0) | (uint32_t)(h & 0x8000u) << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
}
#endif
