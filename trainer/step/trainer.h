/* trainer.h - one training step of a model, phase by phase.
 *
 * A trainer owns the model, the activations of batches up to [B,S], and the optimizer state. A batch may have shorter
 * rows; every phase then works on the shorter shape. Each phase is a pb_fn on the trainer that only enqueues work
 * (except clip in its variant sync), so that `bench` can time or capture any of them. Host code gets results only
 * through the functions below that are marked as host syncs. The backward pass does not modify the activations, so it
 * can be repeated and gives the same gradients; with loss_chunk it needs the loss phase before it each time. With
 * model.frozen only the phases forward and loss may run, and all layers share one set of activations. */
#ifndef PB_TRAINER_H
#define PB_TRAINER_H
#include "kernels/adamw/adamw.h"
#include "kernels/clip/clip.h"
#include "kernels/comm/comm.h"
#include "trainer/model/model.h"
#include "trainer/parallel/context.h"
#include "trainer/parallel/parallel.h"
#include "trainer/step/normuon_config.h"

/* The variants of gradient clipping. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_CLIP_MAP(X)                                                                                                 \
    X(NONE, "none", "no clipping")                                                                                     \
    X(SYNC, "sync", "one norm per layer; the host reads the sum of each buffer: one host sync per buffer")             \
    X(FUSED, "fused", "one norm per layer; n sums, 1 reduction, n scales; no host sync")                               \
    X(MULTI, "multi", "one norm of the whole model, in one call; AdamW applies the scale; no host sync")
typedef enum pb_clip_variant {
#define X(id, word, what) PB_CLIP_##id,
    PB_CLIP_MAP(X)
#undef X
        PB_NCLIPS
} pb_clip_variant;

/* The keys that queries attend to in models of the families DeepSeek-V4 and Doge. Each entry: X(enumerator, word on the
 * command line, meaning). */
#define PB_ATTENTION_MAP(X)                                                                                            \
    X(AUTO, "auto", "sparse in the families DeepSeek-V4 and Doge, else dense")                                         \
    X(DENSE, "dense", "attend to everything visible: in V4 the window and all compressed rows")                        \
    X(SPARSE, "sparse",                                                                                                \
      "V4: the window and the compressed rows that the layer's indexer selects; Doge: the keys with the largest "      \
      "biases among those before the query")                                                                           \
    X(UNION, "union",                                                                                                  \
      "Doge: selects the keys with the largest biases in the whole conversation; a query attends to those before it. " \
      "Unlike with sparse, later tokens change the selection")
typedef enum pb_attention_variant {
#define X(id, word, what) PB_ATTENTION_##id,
    PB_ATTENTION_MAP(X)
#undef X
        PB_NATTENTIONS
} pb_attention_variant;

/* Selects whether the forward pass rounds DeepSeek-V4's keys and values to FP8 and back, and the type of the block
 * scales. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_KV_QAT_MAP(X)                                                                                               \
    X(NONE, "none", "keys and values are not converted")                                                               \
    X(UE8M0, "ue8m0", "converted to e4m3 and back, with scales that are powers of two")                                \
    X(F32, "f32", "converted to e4m3 and back, with scales in f32")
typedef enum pb_kv_qat_variant {
#define X(id, word, what) PB_KV_QAT_##id,
    PB_KV_QAT_MAP(X)
#undef X
        PB_NKVQATS
} pb_kv_qat_variant;

/* The activations that the forward pass does not keep for the backward pass, which computes them again, layer by layer,
 * from what is kept. All layers share one set of the buffers of such activations. The results are the same, bit for
 * bit, wherever all implementations give the same bits in every run. Each entry: X(enumerator, word on the command
 * line, meaning). */
#define PB_RECOMPUTE_MAP(X)                                                                                            \
    X(NONE, "none", "all activations are kept")                                                                        \
    X(NORMS, "norms", "not the outputs of norms")                                                                      \
    X(ATTENTION, "attention", "not those from a layer's first norm to the input of its output projection")             \
    X(MLP, "mlp", "not those from a layer's second norm to the gate and up projections")                               \
    X(PRODUCTS, "products", "none of a layer but its input and what its attention computes from q, k and v")           \
    X(LAYER, "layer", "none of a layer but its input")
typedef enum pb_recompute {
#define X(id, word, what) PB_RECOMPUTE_##id,
    PB_RECOMPUTE_MAP(X)
#undef X
        PB_NRECOMPUTES
} pb_recompute;

