/* gradient.h - adds the gradient of a micro-batch to the sum of those before it, one rounding per element.
 *
 *     y[i] = x[i]             add false: the first micro-batch
 *     y[i] = y[i] + x[i]      add true
 *
 * Every implementation gives the same bits: sums of micro-batches must not depend on what computed them
 * (trainer/step/gradients.h). x and y do not overlap. EINVAL: a NULL tensor, unless n is 0. */
#ifndef PB_GRADIENT_H
#define PB_GRADIENT_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_gradient_add_args {
    const float *x; /* [n] */
    float *y;       /* [n], out; with `add` read and written */
    size_t n;
    bool add;
} pb_gradient_add_args;

PB_DECLARE_OP(gradient, add)

#ifdef __cplusplus
}
#endif
#endif
