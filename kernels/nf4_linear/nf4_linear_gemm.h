/* nf4_linear_gemm.h - describes the matrix products of the forward pass and of dx as pb_gemm, with workspace NULL: to
 * compute the size of the workspace and to run the products. */
#ifndef PB_NF4_LINEAR_GEMM_H
#define PB_NF4_LINEAR_GEMM_H
#include "kernels/cpu/gemm.h"
#include "kernels/nf4_linear/nf4_linear.h"

/* Describes the product y [T,N] = x [T,K] W^T; W is stored [N,K] */
static inline pb_gemm pb_nf4_linear_fwd_gemm(const pb_nf4_linear_fwd_args *a)
{
    return (pb_gemm){.M = a->T,
                     .N = a->N,
                     .K = a->K,
                     .a = {.p = a->x, .ld = (size_t)a->K, .dtype = a->dtype},
                     .b = {.p = a->q, .ld = (size_t)a->K, .trans = true, .nf4 = &a->scales},
                     .c = a->y,
                     .ldc = (size_t)a->N,
                     .c_dtype = a->dtype,
                     .alpha = 1,
                     .bias = a->bias};
}

/* Describes the product dx [T,K] = dy [T,N] W; the sum is over N */
static inline pb_gemm pb_nf4_linear_dx_gemm(const pb_nf4_linear_dx_args *a)
{
    return (pb_gemm){.M = a->T,
                     .N = a->K,
                     .K = a->N,
                     .a = {.p = a->dy, .ld = (size_t)a->N, .dtype = a->dtype},
                     .b = {.p = a->q, .ld = (size_t)a->K, .nf4 = &a->scales},
                     .c = a->dx,
                     .ldc = (size_t)a->K,
                     .c_dtype = a->dtype,
                     .alpha = 1,
                     .accumulate = a->accumulate};
}
#endif