typedef struct pb_train_config {
    pb_model_config model;
    /* B: rows of a batch; S: tokens of its longest row. In what pb_trainer_config returns, S counts this rank's tokens
     * of that row: with context parallelism, a part of them. */
    int B, S;
    /* If true, every batch has `start` and `pos` (several conversations per row); if false, no batch has them. Fixed
     * per trainer, because a captured graph contains one or the other. */
    bool packed;
    /* If true, the keys and values of all tokens of the row are kept (the KV cache), so that a text can
     * be computed in parts; see pb_batch.first. Needs a frozen model, B 1, and batches that are not packed. */
    bool cached;
    pb_attention_variant attention;
    pb_kv_qat_variant kv_qat;
    pb_recompute recompute; /* without effect on a frozen model, which keeps no activations */
    /* Also keeps the second norm's output n2 of each layer where the backward pass does not read it, so that
     * pb_trainer_tensors lists it: T D elements per layer. */
    bool keep_unread;
    /* Tokens whose logits are in memory at a time; 0: all. With it, the loss phase computes the logits and the
     * gradients of the head, chunk by chunk (trainer/step/loss.h). */
    int loss_chunk;
    /* Tokens whose MLP is in memory at a time, in the forward and the backward pass; 0: all. Needs activations of the
     * MLP that are computed again (recompute), or a frozen model (trainer/step/mlp.h). */
    int mlp_chunk;
    pb_clip_variant clip;
    float max_norm;                            /* limit of the gradients' L2 norm; > 0 */
    float lr, beta1, beta2, eps, weight_decay; /* of AdamW; norms and biases have no weight decay */
    pb_optimizer optimizer;
    pb_normuon_config normuon; /* read with PB_OPTIMIZER_NORMUON only */
    float loss_scale;          /* > 0; see pb_trainer_set_loss_scale */
    /* Data parallel training (trainer/step/gradients.h). comm: the ranks whose gradients are added, borrowed until
     * pb_trainer_close; NULL: one rank. All ranks have the same configuration. */
    pb_comm *comm;
    /* Context parallel training (trainer/parallel/context.h): the ranks that share the rows of each batch, borrowed
     * until pb_trainer_close; NULL: each rank has whole rows. They are ranks of comm, over which gradients are added.
     * Row lengths are multiples of pb_context_unit. Without `cached`. */
    pb_comm *context;
    pb_slicing slicing;
    pb_reduce reduce;
    /* With one rank: none. With sharded weights, all ranks run the phase forward together, also to evaluate. */
    pb_shard shard;
    size_t bucket_bytes; /* least size of a bucket of gradients; 0: PB_BUCKET_BYTES */
    int micro_batches;   /* of this rank in a step; 0: 1. Only read with `ordered` or sharded gradients */
    /* If true, the sum of a step's gradients does not depend on the number of ranks, bit for bit: the micro-batches are
     * added one by one, in the order of (micro-batch, rank). With several micro-batches per rank it needs a second
     * vector of gradients. Only with PB_REDUCE_F32. */
    bool ordered;
    bool time_forward; /* pb_trainer_forward_time may be called */
} pb_train_config;

/* Defaults for everything but the geometry: LoRA of rank 16 and alpha 32 on q and v, f32, B 1, S 128, fused clipping at
 * norm 1, AdamW with lr 1e-4, betas 0.9 and 0.999, eps 1e-8, weight decay 0.01, loss scale 1, seed 42. NorMuon, which
 * is not selected: Polar Express with 5 steps, mu and beta2 0.95, rate 1, factor spectral, guard off. */
pb_train_config pb_train_defaults(const pb_geometry *g);

/* One batch in host memory, borrowed during a call. In the shapes of its members, S is the row length of the batch.
 * With context parallelism, all ranks of a context pass the same whole rows, and each takes its tokens. */
typedef struct pb_batch {
    const int32_t *ids;     /* [B,S] */
    const int32_t *targets; /* [B,S] the next token; any value where mask is 0 */
    const float *mask;      /* [B,S] 1 at loss tokens, else 0 */
    /* Divisor of the loss. 0: the sum of this batch's mask. With gradient accumulation: the loss tokens of all
     * micro-batches of the step. */
    double count;
    const int32_t *start; /* [B,S] index in the row of the conversation's first token, 0 <= start[b,s] <= s */
    const int32_t *pos;   /* [B,S] position in the conversation, 0 <= pos < S; NULL like `start` unless `packed` */
    int S;                /* length of the whole row, at most that of the configuration; 0: equal to it */
    /* With `cached`: the number of tokens of the row that are in the KV cache and that this batch follows; at most
     * first + S of the batch before. Else 0. */
    int first;
} pb_batch;

typedef struct pb_trainer pb_trainer;

