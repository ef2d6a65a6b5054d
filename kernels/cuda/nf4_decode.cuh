/* nf4_decode.cuh - decodes NF4 on the device. It gives the same bits as nf4_decode.h: level
 * times scale, rounded once. */
#ifndef PB_NF4_DECODE_CUH
#define PB_NF4_DECODE_CUH
#include "kernels/cuda/cuda.cuh"
#include "kernels/cpu/gemm.h"

extern "C" const float pb_nf4_level[16];

/* A quantised tensor as a kernel argument: passed by value, with the table of levels. */
struct pb_nf4_view {
    const uint8_t *q;
    pb_nf4_scales s;
    int shift; /* log2 of the block size */
    float level[16];
};

static inline pb_nf4_view pb_nf4_view_of(const void *q, const pb_nf4_scales *s)
{
    pb_nf4_view v = {(const uint8_t *)q, *s, 0, {0}};
    while ((1 << v.shift) < s->block) v.shift++;
    for (int i = 0; i < 16; i++) v.level[i] = pb_nf4_level[i];
    return v;
}

/* Returns the scale (absmax) of block j. Product and sum are rounded separately, so they must
 * not be fused into an FMA. */
__device__ static inline float pb_nf4_scale_at(const pb_nf4_scales &s, size_t j)
{
    if (s.absmax) return s.absmax[j];
    return __fadd_rn(__fmul_rn(s.code[s.absmax_q[j]], s.absmax2[j / 256]), *s.offset);
}
__device__ static inline int pb_nf4_code_at(const uint8_t *q, size_t e)
{
    return e & 1 ? q[e / 2] & 15 : q[e / 2] >> 4;
}
/* Returns element e. `level` is a copy of the table in shared memory, where lanes can read
 * different entries at once. */
__device__ static inline float pb_nf4_value_at(const pb_nf4_view &v, const float *level, size_t e)
{
    return __fmul_rn(level[pb_nf4_code_at(v.q, e)], pb_nf4_scale_at(v.s, e >> v.shift));
}
#endif
