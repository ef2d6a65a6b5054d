/* newton_schulz.h - replaces matrices by an approximation of their orthogonal polar factor: U S V^T becomes about U
 * V^T.
 *
 *     X_0 = X / (s ||X||_F + eps)                                  the norm is computed in double
 *     A = X_k X_k^T     B = b A + c A^2     X_{k+1} = a X_k + B X_k        k = 0 .. steps-1, R <= C
 *     A = X_k^T X_k     B = b A + c A^2     X_{k+1} = a X_k + X_k B        R > C
 *
 * with the factors a, b, c of step k; steps beyond the fifth repeat the fifth. Each step maps the singular values by
 * p(x) = a x + b x^3 + c x^5 and keeps the singular vectors. Variants:
 *
 *     quintic         s = 1. Factors by You Jiacheng, as Muon and dion use them (arXiv:2502.16982 has the iteration)
 *     polar_express   s = 1.02. Amsel, Persson, Musco, Gower 2025, arXiv:2505.16932, for five steps, with the safety
 *                     factor 1.02
 *     gram            s = 1. The factors of arXiv:2505.16932 without safety factor, divided by 1.05, 1.05^3 and 1.05^5.
 *                     If R != C, it iterates on the smaller Gram matrix: with G = X X^T and P = I, each step does
 *                     Z = b G + c G^2, P = P (Z + a I), G = (Z + a I) G (Z + a I), and X = P X at the end.
 *                     Before the third step it restarts: X = P X, G = X X^T, P = I, because rounding makes some
 *                     eigenvalues of G negative, which the polynomial amplifies. Dao-AILab/gram-newton-schulz computes
 *                     so in fp16; here X has `dtype`, while G, P and Z are f32.
 *
 * After five steps in f32 a singular value that was at least 0.01 ||X||_F is in [PB_NS_LEAST, PB_NS_MOST]; smaller ones
 * are below PB_NS_MOST. In bf16 they are within PB_NS_BF16 of this range. A zero matrix stays zero. If X has an element
 * that is not finite, Y has at least one.
 *
 * With dtype bf16, X_k, A and B are rounded to bf16 when they are stored, and P before it multiplies X. Products are
 * summed in f32, and so is a X_k + B X_k. Rounding B changes the largest singular values by up to 5 %, because the
 * terms of p(x) nearly cancel; the reference rounds at the same points. For the same reason a X_k must not be rounded
 * before B X_k is added. EINVAL: n < 0, R < 1, C < 1, steps outside 1 to PB_NS_STEPS, eps < 0, or NULL. */
#ifndef PB_NEWTON_SCHULZ_H
#define PB_NEWTON_SCHULZ_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Each entry: X(enumerator, word on the command line, meaning). */
#define PB_NS_MAP(X)                                                                                                   \
    X(QUINTIC, "quintic", "the factors of Muon")                                                                       \
    X(POLAR_EXPRESS, "polar_express", "factors that are optimal for five steps")                                       \
    X(GRAM, "gram", "like polar_express, on the Gram matrix where a matrix is not square")
typedef enum pb_ns_variant {
#define X(id, word, what) PB_NS_##id,
    PB_NS_MAP(X)
#undef X
        PB_NNS
} pb_ns_variant;
enum { PB_NS_STEPS = 10 };
#define PB_NS_LEAST 0.84
#define PB_NS_MOST  1.15
#define PB_NS_BF16  0.10

typedef struct pb_newton_schulz_run_args {
    const void *x; /* [n,R,C] dtype */
    void *y;       /* [n,R,C] dtype, out; may be x */
    int n, R, C;
    pb_ns_variant variant;
    int steps; /* 5 in all sources */
    float eps; /* 1e-7 in most sources, 1e-8 in dion's optimizers */
    pb_dtype dtype;
} pb_newton_schulz_run_args;

PB_DECLARE_OP(newton_schulz, run)

#ifdef __cplusplus
}
#endif
#endif
