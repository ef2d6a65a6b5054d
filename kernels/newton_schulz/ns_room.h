/* ns_room.h - the scratch memory of the CPU implementation, which works on one matrix after the other. */
#ifndef PB_NS_ROOM_H
#define PB_NS_ROOM_H
#include "kernels/newton_schulz/factors.h"
#include "kernels/syrk/syrk_gemm.h"

/* Byte offsets: x, the two matrices X_k in turn; sum [R] doubles; small, matrices [m,m] of f32 (gram) or dtype; room of
 * the products from `products` on. */
typedef struct pb_ns_room {
    size_t x[2], sum, small[5], products, bytes;
} pb_ns_room;
enum { PB_NS_A, PB_NS_B, PB_NS_P = 1, PB_NS_G = 0, PB_NS_Z = 2, PB_NS_T, PB_NS_Q };

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

static inline pb_ns_room pb_ns_room_of(const pb_newton_schulz_run_args *a)
{
    pb_ns_room r = {0};
    const bool gram = pb_ns_on_gram(a);
    const pb_dtype type = gram ? PB_F32 : a->dtype;
    const size_t m = (size_t)pb_ns_small(a), all = (size_t)a->R * (size_t)a->C * pb_dtype_size(a->dtype);
    size_t most = 0;
    for (int i = 0; i < 2; i++) r.x[i] = pb_ns_place(&r.bytes, all);
    r.sum = pb_ns_place(&r.bytes, (size_t)a->R * sizeof(double));
    for (int i = 0; i < (gram ? 5 : 2); i++) r.small[i] = pb_ns_place(&r.bytes, m * m * pb_dtype_size(type));
    r.products = r.bytes;
    const pb_syrk_product_args g = pb_ns_gram(a, NULL, NULL, type);
    const pb_syrk_product_args s = pb_ns_square(a, pb_ns_factors_of(a->variant, 0), NULL, NULL, type);
    const pb_gemm y = pb_ns_apply(a, NULL, type, NULL, NULL, true), t = pb_ns_times(a, NULL, NULL, NULL, true);
    const size_t need[] = {pb_syrk_workspace(&g), pb_syrk_workspace(&s), pb_gemm_workspace(&y),
                           gram ? pb_gemm_workspace(&t) : 0};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (need[i] > most) most = need[i];
    r.bytes += most;
    return r;
}
#endif
