/* factors.h - the factors of the Newton-Schulz iteration, for all implementations. */
#ifndef PB_NS_FACTORS_H
#define PB_NS_FACTORS_H
#include "kernels/newton_schulz/newton_schulz.h"

typedef struct pb_ns_factors {
    double a, b, c;
} pb_ns_factors;

enum { PB_NS_RESTART = 2 }; /* the step before which the variant gram restarts */

/* Returns the factors of step k >= 0. */
static inline pb_ns_factors pb_ns_factors_of(pb_ns_variant variant, int k)
{
    static const pb_ns_factors quintic[5] = {{4.0848, -6.8946, 2.9270},
                                             {3.9505, -6.3029, 2.6377},
                                             {3.7418, -5.5913, 2.3037},
                                             {2.8769, -3.1427, 1.2046},
                                             {2.8366, -3.0525, 1.2012}};
    static const pb_ns_factors polar[5] = {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                                           {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                                           {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                                           {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                                           {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
    static const pb_ns_factors bare[5] = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                          {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                          {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                          {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                          {2.300652019954817, -1.6689039845747493, 0.4188073119525673}};
    const double safety = 1.05, cube = safety * safety * safety;
    const int i = k < 5 ? k : 4;
    if (variant == PB_NS_QUINTIC) return quintic[i];
    if (variant == PB_NS_POLAR_EXPRESS) return polar[i];
    pb_ns_factors f = bare[i];
    f.a /= safety;
    f.b /= cube;
    f.c /= cube * safety * safety;
    return f;
}

static inline double pb_ns_norm_factor(pb_ns_variant v) { return v == PB_NS_POLAR_EXPRESS ? 1.02 : 1; }

/* True if the variant works on the Gram matrix for this shape. */
static inline bool pb_ns_on_gram(const pb_newton_schulz_run_args *a)
{
    return a->variant == PB_NS_GRAM && a->R != a->C;
}

/* The number of rows of the Gram matrix, and the number of terms of its sums. */
static inline int pb_ns_small(const pb_newton_schulz_run_args *a) { return a->R < a->C ? a->R : a->C; }
static inline int pb_ns_large(const pb_newton_schulz_run_args *a) { return a->R < a->C ? a->C : a->R; }
#endif