/* The phases: pb_phase_forward, pb_phase_loss, ... as listed in phases.def. `self` is the pb_trainer. */
enum {
#define PHASE(name, what) PB_PHASE_##name,
#include "trainer/step/phases.def"
#undef PHASE
    PB_NPHASES
};
#define PHASE(name, what) pb_status pb_phase_##name(pb_ctx *ctx, void *self);
#include "trainer/step/phases.def"
#undef PHASE
extern const pb_fn pb_phases[PB_NPHASES];
extern const char *const pb_phase_names[PB_NPHASES];
/* Runs phase number i inside a profiler range of its name. */
pb_status pb_run_phase(pb_ctx *ctx, pb_trainer *t, int i);
/* Runs one whole step: all phases in order. It is a pb_fn. */
pb_status pb_train_step(pb_ctx *ctx, void *self);
/* pb_train_micro: forward, loss and backward, for each micro-batch of a step. pb_train_finish: clip and optimizer, once
 * at the end of the step. Both are pb_fn. */
pb_status pb_train_micro(pb_ctx *ctx, void *self);
pb_status pb_train_finish(pb_ctx *ctx, void *self);
/* Runs the part of the optimizer phase that is NorMuon's: all matrices, without the tensors that AdamW trains. Does
 * nothing with AdamW alone. It is a pb_fn. */
pb_status pb_train_matrices(pb_ctx *ctx, void *self);
/* Runs the phases backward and clip, which is the work that the backward suite measures. It is a pb_fn. */
pb_status pb_backward_and_clip(pb_ctx *ctx, void *self);

/* Checks a configuration without allocating anything. EINVAL: invalid or unsupported values. */
pb_status pb_train_check(const pb_train_config *cfg);
/* Which tokens of a row rank `rank` has, if `ranks` ranks share it. The lengths of chunks are multiples of
 * pb_sample_align, so that no group of tokens that a model compresses lies in two chunks. */
pb_context pb_train_context(const pb_train_config *cfg, int ranks, int rank);
/* EINVAL: the model cannot divide rows as `slicing` says. */
pb_status pb_train_check_slicing(const pb_train_config *cfg);
/* Allocates a trainer and its model. EINVAL: see pb_train_check; ENOMEM: the message says how much memory was
 * requested. */
pb_status pb_trainer_open(pb_ctx *ctx, const pb_train_config *cfg, pb_trainer **out);
void pb_trainer_close(pb_trainer *t);

/* Copies a batch, and 1/count, into the trainer's device buffers; the following phases work on its shape. EINVAL: an id
 * outside the vocabulary; a target outside it where the mask is not 0; start or pos out of range, missing with `packed`
 * or given without it; a conversation that does not begin at a multiple of pb_sample_align; rows that, with the tokens
 * before them, are longer than the trainer's S; `first` out of range. An all-zero mask is allowed: loss and gradients
 * are then 0. */
pb_status pb_trainer_set_batch(pb_trainer *t, const pb_batch *batch);
/* Sets the learning rate of the next optimizer phase. EINVAL: below 0 or not finite. */
pb_status pb_trainer_set_lr(pb_trainer *t, float lr);
/* Sets the loss scale: the loss phase multiplies its gradient by `scale`, and the phases clip and optimizer divide the
 * gradients by it. All micro-batches of a step must use one value. EINVAL: not a finite number above 0. */
pb_status pb_trainer_set_loss_scale(pb_trainer *t, float scale);
pb_status pb_trainer_set_clip(pb_trainer *t, pb_clip_variant clip, float max_norm); /* invalidates captured graphs */
/* With `on`, the following backward passes add to the gradients in memory (gradient accumulation); without, they
 * overwrite them. */
void pb_trainer_accumulate(pb_trainer *t, bool on);
/* With `on`, the following loss phases compute the loss only, and no backward phase may follow them. Without, loss
 * phases with loss_chunk also compute the gradients of the head. */
void pb_trainer_evaluates(pb_trainer *t, bool on);
/* With several ranks: whether the following backward passes complete the gradients of a step, and therefore add them
 * over the ranks. True at first; false for all but the last of several micro-batches. */
void pb_trainer_reduce(pb_trainer *t, bool on);
/* With shard other than none: call it once, when weights have been loaded, before the first step. Keeps this rank's
 * slices of the master weights and frees the others. */
pb_status pb_trainer_shard(pb_trainer *t);
/* With shard other than none: gathers the f32 master weights of all ranks into the model, where pb_peft_save reads them
 * (on), or frees them. All ranks call it together. Otherwise it does nothing. */
pb_status pb_trainer_gather_masters(pb_trainer *t, bool on);
/* Reads weights outside the phases of a step, for example to export them. All ranks call it together. Rank 0 calls
 * read(self), in which pb_model_hold gathers weights if they are sharded, and returns its status; the other ranks take
 * part in the gathers and return PB_OK. Without sharded weights, rank 0 calls read(self) and nothing else happens. Host
 * syncs. EDEVICE: see comm.h. */
