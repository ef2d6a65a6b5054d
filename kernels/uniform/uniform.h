/* uniform.h - seeded random values, generated on the device that keeps them, so that a model of gigabytes
 * need not be copied to it.
 *
 *     w[i] = centre + half * (2 u(stream, first + i) - 1)        u = pb_uniform: splitmix64 of a counter, in [0,1)
 *
 * Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (splitmix64). Product and sum are computed
 * and rounded separately in double, then rounded to dtype (to bf16 through f32). A value depends only on stream and
 * index, so every implementation gives the same bits. */
#ifndef PB_UNIFORM_H
#define PB_UNIFORM_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_uniform_fill_args {
    void *w;       /* [n] dtype, out */
    float *master; /* [n] f32, out: the values of w after rounding to dtype; NULL: not written */
    size_t n;
    uint64_t stream, first;
    double centre, half;
    bool as_bf16; /* round to bf16 also when dtype is f32 */
    pb_dtype dtype;
} pb_uniform_fill_args;

PB_DECLARE_OP(uniform, fill)

#ifdef __cplusplus
}
#endif
#endif
