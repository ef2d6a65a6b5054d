/* syrk.h - the product of a matrix and its own transpose, for a batch of matrices.
 *
 *     C_b = alpha X_b X_b^T + beta A_b             trans:  C_b = alpha X_b^T X_b + beta A_b
 *
 * BLAS's SYRK (Dongarra et al. 1990, "A set of level 3 basic linear algebra subprograms"), but with both triangles
 * stored and a symmetric A_b that may be another matrix than C_b. Of the products only the triangle on and below the
 * diagonal is computed, in whole tiles; the other one is its mirror image, so that C_b is exactly symmetric. The square
 * of a symmetric matrix is such a product, too.
 *
 * Products are summed in f32 or better; A is added to the sum in f32, and C is rounded once. EINVAL: n < 0, M < 0,
 * K < 0, a NULL pointer, or a factor that is not finite. */
#ifndef PB_SYRK_H
#define PB_SYRK_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_syrk_product_args {
    const void *x;   /* [n,M,K] dtype; trans: [n,K,M] */
    const void *add; /* [n,M,M] c_dtype, symmetric; only its triangle on and below the diagonal is read; NULL: zeros */
    void *c;         /* [n,M,M] c_dtype, out; overlaps no input */
    int n, M, K;
    float alpha, beta;
    bool trans;
    pb_dtype dtype, c_dtype; /* f32 or bf16 */
} pb_syrk_product_args;

PB_DECLARE_OP(syrk, product)

#ifdef __cplusplus
}
#endif
#endif
