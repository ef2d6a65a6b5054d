/* tensors.h - the tensors of a trainer by name, as they are in device memory after a step.
 *
 *     NAME.weight, NAME.gradient,   of every parameter NAME, such as layers.3.qkv. gradient: what the optimizer read; with
 *     NAME.momentum, NAME.v         the clip variant multi before the factor. weight: after the step. Only of trained
 *                                   parameters, but weight of all that are not quantised
 *     layers.L.h, n1, hm, n2, gu    activations of layer L (pb_layer_acts). Not listed are the outputs of the products o
 *                                   and down, and of SwiGLU, whose memory all layers share
 *     layers.L.qkv, qk, o, lse      and those of attention: pb_gqa_acts
 *     layers.L.latent, qr, q, kv,   or, of DeepSeek-V4, pb_v4_acts; idx: the lists of keys
 *     idx, o, lse, low
 *     hf, nf                        the residual stream after the last layer, and its norm
 *     logits                        after the loss phase: their gradient
 *
 * Activations are those of the last micro-batch, with the shape [tokens,columns]. They are kept for the backward pass,
 * and so they are in memory after a replayed graph, too. Activations that the backward pass computes again
 * (--recompute) are in memory that all layers share, and so is n2 if the backward pass does not read it, unless
 * keep_unread is set. The list of a trainer that has a backward pass lacks them, because that overwrites them; of a
 * frozen model it has those of layer 0.
 * While there is a callback (pb_trainer_observe), the backward pass gives it all activations of each layer instead,
 * right after it has computed them again, and then no activations of layers are listed. Not listed: with sharded
 * gradients or weights, those that a rank does not have whole; chunks of logits.
 *
 * Gradients of activations are overwritten by the next layer, so they are not listed, but given during the backward
 * pass (pb_trainer_observe), in the order in which it computes them:
 *
 *     grad_nf, grad_hf              of the last norm's output and input
 *     layers.L.grad_act, grad_gu,   of the MLP: the output and the input of SwiGLU, and the MLP's input n2
 *     grad_n2
 *     layers.L.grad_hm              of the residual stream between attention and MLP
 *     layers.L.grad_o, grad_qkv     of the attention output, and of the QKV projection's output (before QK-norm and RoPE)
 *     layers.L.grad_o, grad_q,      DeepSeek-V4: of the attention output, of the queries after RoPE, and of the latent
 *     grad_latent                   projection's output
 *     layers.L.grad_n1, grad_h      of the block's input n1, and of the residual stream before the layer */
#ifndef PB_TENSORS_H
#define PB_TENSORS_H
#include "kernels/engine/dtype.h"
#include "trainer/step/trainer.h"

enum { PB_OPS_TEXT = 96 };
typedef struct pb_tensor {
    char name[64];
    /* The ops that compute it from the tensors listed before it, in their order, such as "linear_fwd+rope_fwd"; the
     * names are those of kernels/ops.def. "": a parameter. */
    char ops[PB_OPS_TEXT];
    int layer; /* -1: of no layer */
    pb_dtype dtype;
    size_t rows, cols;
    const void *p; /* device memory */
    bool by_token; /* its rows are tokens */
    bool by_head;  /* its rows are (batch row, head), its columns tokens; with zigzag slices [B,chunk,head,token] */
    int head;      /* by_token: columns of one head; 0: columns are of no head */
} pb_tensor;

/* Where an element of an activation is. -1: the tensor has no such axis. */
typedef struct pb_tensor_place {
    long row, token, head; /* batch row; token of the row, with context parallelism too */
} pb_tensor_place;

/* Calls each(self, tensor) for every tensor; ends with the first failure. */
typedef pb_status (*pb_tensor_fn)(void *self, const pb_tensor *x);
pb_status pb_trainer_tensors(const pb_trainer *t, pb_tensor_fn each, void *self);

/* Lists only activations, or only the tensors of parameters. */
pb_status pb_trainer_activations(const pb_trainer *t, pb_tensor_fn each, void *self);
pb_status pb_trainer_parameters(const pb_trainer *t, pb_tensor_fn each, void *self);

/* Sets a callback: each backward pass calls each(self, tensor) for activations that are computed again and, if
 * `gradients` is set, for every gradient of an activation, right after the op that completes it. If the callback fails,
 * the backward pass stops and returns its status. NULL: no callback. While one is set, steps must run eagerly, because
 * it reads device memory between the ops. */
void pb_trainer_observe(pb_trainer *t, pb_tensor_fn each, void *self, bool gradients);
/* True if the backward pass computes activations of layers again (--recompute). */
bool pb_trainer_recomputes(const pb_trainer *t);

/* The place of element `index` of a tensor of the current batch. */
pb_tensor_place pb_tensor_place_of(const pb_trainer *t, const pb_tensor *x, size_t index);

/* Statistics of a tensor's elements. min, max, rms: of the finite ones, 0 if all are not finite; first: index of the
 * first that is not finite, `rows * cols` if all are. */
typedef struct pb_tensor_statistics {
    double min, max, rms;
    size_t zeros, nans, infs, first;
} pb_tensor_statistics;
pb_tensor_statistics pb_tensor_statistics_of(const void *host, size_t n, pb_dtype dtype);
#endif
