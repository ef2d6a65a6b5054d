/* dtype.h - the element types of tensors, and exact conversion of single elements on the host. */
#ifndef PB_DTYPE_H
#define PB_DTYPE_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The types: X(enumerator, name in keys of results, bytes). The first PB_NFLOAT types are floating-point; ops support
 * each of these. */
#define PB_DTYPE_MAP(X)                                                                                                \
    X(F32, "f32", 4)                                                                                                   \
    X(BF16, "bf16", 2)                                                                                                 \
    X(I32, "i32", 4)                                                                                                   \
    X(U8, "u8", 1)

typedef enum pb_dtype {
#define X(id, name, bytes) PB_##id,
    PB_DTYPE_MAP(X)
#undef X
        PB_NDTYPES
} pb_dtype;
enum { PB_NFLOAT = 2 };

static inline size_t pb_dtype_size(pb_dtype t)
{
    static const unsigned char bytes[PB_NDTYPES] = {
#define X(id, name, bytes) bytes,
        PB_DTYPE_MAP(X)
#undef X
    };
    return bytes[t];
}

static inline const char *pb_dtype_name(pb_dtype t)
{
    static const char *const names[PB_NDTYPES] = {
#define X(id, name, bytes) name,
        PB_DTYPE_MAP(X)
#undef X
    };
    return names[t];
}

/* bfloat16 is the upper half of a binary32. f32 to bf16 rounds to nearest even; NaN stays NaN. */
static inline float pb_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t pb_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (uint16_t)((bits >> 16) | 0x40u); /* the quiet bit: truncation could give Inf */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* pb_load returns element i of an array of type t in host memory as a double, and pb_store writes one. pb_store rounds
 * to nearest even; for integer types it truncates. Values that the type can hold are converted exactly. */
static inline double pb_load(const void *p, size_t i, pb_dtype t)
{
    switch (t) {
    case PB_F32: return (double)((const float *)p)[i];
    case PB_BF16: return (double)pb_bf16_to_f32(((const uint16_t *)p)[i]);
    case PB_I32: return (double)((const int32_t *)p)[i];
    default: return (double)((const uint8_t *)p)[i];
    }
}

static inline void pb_store(void *p, size_t i, pb_dtype t, double v)
{
    switch (t) {
    case PB_F32: ((float *)p)[i] = (float)v; break;
    case PB_BF16: ((uint16_t *)p)[i] = pb_f32_to_bf16((float)v); break;
    case PB_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    default: ((uint8_t *)p)[i] = (uint8_t)v; break;
    }
}
#ifdef __cplusplus
}
#endif
#endif
