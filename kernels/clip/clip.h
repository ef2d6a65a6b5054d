/* clip.h - gradient clipping by the L2 norm, without a host sync.
 *
 *     norm = sqrt(sum over all buffers of x^2)/L      scale = min(1, max_norm/norm)/L      x *= scale
 *
 * Pascanu et al. 2013, arXiv:1211.5063, algorithm 1. L is the loss scale that the gradients contain. It is read from
 * device memory, and dividing by it needs no pass of its own. If L is a power of two, it changes no bit of the
 * result, except by overflow.
 *
 * There are three phases, each an op. Clipping n buffers with them takes n + 1 + n launches:
 *     sqsum    writes the partial sums of one buffer to its slots in an array shared by all buffers
 *     reduce   turns all slots into a pb_clip_state
 *     scale    multiplies one buffer by state->scale; writes nothing if scale is 1
 * `multi` does all three phases for any number of buffers in one call.
 *
 * All numbers are f32, except that buffers of `multi` may be bf16; those are squared and scaled in f32. Slots are
 * summed in a fixed order. A norm of 0 gives scale 1. A norm that is NaN or Inf gives scale 1 and skip 1: the buffers
 * stay unchanged, and adamw_step changes no weights or moments. Unlike PyTorch, nothing
 * is added to the norm in the denominator (PyTorch adds 1e-6), so a clipped norm equals max_norm. */
#ifndef PB_CLIP_H
#define PB_CLIP_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_clip_state {
    float scale; /* factor for the gradients; includes 1/L */
    float norm;  /* L2 norm before clipping, divided by L */
    float skip;  /* 1: the norm is not finite, so the step must be skipped; else 0 */
    float unused;
} pb_clip_state;

/* Returns the number of slots (partial sums) of a buffer of n elements: min(256, ceil(n/1024)); 0 if it is empty. */
static inline int pb_clip_slots(size_t n)
{
    size_t s = (n + 1023) / 1024;
    return (int)(s < 256 ? s : 256);
}

/* Returns the elements per slot, whole cache lines and never 0: slot i sums elements min(n, i*run) to min(n,
 * (i+1)*run). */
static inline size_t pb_clip_run(size_t n)
{
    size_t slots = pb_clip_slots(n), run = slots ? (n + slots - 1) / slots : 1;
    return (run + 63) / 64 * 64;
}

typedef struct pb_clip_sqsum_args {
    const float *x; /* [n] */
    float *partial; /* [pb_clip_sqsum_slots], out; every slot is written */
    size_t n;       /* >= 1: callers skip empty buffers */
    /* Elements per slot; 0: pb_clip_run(n). A part of a larger buffer of N elements that begins at a multiple of
     * pb_clip_run(N) gets the bits of the whole buffer's slots with run = pb_clip_run(N). A multiple of 64. */
    size_t run;
} pb_clip_sqsum_args;

/* The number of slots that sqsum writes. */
static inline int pb_clip_sqsum_slots(const pb_clip_sqsum_args *a)
{
    return a->run ? (int)((a->n + a->run - 1) / a->run) : pb_clip_slots(a->n);
}

typedef struct pb_clip_reduce_args {
    const float *partial;    /* [slots] */
    const float *loss_scale; /* [1], or NULL: 1 */
    pb_clip_state *state;    /* [1], out */
    int slots;               /* >= 0; 0 gives norm 0 */
    float max_norm;          /* > 0; +Inf: only compute the norm */
} pb_clip_reduce_args;

typedef struct pb_clip_scale_args {
    float *x;                   /* [n], read and written */
    const pb_clip_state *state; /* [1] */
    size_t n;
} pb_clip_scale_args;

typedef struct pb_clip_entry {
    void *x;            /* [n] in device memory */
    size_t n : 56;      /* may be 0 */
    pb_dtype dtype : 8; /* f32 or bf16 */
} pb_clip_entry;

/* n: below 2^56. */
static inline pb_clip_entry pb_clip_buffer(void *x, size_t n, pb_dtype dtype)
{
    pb_clip_entry e = {.x = x, .dtype = dtype};
    e.n = n & (((size_t)1 << 56) - 1);
    return e;
}

typedef struct pb_clip_multi_args {
    const pb_clip_entry *list; /* [n] in device memory */
    pb_clip_state *state;      /* [1], out */
    float *partial;            /* [slots], out: the slots of all buffers, in the order of the list */
    const float *loss_scale;   /* [1], or NULL: 1 */
    size_t elements;           /* elements of all buffers; used for the op's cost only */
    size_t bf16_elements;      /* those of them in bf16; used for the op's cost only */
    int n, slots;              /* slots: sum of pb_clip_slots over the list */
    float max_norm;            /* > 0; +Inf: only compute the norm */
    bool apply;                /* true: scale the buffers; false: adamw_step scales, with *state */
} pb_clip_multi_args;

PB_DECLARE_OP(clip, sqsum)
PB_DECLARE_OP(clip, reduce)
PB_DECLARE_OP(clip, scale)
PB_DECLARE_OP(clip, multi)

#ifdef __cplusplus
}
#endif
#endif
