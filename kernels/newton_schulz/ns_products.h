/* ns_products.h - the products of the Newton-Schulz iteration, for the CPU and GPU implementations. Each is of one
 * matrix of a batch. */
#ifndef PB_NS_PRODUCTS_H
#define PB_NS_PRODUCTS_H
#include "kernels/cpu/gemm.h"
#include "kernels/newton_schulz/factors.h"
#include "kernels/syrk/syrk.h"

/* Names of the small matrices [m,m]: A and B of the iteration on X; those of the iteration on the Gram matrix, where T
 * is a temporary, and P is in PB_NS_P or PB_NS_Q, in turn. */
enum { PB_NS_A, PB_NS_B, PB_NS_P = 1, PB_NS_G = 0, PB_NS_Z = 2, PB_NS_T, PB_NS_Q };

/* Takes `bytes` bytes of scratch memory, from a multiple of 64 on: returns their offset, and moves *at past them. */
static inline size_t pb_ns_place(size_t *at, size_t bytes)
{
    const size_t here = *at;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

/* A = X X^T or X^T X. */
static inline pb_syrk_product_args pb_ns_gram(const pb_newton_schulz_run_args *a, const void *x, void *c, pb_dtype type)
{
    return (pb_syrk_product_args){.x = x,
                                  .c = c,
                                  .n = 1,
                                  .M = pb_ns_small(a),
                                  .K = pb_ns_large(a),
                                  .alpha = 1,
                                  .trans = a->R > a->C,
                                  .dtype = a->dtype,
                                  .c_dtype = type};
}

/* B = b A + c A^2, of matrices of one type. */
static inline pb_syrk_product_args pb_ns_square(const pb_newton_schulz_run_args *a, pb_ns_factors f, const void *x,
                                                void *c, pb_dtype type)
{
    return (pb_syrk_product_args){.x = x,
                                  .add = x,
                                  .c = c,
                                  .n = 1,
                                  .M = pb_ns_small(a),
                                  .K = pb_ns_small(a),
                                  .alpha = (float)f.c,
                                  .beta = (float)f.b,
                                  .dtype = type,
                                  .c_dtype = type};
}

/* Y (+)= B X, or X B of a tall matrix; B is [m,m] of type `type`. */
static inline pb_gemm pb_ns_apply(const pb_newton_schulz_run_args *a, const void *b, pb_dtype type, const void *x,
                                  void *y, bool accumulate)
{
    const pb_mat small = {.p = b, .ld = (size_t)pb_ns_small(a), .dtype = type};
    const pb_mat large = {.p = x, .ld = (size_t)a->C, .dtype = a->dtype};
    const bool tall = a->R > a->C;
    return (pb_gemm){.M = a->R,
                     .N = a->C,
                     .K = pb_ns_small(a),
                     .a = tall ? large : small,
                     .b = tall ? small : large,
                     .c = y,
                     .ldc = (size_t)a->C,
                     .c_dtype = a->dtype,
                     .alpha = 1,
                     .accumulate = accumulate};
}

/* Y (+)= X1 X2, all [m,m] of f32. */
static inline pb_gemm pb_ns_times(const pb_newton_schulz_run_args *a, const float *x1, const float *x2, float *y,
                                  bool accumulate)
{
    const int m = pb_ns_small(a);
    return (pb_gemm){.M = m,
                     .N = m,
                     .K = m,
                     .a = {.p = x1, .ld = (size_t)m, .dtype = PB_F32},
                     .b = {.p = x2, .ld = (size_t)m, .dtype = PB_F32},
                     .c = y,
                     .ldc = (size_t)m,
                     .c_dtype = PB_F32,
                     .alpha = 1,
                     .accumulate = accumulate};
}
#endif
