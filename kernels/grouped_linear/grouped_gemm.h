/* grouped_gemm.h - describes the three matrix products of a grouped linear layer (forward, dx, dw). Each is a pb_gemm
 * for group 0, and a pb_gemm_batch with the distances from one group's matrices to the next group's. */
#ifndef PB_GROUPED_GEMM_H
#define PB_GROUPED_GEMM_H
#include "kernels/cpu/gemm.h"
#include "kernels/grouped_linear/grouped_linear.h"

static inline pb_gemm pb_grouped_fwd_gemm(const pb_grouped_linear_fwd_args *a, pb_gemm_batch *batch)
{
    const size_t G = (size_t)a->G, N = (size_t)a->N, K = (size_t)a->K;
    *batch = (pb_gemm_batch){.n = a->G, .a = K, .b = N * K, .c = N};
    return (pb_gemm){.M = a->T,
                     .N = a->N,
                     .K = a->K,
                     .a = {.p = a->x, .ld = G * K, .dtype = a->dtype},
                     .b = {.p = a->w, .ld = K, .dtype = a->dtype, .trans = true},
                     .c = a->y,
                     .ldc = G * N,
                     .c_dtype = a->dtype,
                     .alpha = 1};
}

static inline pb_gemm pb_grouped_dx_gemm(const pb_grouped_linear_dx_args *a, pb_gemm_batch *batch)
{
    const size_t G = (size_t)a->G, N = (size_t)a->N, K = (size_t)a->K;
    *batch = (pb_gemm_batch){.n = a->G, .a = N, .b = N * K, .c = K};
    return (pb_gemm){.M = a->T,
                     .N = a->K,
                     .K = a->N,
                     .a = {.p = a->dy, .ld = G * N, .dtype = a->dtype},
                     .b = {.p = a->w, .ld = K, .dtype = a->dtype},
                     .c = a->dx,
                     .ldc = G * K,
                     .c_dtype = a->dtype,
                     .alpha = 1,
                     .accumulate = a->accumulate};
}

static inline pb_gemm pb_grouped_dw_gemm(const pb_grouped_linear_dw_args *a, pb_gemm_batch *batch)
{
    const size_t G = (size_t)a->G, N = (size_t)a->N, K = (size_t)a->K;
    *batch = (pb_gemm_batch){.n = a->G, .a = N, .b = K, .c = N * K};
    return (pb_gemm){.M = a->N,
                     .N = a->K,
                     .K = a->T,
                     .a = {.p = a->dy, .ld = G * N, .dtype = a->dtype, .trans = true},
                     .b = {.p = a->x, .ld = G * K, .dtype = a->dtype},
                     .c = a->dw,
                     .ldc = K,
                     .c_dtype = PB_F32,
                     .alpha = 1,
                     .accumulate = a->accumulate};
}
#endif
