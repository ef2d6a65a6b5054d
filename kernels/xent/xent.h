/* xent.h - cross-entropy over the vocabulary with a loss mask, and its gradient, optionally in place.
 *
 *     nll[t] = log sum_v exp(logits[t,v]) - logits[t,target[t]]
 *     loss = inv_count * sum over t of mask[t] nll[t]
 *     dlogits[t,v] = loss_scale mask[t] inv_count (softmax(logits[t])[v] - [v == target[t]])
 *
 * The maximum is subtracted before exp, in f32 or better. A token with mask 0 has nll 0 and a zero gradient; its logits
 * and target are not read, so they may be NaN or -1. If a token with another mask has a target outside [0,V), its nll,
 * its row of the gradient and the loss are NaN.
 *
 * inv_count and loss_scale are in device memory, so that a recorded graph follows the number of loss tokens and the
 * scale. inv_count 0 for an empty mask gives loss 0. The caller shifts targets against inputs by one position. */
#ifndef PB_XENT_H
#define PB_XENT_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_xent_fwd_args {
    const void *logits;     /* [T,V] dtype */
    const int32_t *target;  /* [T] */
    const float *mask;      /* [T] weights, usually 0 or 1 */
    const float *inv_count; /* [1] */
    float *nll;             /* [T], out */
    float *loss;            /* [1], out; summed in a fixed order */
    int T, V;
    pb_dtype dtype;
} pb_xent_fwd_args;

typedef struct pb_xent_bwd_args {
    const void *logits; /* inputs as in the forward pass; this call computes the loss and the gradient */
    const int32_t *target;
    const float *mask;
    const float *inv_count;
    void *dlogits;           /* [T,V] dtype, out; may be logits */
    float *nll;              /* [T], out */
    float *loss;             /* [1], out; without loss_scale */
    const float *loss_scale; /* [1], or NULL: 1 */
    float *total;            /* [1], out: loss, or with `add` total + loss in f32; NULL: not written */
    bool add;
    int T, V;
    pb_dtype dtype;
} pb_xent_bwd_args;

PB_DECLARE_OP(xent, fwd)
PB_DECLARE_OP(xent, bwd)

#ifdef __cplusplus
}
#endif
#endif
