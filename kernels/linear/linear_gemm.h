/* linear_gemm.h - describes the three products of a dense layer as pb_gemm, for the CPU and GPU implementations. */
#ifndef PB_LINEAR_GEMM_H
#define PB_LINEAR_GEMM_H
#include "kernels/cpu/gemm.h"
#include "kernels/linear/linear.h"

static inline pb_gemm pb_linear_fwd_gemm(const pb_linear_fwd_args *a)
{
    return (pb_gemm){.M = a->T,
                     .N = a->N,
                     .K = a->K,
                     .a = {.p = a->x, .ld = (size_t)a->K, .dtype = a->dtype},
                     .b = {.p = a->w, .ld = (size_t)a->K, .dtype = a->dtype, .trans = true},
                     .c = a->y,
                     .ldc = (size_t)a->N,
                     .c_dtype = a->dtype,
                     .alpha = 1,
                     .bias = a->bias};
}

static inline pb_gemm pb_linear_dx_gemm(const pb_linear_dx_args *a)
{
    return (pb_gemm){.M = a->T,
                     .N = a->K,
                     .K = a->N,
                     .a = {.p = a->dy, .ld = (size_t)a->N, .dtype = a->dtype},
                     .b = {.p = a->w, .ld = (size_t)a->K, .dtype = a->dtype},
                     .c = a->dx,
                     .ldc = (size_t)a->K,
                     .c_dtype = a->dtype,
                     .alpha = 1,
                     .accumulate = a->accumulate};
}

static inline pb_gemm pb_linear_dw_gemm(const pb_linear_dw_args *a)
{
    return (pb_gemm){.M = a->N,
                     .N = a->K,
                     .K = a->T,
                     .a = {.p = a->dy, .ld = (size_t)a->N, .dtype = a->dtype, .trans = true},
                     .b = {.p = a->x, .ld = (size_t)a->K, .dtype = a->dtype},
                     .c = a->dw,
                     .ldc = (size_t)a->K,
                     .c_dtype = a->dw_dtype,
                     .alpha = 1,
                     .accumulate = a->accumulate};
}
#endif
