/* adamw.h - one optimiser step over every trainable tensor in one call.
 *
 *     g = s grad     m = b1 m + (1-b1) g     v = b2 v + (1-b2) g^2
 *     p = p - lr (wd p + (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps))
 *
 * Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2, as torch.optim.AdamW computes it (eps
 * outside the root, decay decoupled). s is the entry's clip scale when `scale_gradients`, else 1; of an entry without
 * a clip state it is 1/loss_scale, which every clip state's scale holds already. The
 * step number t, lr and loss_scale live in device memory, so that a recorded graph follows the schedule: the call
 * advances state->step itself, and when any of the clip states says skip, or the loss is not finite,
 * it changes nothing but state->skipped. Moments and master weights are f32; with dtype bf16 a tensor's p is its f32
 * master, and w receives it rounded; with f32, master is NULL and p is w. */
#ifndef PB_ADAMW_H
#define PB_ADAMW_H
#include "kernels/core/op.h"
#include "kernels/clip/clip.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_adamw_entry {
    void *w;           /* [n] dtype, read and written */
    float *master;     /* [n] f32, or NULL when dtype is f32 */
    const float *grad; /* [n] */
    float *m, *v;      /* [n] */
    size_t n;
    pb_dtype dtype;
    int clip;    /* index of its pb_clip_state, or -1: not scaled */
    float decay; /* wd of this tensor: 0 for norms and biases */
} pb_adamw_entry;

typedef struct pb_adamw_state {
    float lr;
    int32_t step;    /* completed steps */
    int32_t skipped; /* steps not taken because a norm or the loss was not finite */
    int32_t unused;
} pb_adamw_state;

typedef struct pb_adamw_step_args {
    const pb_adamw_entry *list; /* [n] in device memory */
    const pb_clip_state *clip;  /* [nclip], or NULL */
    pb_adamw_state *state;      /* [1], read and written */
    const float *loss_scale;    /* [1], or NULL: 1 */
    const float *loss;          /* [1], or NULL: a loss that is not finite skips the step, as a clip state does */
    size_t elements;            /* in all entries: what the cost is reckoned from, nothing else */
    int n, nclip;
    bool scale_gradients; /* gradients were not scaled in place: multiply by clip[].scale here */
    float beta1, beta2, eps;
} pb_adamw_step_args;

PB_DECLARE_OP(adamw, step)

#ifdef __cplusplus
}
#endif
#endif
