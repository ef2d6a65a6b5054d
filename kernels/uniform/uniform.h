/* uniform.h - seeded values drawn where they are kept, so that a model of gigabytes need not cross the bus.
 *
 *     w[i] = centre + half * (2 u(stream, first + i) - 1)        u = pb_uniform: splitmix64 of a counter, in [0,1)
 *
 * Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (splitmix64). In double, the product and
 * the sum rounded each, then to dtype (bf16 through f32). A value depends on its index alone: every implementation
 * gives the same bits. */
#ifndef PB_UNIFORM_H
#define PB_UNIFORM_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_uniform_fill_args {
    void *w;       /* [n] dtype, out */
    float *master; /* [n] f32, out: w as it is stored; NULL: not wanted */
    size_t n;
    uint64_t stream, first;
    double centre, half;
    bool as_bf16; /* values that bf16 has, whatever dtype is */
    pb_dtype dtype;
} pb_uniform_fill_args;

PB_DECLARE_OP(uniform, fill)

#ifdef __cplusplus
}
#endif
#endif
