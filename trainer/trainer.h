/* trainer.h - one training step of a model, phase by phase.
 *
 * A trainer owns the model, the activations of batches up to [B,S] and the optimiser's state. A batch may have shorter
 * rows, and then every phase works on those. Each
 * phase is a pb_fn on it that only enqueues, so that `bench` can time or record any of them; the host
 * learns results only through the functions below that say they wait. The backward pass leaves the
 * activations as they are: it can be repeated, and gives the same gradients. With model.frozen there are only forward
 * and loss, and all layers share one set of activations. */
#ifndef PB_TRAINER_H
#define PB_TRAINER_H
#include "kernels/adamw/adamw.h"
#include "kernels/clip/clip.h"
#include "trainer/model.h"

/* X(enumerator, option's word, meaning) */
#define PB_CLIP_MAP(X)                                                                                                 \
    X(NONE, "none", "no clipping")                                                                                     \
    X(SYNC, "sync", "per layer, joint norm; the host reads every buffer's sum: one wait a buffer")                     \
    X(FUSED, "fused", "per layer, joint norm; n sums, 1 reduction, n scales, no wait")                                 \
    X(MULTI, "multi", "one call for the whole model, global norm, no wait; AdamW applies the scale")
typedef enum pb_clip_arm {
#define X(id, word, what) PB_CLIP_##id,
    PB_CLIP_MAP(X)
#undef X
        PB_NCLIPS
} pb_clip_arm;

/* What queries attend to, in families with compressed rows. X(enumerator, option's word, meaning) */
#define PB_ATTENTION_MAP(X)                                                                                            \
    X(AUTO, "auto", "sparse in models with an indexer, else dense")                                                    \
    X(DENSE, "dense", "everything visible: of V4 the window and all compressed rows")                                  \
    X(SPARSE, "sparse", "of the compressed rows those that the layer's indexer picks")
typedef enum pb_attention_arm {
#define X(id, word, what) PB_ATTENTION_##id,
    PB_ATTENTION_MAP(X)
#undef X
        PB_NATTENTIONS
} pb_attention_arm;

/* FP8 in the forward pass of V4's keys and values, and the scale of its blocks. X(enumerator, option's word, meaning)
 */
#define PB_KV_QAT_MAP(X)                                                                                               \
    X(NONE, "none", "as they are")                                                                                     \
    X(UE8M0, "ue8m0", "through e4m3 and back, scales that are powers of two")                                          \
    X(F32, "f32", "through e4m3 and back, scales in f32")
typedef enum pb_kv_qat_arm {
#define X(id, word, what) PB_KV_QAT_##id,
    PB_KV_QAT_MAP(X)
#undef X
        PB_NKVQATS
} pb_kv_qat_arm;

typedef struct pb_train_config {
    pb_model_config model;
    int B, S;    /* sequences of a batch, and tokens of the longest ones */
    bool packed; /* batches say where each token's sample begins; all of them or none, as graphs replay either */
    pb_attention_arm attention;
    pb_kv_qat_arm kv_qat;
    pb_clip_arm clip;
    float max_norm; /* > 0 */
    float lr, beta1, beta2, eps, weight_decay;
    float loss_scale; /* > 0; see pb_trainer_set_loss_scale */
} pb_train_config;

/* Sensible values for everything but the geometry: LoRA r16 alpha 32 on q and v, f32, B1 S128, fused clip
 * at 1.0, AdamW 1e-4 (.9, .999, 1e-8), decay 0.01, loss scale 1, seed 42. */
pb_train_config pb_train_defaults(const pb_geometry *g);

/* Host memory; borrowed for the call. S below is the batch's own. */
typedef struct pb_batch {
    const int32_t *ids;     /* [B,S] */
    const int32_t *targets; /* [B,S] the token that follows; any value where mask is 0 */
    const float *mask;      /* [B,S] 1 where the loss counts */
    double count;           /* what the loss is divided by; 0: the sum of the mask (a batch by itself), else
                               that of all micro-batches whose gradients are accumulated */
    const int32_t *start;   /* [B,S] first token of the row that each may attend to, 0 <= start[b,s] <= s */
    const int32_t *pos;     /* [B,S] position in its sample, 0 <= pos < S; both with packed, else both NULL */
    int S;                  /* 1 to the trainer's; 0: the trainer's */
} pb_batch;

