/* moments.h - how moments in bf16 and in 8 bits are rounded, shared by all implementations. Every operation is rounded
 * once, in a fixed order (a sum of products is one fmaf), so that all implementations store the same bits. */
#ifndef PB_ADAMW_MOMENTS_H
#define PB_ADAMW_MOMENTS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef PB_ADAMW_FN /* adamw.cu defines it before it includes this header, to add __device__ */
#define PB_ADAMW_FN static inline
#endif

/* The absmax of the blocks of n moments in 8 bits, after their codes. */
PB_ADAMW_FN float *pb_adamw_absmax(void *codes, size_t n)
{
    return (float *)(void *)((unsigned char *)codes + (n + 3) / 4 * 4);
}

/* The finaliser of MurmurHash3, fmix32 (Appleby 2011): a bijection in which each input bit changes each output bit with
 * a probability of about one half. */
PB_ADAMW_FN uint32_t pb_adamw_mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* The random bits of an element in a step: the low 16 round m, the high 16 round v. key is pb_adamw_mix(step). */
PB_ADAMW_FN uint32_t pb_adamw_random(uint32_t key, uint32_t index)
{
    return pb_adamw_mix(pb_adamw_mix(index + 0x9e3779b9u) ^ key);
}

/* Rounds x to bf16 upwards in magnitude with a probability equal to the fraction that it cuts off, for 16 uniform bits.
 * Infinities stay; a NaN stays a NaN. */
PB_ADAMW_FN uint16_t pb_adamw_round(float x, uint32_t random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u) return (uint16_t)(bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0));
    return (uint16_t)((bits + (random & 0xffffu)) >> 16);
}

PB_ADAMW_FN float pb_adamw_widen(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns the index of the entry of an ascending map [256] that is nearest to x, of two equally near ones the lower. */
PB_ADAMW_FN int pb_adamw_nearest(const float *map, float x)
{
    int code = 0;
    for (int half = 128; half; half /= 2) code += x > (map[code + half - 1] + map[code + half]) * 0.5f ? half : 0;
    return code;
}

/* The code of a first moment m. One below 0 never becomes 0, as in kOptimizerStatic8bit2StateBlockwise of
 * bitsandbytes' csrc/kernels.cu. */
PB_ADAMW_FN uint8_t pb_adamw_code_m(const float *map, float m, float absmax)
{
    const int code = pb_adamw_nearest(map, absmax > 0 ? m / absmax : 0);
    return (uint8_t)(m < 0 && map[code] == 0 ? code - 1 : code);
}
PB_ADAMW_FN uint8_t pb_adamw_code_v(const float *map, float v, float absmax)
{
    return (uint8_t)pb_adamw_nearest(map, absmax > 0 ? v / absmax : 0);
}

/* The moments after a gradient g, which was scaled before. */
PB_ADAMW_FN float pb_adamw_next_m(float m, float g, float b1, float one_b1) { return fmaf(b1, m, one_b1 * g); }
PB_ADAMW_FN float pb_adamw_next_v(float v, float g, float b2, float one_b2) { return fmaf(b2, v, one_b2 * g * g); }
#endif
