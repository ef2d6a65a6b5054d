/* train_case.h - shared by the suites that train: opens a trainer for the axes of a case, on the text in this
 * repository or the user's, and checks that its gradients are right. */
#ifndef PB_TRAIN_CASE_H
#define PB_TRAIN_CASE_H
#include "bench/measure/measure.h"
#include "kernels/engine/op.h"
#include "trainer/step/trainer.h"

/* Axes of every training suite, with their common defaults. `attention` has no default and is in the key only if given;
 * otherwise the model decides. Only models that offer a choice accept it, so that each case has exactly one key. */
#define PB_TRAIN_AXES                                                                                                  \
    "attention= dtype=f32 layers=0 loss-chunk= mlp-chunk= model=smollm2-135m nf4-scales= pack= rank=16 recompute= "    \
    "targets=q+v"
/* Their values that the keys omit, because a case is the same without the axis. */
#define PB_TRAIN_AXES_OMITTED "loss-chunk=0 mlp-chunk=0 nf4-scales=f32 pack=stream recompute=none"

/* Axes of steps of several ranks or micro-batches; see docs/ranks.md. cp: ranks that share each row; slices: how they
 * divide it. They have no default and are in the key only if given; the keys also
 * omit the values of PB_RANK_AXES_OMITTED, with which a step is the same as without the axis. */
#define PB_RANK_AXES         " accumulate= cp= reduce= shard= slices="
#define PB_RANK_AXES_OMITTED "accumulate=1 cp=1 reduce=f32 shard=none slices=auto"

/* Axes of the optimizer, in the key only if given. guard and iteration (of Newton-Schulz) are for optimizer=normuon
 * only, moments other than f32 for optimizer=adamw only. */
#define PB_OPTIMIZER_AXES " guard= iteration= moments= optimizer="

/* pb_train_case_open() opens a trainer for the axes accumulate, attention, batch, clip, dtype, guard, iteration,
 * layers, loss-chunk, mlp-chunk, model, moments, nf4-scales, optimizer, pack, rank, recompute, reduce, seq, shard,
 * targets and tuning, and loads batch 0; the caller closes it. pb_train_case_batch() loads batch number `index` of the text.
 * pb_train_case_config() returns only the configuration. EINVAL: the message names the invalid axis.
 *
 * The text is the shipped conversations as bytes, or the user's data (c->own). Without the axis pack, rows are full: a
 * stream, cut every `seq` tokens. With pack=on or off they hold whole conversations, and pb_train_case_shape() sets
 * cfg->S to the length of the longest row of all batches that the case reads, rounded up as in `train`.
 *
 * pb_train_case_trainer() opens a trainer of this configuration, with the weights of the user's folder if the case has
 * one. ENOMEM: it does not fit into memory; the message says what would help. */
pb_status pb_train_case_open(pb_ctx *ctx, const pb_case *c, pb_trainer **out);
/* The same with keep_unread, for comparing all tensors of two trainers. */
pb_status pb_train_case_open_all(pb_ctx *ctx, const pb_case *c, pb_trainer **out);
pb_status pb_train_case_trainer(pb_ctx *ctx, const pb_case *c, const pb_train_config *cfg, pb_trainer **out);
pb_status pb_train_case_shape(const pb_case *c, pb_train_config *cfg);
pb_status pb_train_case_packed(const pb_case *c, bool *out); /* false: pack=stream */
int pb_train_case_shares(const pb_case *c);                  /* axis cp; 1 without it */
pb_status pb_train_case_batch(const pb_case *c, pb_trainer *t, size_t index);
/* Loads batch number first + index of the text as one of the micro-batches first .. first + all - 1 of a step, whose
 * loss tokens together divide the loss. ENOMEM. */
pb_status pb_train_case_micro_batch(const pb_case *c, pb_trainer *t, size_t first, size_t all, size_t index);
/* The text of a case, for many batches: it is opened once, and pb_case_text_batch() loads batch number `index` as
 * pb_train_case_batch() does. cfg: the trainer's configuration. The caller closes *out, before the plan. */
typedef struct pb_case_text pb_case_text;
pb_status pb_case_text_open(const pb_case *c, const pb_train_config *cfg, pb_case_text **out);
pb_status pb_case_text_batch(pb_case_text *x, pb_trainer *t, size_t index);
void pb_case_text_close(pb_case_text *x); /* NULL is allowed */
pb_status pb_train_case_config(const pb_case *c, pb_train_config *out);
/* The `check` function of these suites. EINVAL: the combination of axes, including `mode` (eager or graph), is
 * invalid. */
pb_status pb_train_case_check(const pb_case *c);
/* True if axis mode is graph. */
bool pb_train_case_graph(const pb_case *c);
/* The number of weights in the matrices and the output head; 0 for an invalid case. */
double pb_train_case_weights(const pb_case *c);
/* Rough seconds of one forward pass on two CPU cores. The estimates of other phases are multiples of this figure. */
double pb_train_case_seconds(const pb_case *c);
/* Rough seconds of a whole case on a GPU: drawing the weights on the host, the gradient check and the samples. */
double pb_train_case_device_seconds(const pb_case *c);
/* Rough seconds of one training step of the case on a GPU. */
double pb_train_case_device_step(const pb_case *c);

/* Checks the gradients and sets *error to a relative error. It runs forward, loss and backward without clipping. Then:
 * f32:  compares with a central difference of the loss, along a direction in which every trained tensor moves.
 * bf16: compares with the gradients of an f32 model of the same weights, because a step in bf16 weights is too coarse
 *       for a difference of losses.
 * Afterwards the weights have their original bits, and activations, loss and gradients belong to them. */
pb_status pb_gradient_error(const pb_case *c, pb_trainer *t, double *error);
/* The largest accepted error for a dtype. A case with a larger error is not timed. */
double pb_gradient_bound(pb_dtype dtype);

/* Emits the row gradient_error and sets *out; the case may be timed only if out->status is PB_ROW_OK. Afterwards
 * forward and loss have run; gradients need not be set. The error is reused from another case of this process that
 * differs only in mode and clip, because neither affects gradients before clipping; a control case also reuses that of
 * its case. If GPU memory is too small for the
 * additional f32 model, the row has status unsupported and the case is timed without the check. */
typedef struct pb_check {
    pb_row_status status;
    char note[160];
} pb_check;
pb_status pb_train_case_gradient(pb_ctx *ctx, const pb_case *c, pb_trainer *t, pb_emitter *emitter, pb_check *out);
/* Frees the scratch memory of earlier cases and checks, and resets the peak of memory. On a GPU it then runs forward,
 * loss and backward once, so that the peak includes phases that are not timed. */
pb_status pb_train_case_fresh(pb_ctx *ctx, pb_trainer *t);
/* On a GPU: emits peak_memory and device_memory since pb_train_case_fresh(). */
pb_status pb_train_case_memory(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter);

/* Copies all gradients into one malloc'd array *out of *n values, which the caller frees. Used to compare graph and
 * eager bit for bit. */
pb_status pb_gradient_copy(pb_trainer *t, float **out, size_t *n);
/* The difference of two sets of gradients a and b: the largest |a - b|, and ||a - b|| / ||b|| (||a - b|| if b is zero).
 * If any difference is NaN, both are NaN. */
typedef struct pb_apart {
    double max, rel;
} pb_apart;
/* Compares the gradients of t (a) with those of a trainer with the same parameters (b) on the same device, or with a
 * copy by pb_gradient_copy(); the other argument is NULL. ENOMEM, EDEVICE. */
pb_status pb_gradient_apart(pb_trainer *t, pb_trainer *other, const float *copy, pb_apart *out);
#endif