pb_status pb_trainer_read(pb_trainer *t, pb_status (*read)(void *self), void *self);
/* Tells the other ranks, with the losses of the next micro-batch, that this rank was asked to stop. Does not wait. */
pb_status pb_trainer_set_stop(pb_trainer *t, bool on);
/* Allocates the scratch memory that steps with rows of S tokens need, in one block, without running a step. EINVAL: S
 * below 1 or above the trainer's S, or a frozen model. */
pb_status pb_trainer_reserve(pb_trainer *t, int S);

/* The functions from here to pb_trainer_clip_states read results from the device and are host syncs, except
 * pb_trainer_clip_groups and pb_trainer_clip_layer. */
/* Reads the weighted loss of the indexers in the last backward phase, divided by the batch's count; 0 if the indexers
 * are not trained. */
pb_status pb_trainer_index_loss(pb_trainer *t, double *loss);
/* Reads the loss of the last loss phase: the sum of the negative log likelihoods of the loss tokens, divided by the
 * batch's count. */
pb_status pb_trainer_loss(pb_trainer *t, double *mean);
/* Reads the losses of all ranks: loss[pb_comm_size(comm)], each the sum of the negative log likelihoods of the rank's
 * last micro-batch, divided by the count. *stop: true if any rank has called pb_trainer_set_stop with true. The losses
 * of other ranks travel with the backward phase. */
pb_status pb_trainer_losses(pb_trainer *t, double *loss, bool *stop);
/* Reads how long the device took for the last forward phase, eager or replayed, in seconds. Call it after a function that
 * reads results of the step. Needs pb_train_config.time_forward. */
pb_status pb_trainer_forward_time(pb_trainer *t, double *seconds);
/* Computes the logits of the batch's last token after a forward phase, and reads them as f32: logits[V]. They replace
 * the first of pb_trainer_logits. EINVAL: B is not 1. */
pb_status pb_trainer_next_logits(pb_trainer *t, float *logits);
/* Reads the negative log likelihood of each token of the last batch that this rank has: nll[pb_trainer_tokens]; 0 where
 * the mask is 0. */
pb_status pb_trainer_nll(pb_trainer *t, float *nll);
/* Tokens of the longest whole row: pb_train_config.S as it was given. */
int pb_trainer_row(const pb_trainer *t);
/* Number of tokens of the last batch that this rank has: B*S without context parallelism. */
size_t pb_trainer_tokens(const pb_trainer *t);
/* Index in the last batch [B,S] of this rank's token i. */
size_t pb_trainer_token(const pb_trainer *t, size_t i);
/* Reads the optimizer's state: its counters and the learning rate. */
pb_status pb_trainer_state(pb_trainer *t, pb_adamw_state *out);
/* Returns the number of clip groups (the gradients of a group are clipped by their joint norm): one per layer and one
 * for the other parameters. Groups without a trained tensor do not count. 1 with the variant multi, 0 without
 * clipping. */
int pb_trainer_clip_groups(const pb_trainer *t);
/* Returns the layer whose gradients form clip group `group`, 0 <= group < pb_trainer_clip_groups(t). -1: the group of
 * the parameters outside the layers, or the only group of the variant multi. */
int pb_trainer_clip_layer(const pb_trainer *t, int group);
/* Downloads the results of the last clip phase to out[pb_trainer_clip_groups(t)]: first the layers' groups, then the
 * group of the other parameters. */
pb_status pb_trainer_clip_states(pb_trainer *t, pb_clip_state *out);

const pb_train_config *pb_trainer_config(const pb_trainer *t);
pb_model *pb_trainer_model(pb_trainer *t);
/* Returns the logits [B*S,V], device memory of the model's dtype. The loss phase overwrites these by their gradient.
 * With loss_chunk no phase leaves logits: NULL. */
const void *pb_trainer_logits(const pb_trainer *t);

/* How many tensors, elements and blocks NorMuon trains; all 0 with AdamW. */
typedef struct pb_matrix_counts {
    int tensors, blocks, shapes;
    size_t elements;
} pb_matrix_counts;
pb_matrix_counts pb_trainer_matrices(const pb_trainer *t);

/* Allocated device memory by purpose, in bytes. moments: also NorMuon's vector of updates. */
typedef struct pb_memory {
    size_t weights, grads, moments, activations;
} pb_memory;
pb_memory pb_trainer_memory(const pb_trainer *t);
/* With context parallelism: the attention scores of the rank that computes the most of them / the mean of the ranks
 * that share a row, in a longest row that is not packed. Otherwise 1. */
double pb_trainer_imbalance(const pb_trainer *t);
/* FLOPs of the matrix products and of attention in one step of this rank, with its longest rows. With context
 * parallelism, attention is the mean of the ranks that share a row. */
typedef struct pb_flops {
    double forward, backward;
    double again; /* part of `backward` that recomputes forward results instead of storing them */
} pb_flops;
pb_flops pb_trainer_flops(const pb_trainer *t);
#endif