typedef struct pb_trainer pb_trainer;

/* Phases: pb_phase_forward, pb_phase_loss, ... in the order of phases.def. `self` is the pb_trainer. */
enum {
#define PHASE(name, what) PB_PHASE_##name,
#include "trainer/phases.def"
#undef PHASE
    PB_NPHASES
};
#define PHASE(name, what) pb_status pb_phase_##name(pb_ctx *ctx, void *self);
#include "trainer/phases.def"
#undef PHASE
extern const pb_fn pb_phases[PB_NPHASES];
extern const char *const pb_phase_names[PB_NPHASES];
/* All phases in order: one whole step. A pb_fn. */
pb_status pb_train_step(pb_ctx *ctx, void *self);
/* Forward, loss and backward: what is repeated for every micro-batch of a step; clip and optimizer: what ends it. */
pb_status pb_train_micro(pb_ctx *ctx, void *self);
pb_status pb_train_finish(pb_ctx *ctx, void *self);
/* Backward, then clip: what the backward suite times and records. A pb_fn. */
pb_status pb_backward_and_clip(pb_ctx *ctx, void *self);

/* EINVAL: a configuration that cannot be, by its figures alone. */
pb_status pb_train_check(const pb_train_config *cfg);
/* EINVAL: as above; ENOMEM names what was asked for. */
pb_status pb_trainer_open(pb_ctx *ctx, const pb_train_config *cfg, pb_trainer **out);
void pb_trainer_close(pb_trainer *t);

/* Copies a batch into the trainer's fixed buffers, with 1/count; the phases that follow work on its shape. EINVAL: an
 * id outside the vocabulary, or a target outside it under the mask; start or pos out of range, or given without
 * `packed`; a sample that does not begin at a multiple of pb_sample_align; rows longer than the trainer's. An empty
 * mask is allowed: loss and gradients are 0. */
pb_status pb_trainer_set_batch(pb_trainer *t, const pb_batch *batch);
pb_status pb_trainer_set_lr(pb_trainer *t, float lr);
/* The loss's gradient is multiplied by it, and all gradients are divided by it where they are clipped and applied, so
 * that only what lies between is scaled. For all micro-batches of a step. EINVAL: it is not finite and above 0. */
pb_status pb_trainer_set_loss_scale(pb_trainer *t, float scale);
pb_status pb_trainer_set_clip(pb_trainer *t, pb_clip_arm clip, float max_norm); /* not while a graph of it is in use */
/* Adds the next backward passes' gradients to those that are there (gradient accumulation). */
void pb_trainer_accumulate(pb_trainer *t, bool on);
/* Makes the scratch memory that steps with rows of S tokens take, without running one: 1 <= S <= the trainer's. */
pb_status pb_trainer_reserve(pb_trainer *t, int S);

/* These wait for the device. */
/* The indexers' loss of the last backward phase, with its weight in it and divided as the loss is; 0 without one. */
pb_status pb_trainer_index_loss(pb_trainer *t, double *loss);
pb_status pb_trainer_loss(pb_trainer *t, double *mean); /* of the last loss phase, per masked token */
pb_status pb_trainer_nll(pb_trainer *t, float *nll);    /* [B*S] of the last batch, by token; 0 where the mask is */
pb_status pb_trainer_state(pb_trainer *t, pb_adamw_state *out);
/* Clip states of the last clip phase: [*n] groups, layers first. `out` holds pb_trainer_clip_groups. */
int pb_trainer_clip_groups(const pb_trainer *t);
pb_status pb_trainer_clip_states(pb_trainer *t, pb_clip_state *out);

const pb_train_config *pb_trainer_config(const pb_trainer *t);
pb_model *pb_trainer_model(pb_trainer *t);
const void *pb_trainer_logits(const pb_trainer *t); /* [B*S,V] dtype; after `loss` their gradient */

/* Device bytes by purpose, as allocated. */
typedef struct pb_memory {
    size_t weights, grads, moments, activations;
} pb_memory;
pb_memory pb_trainer_memory(const pb_trainer *t);
/* FLOPs of the matrix products and attention of one step with the longest rows: forward, and backward for what is
 * trained. */
typedef struct pb_flops {
    double forward, backward;
    double again; /* of backward: what was computed forward already, and is once more instead of being kept */
} pb_flops;
pb_flops pb_trainer_flops(const pb_trainer *t);
#endif
