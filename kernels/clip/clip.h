/* clip.h - gradient clipping by the L2 norm, with no number ever read by the host.
 *
 *     norm = sqrt(sum over all buffers of x^2)/L      scale = min(1, max_norm/norm)/L      x *= scale
 *
 * Pascanu et al. 2013, arXiv:1211.5063, algorithm 1. Three phases, each its own op so that a layer's
 * buffers cost n + 1 + n launches: `sqsum` writes one buffer's partial sums into its slots of a shared
 * array, `reduce` turns all slots into a pb_clip_state, `scale` multiplies one buffer by state->scale.
 * L is the loss scale, which the buffers still carry: it is read from device memory, and dividing by it costs no
 * pass of its own. A power of two changes no bit of what comes out, short of overflow.
 * `multi` does the three for any number of buffers in one call. Everything is f32; sums of slots are
 * taken in a fixed order. norm 0 gives scale 1; a norm that is NaN or Inf gives scale 1 and skip 1:
 * the buffers stay as they are, and adamw_step leaves weights and moments alone. scale == 1 writes
 * nothing. There is no 1e-6 in the denominator (PyTorch has one), so a clipped norm is max_norm. */
#ifndef PB_CLIP_H
#define PB_CLIP_H
#include "kernels/core/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_clip_state {
    float scale; /* what the gradients were multiplied by */
    float norm;  /* before clipping, without the loss scale */
    float skip;  /* 1: the norm is not finite, the step must not be taken */
    float unused;
} pb_clip_state;

/* Partial sums of a buffer of n elements: min(256, ceil(n/1024)), 0 for an empty buffer. */
static inline int pb_clip_slots(size_t n)
{
    size_t s = (n + 1023) / 1024;
    return (int)(s < 256 ? s : 256);
}

/* Slot i sums the elements from min(n, i*run) to min(n, (i+1)*run): a run is whole cache lines. */
static inline size_t pb_clip_run(size_t n)
{
    size_t slots = pb_clip_slots(n), run = slots ? (n + slots - 1) / slots : 0;
    return (run + 63) / 64 * 64;
}

typedef struct pb_clip_sqsum_args {
    const float *x; /* [n] */
    float *partial; /* [pb_clip_slots(n)], out; every slot is written */
    size_t n;       /* >= 1: callers skip empty buffers */
} pb_clip_sqsum_args;

typedef struct pb_clip_reduce_args {
    const float *partial;    /* [slots] */
    const float *loss_scale; /* [1], or NULL: 1 */
    pb_clip_state *state;    /* [1], out */
    int slots;               /* >= 0; 0: norm 0 */
    float max_norm;          /* > 0; +Inf: measure only */
} pb_clip_reduce_args;

typedef struct pb_clip_scale_args {
    float *x;                   /* [n], read and written */
    const pb_clip_state *state; /* [1] */
    size_t n;
} pb_clip_scale_args;

typedef struct pb_clip_entry {
    float *x; /* device pointer */
    size_t n; /* may be 0 */
} pb_clip_entry;

typedef struct pb_clip_multi_args {
    const pb_clip_entry *list; /* [n] in device memory */
    pb_clip_state *state;      /* [1], out */
    float *partial;            /* [slots], out: the slots of the list's buffers, one after the other */
    const float *loss_scale;   /* [1], or NULL: 1 */
    size_t elements;           /* in all buffers: what the cost is reckoned from, nothing else */
    int n, slots;              /* slots: the sum of pb_clip_slots over the list */
    float max_norm;            /* > 0 */
    bool apply;                /* scale the buffers; false: leave it to adamw_step, which reads state */
} pb_clip_multi_args;

PB_DECLARE_OP(clip, sqsum)
PB_DECLARE_OP(clip, reduce)
PB_DECLARE_OP(clip, scale)
PB_DECLARE_OP(clip, multi)

#ifdef __cplusplus
}
#endif
#endif
