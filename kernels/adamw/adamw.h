/* adamw.h - one AdamW step over all trainable tensors in one call.
 *
 *     g = s grad     m = b1 m + (1-b1) g     v = b2 v + (1-b2) g^2
 *     p = p - lr (wd p + (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps))
 *
 * Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2, as torch.optim.AdamW computes it: eps is outside the root,
 * and weight decay is decoupled.
 *
 * The gradient scale s of a tensor without a clip state is 1/loss_scale. With a clip state it is the state's scale if
 * `scale_gradients`, else 1; the clip state already includes the loss scale.
 *
 * The step number t, lr and loss_scale are in device memory, so that a recorded graph follows the schedule. The call
 * increments state->step. If a clip state has `skip` set, the loss is not finite, or *guard is not 0, it only increments
 * state->skipped, and for the guard alone also state->guarded.
 *
 * Moments and master weights are f32. With dtype bf16, p is the f32 master and w receives p rounded to bf16. With dtype
 * f32, master may be NULL, and p is then w. */
#ifndef PB_ADAMW_H
#define PB_ADAMW_H
#include "kernels/engine/op.h"
#include "kernels/clip/clip.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_adamw_entry {
    void *w;           /* [n] dtype, read and written */
    float *master;     /* [n] f32 master weights; NULL, with dtype f32 only: p is w */
    const float *grad; /* [n] */
    float *m, *v;      /* [n] */
    size_t n;
    pb_dtype dtype;
    int clip;    /* index of the tensor's pb_clip_state; -1: the gradient is only divided by the loss scale */
    float decay; /* weight decay wd of this tensor: 0 for norms and biases */
} pb_adamw_entry;

typedef struct pb_adamw_state {
    float lr;
    int32_t step;    /* completed steps */
    int32_t skipped; /* steps skipped because a norm or the loss was not finite, or because of the guard */
    int32_t guarded; /* those of them that only the guard skipped */
} pb_adamw_state;

typedef struct pb_adamw_step_args {
    const pb_adamw_entry *list; /* [n] in device memory */
    const pb_clip_state *clip;  /* [nclip], or NULL */
    pb_adamw_state *state;      /* [1], read and written */
    const float *loss_scale;    /* [1], or NULL: 1 */
    const float *loss;          /* [1]; the step is skipped if it is not finite; NULL: not checked */
    const float *guard;         /* [1]; the step is skipped if it is not 0 (NaN guard of normuon.h); NULL: 0 */
    size_t elements;            /* elements of all entries; used for the op's cost only */
    int n, nclip;
    bool scale_gradients; /* true: multiply gradients by clip[].scale here; false: they were scaled in place */
    float beta1, beta2, eps;
} pb_adamw_step_args;

PB_DECLARE_OP(adamw, step)

#ifdef __cplusplus
}
#endif
#endif
