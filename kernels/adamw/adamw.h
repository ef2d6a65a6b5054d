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
 * increments state->step. If a clip state has `skip` set, the loss is not finite, or *guard is not 0, it only
 * increments state->skipped, and for the guard alone also state->guarded.
 *
 * Master weights are f32. With dtype bf16, p is the f32 master and w receives p rounded to bf16. With dtype
 * f32, master may be NULL, and p is then w.
 *
 * Moments are stored in the entry's format, and computed in f32; p is updated with the moments before they are rounded
 * to the format.
 *     f32   as they are.
 *     bf16  rounded stochastically: up with a probability equal to the fraction that is cut off, by a hash of the step
 *           and of the element's index (moments.h). Rounded to the nearest, v would stop changing: with b2 = 0.999 a step changes v by at
 *           most v/1000 when gradients shrink, and half the distance of two bf16 numbers is v/512 to v/256. Rounded
 *           stochastically, moments have the mean that they have in f32.
 *     8bit  bitsandbytes' block-wise dynamic quantisation: Dettmers et al. 2022, arXiv:2110.02861, as the kernel
 *           kOptimizerStatic8bit2StateBlockwise of bitsandbytes' csrc/kernels.cu computes it. A block is 256 consecutive
 *           elements; absmax is the largest magnitude of a block, in f32; code c means map[c] absmax. The map of m is
 *           create_dynamic_map(signed=True), that of v create_dynamic_map(signed=False) (pb_adamw_maps). bitsandbytes
 *           applies weight decay after the update, here it is before it, which differs by lr^2 wd times the step. With
 *           all bits 0 the moments are 0. */
#ifndef PB_ADAMW_H
#define PB_ADAMW_H
#include "kernels/engine/op.h"
#include "kernels/clip/clip.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The formats of moments. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_ADAMW_FORMAT_MAP(X)                                                                                         \
    X(F32, "f32", "f32")                                                                                               \
    X(BF16, "bf16", "bf16, rounded stochastically")                                                                    \
    X(8BIT, "8bit", "8 bits in blocks of 256, as bitsandbytes stores them")
typedef enum pb_adamw_format {
#define X(id, word, what) PB_ADAMW_##id,
    PB_ADAMW_FORMAT_MAP(X)
#undef X
        PB_NADAMW_FORMATS
} pb_adamw_format;
enum {
    PB_ADAMW_BLOCK = 256,      /* elements per absmax of 8-bit moments */
    PB_ADAMW_8BIT_LEAST = 4096 /* elements of the smallest tensor with them: bitsandbytes' min_8bit_size */
};

/* Bytes of n moments. In 8 bits: n codes, padding to a multiple of 4 bytes, and the f32 absmax of each block
 * (pb_adamw_absmax in moments.h). */
static inline size_t pb_adamw_moment_bytes(pb_adamw_format f, size_t n)
{
    const size_t blocks = (n + PB_ADAMW_BLOCK - 1) / PB_ADAMW_BLOCK;
    return f == PB_ADAMW_F32 ? 4 * n : f == PB_ADAMW_BF16 ? 2 * n : (n + 3) / 4 * 4 + 4 * blocks;
}

typedef struct pb_adamw_entry {
    void *w;          /* [n] dtype, read and written */
    float *master;    /* [n] f32 master weights; NULL, with dtype f32 only: p is w */
    const void *grad; /* [n] grad_dtype */
    void *m, *v;      /* n moments in `format`, pb_adamw_moment_bytes; 4-byte aligned */
    size_t n;
    uint32_t first; /* bf16: index of element 0 in the random bits; elements of all entries should differ in it */
    int clip;       /* index of the tensor's pb_clip_state; -1: the gradient is only divided by the loss scale */
    float decay;    /* weight decay wd of this tensor: 0 for norms and biases */
    pb_dtype dtype : 8;
    pb_dtype grad_dtype : 8; /* f32 or bf16 */
    pb_adamw_format format : 8;
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
    const float *maps;          /* [2][256] pb_adamw_maps; NULL: no entry has the format 8bit */
    size_t elements;            /* elements of all entries; used for the op's cost only */
    size_t bf16_elements;       /* those of them whose gradients are in bf16; used for the op's cost only */
    int n, nclip;
    bool scale_gradients; /* true: multiply gradients by clip[].scale here; false: they were scaled in place */
    bool narrow;          /* false: all entries have the format f32 */
    float beta1, beta2, eps;
} pb_adamw_step_args;

/* Computes the maps of 8-bit moments: maps[0] of m, maps[1] of v. Both ascend. Host memory. */
void pb_adamw_maps(float maps[2][256]);

PB_DECLARE_OP(adamw, step)

#ifdef __cplusplus
}
#endif
#endif
