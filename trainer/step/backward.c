/* backward.c - the backward phase: gradients of all trained parameters.
 *
 * It reads the activations that the forward phase keeps without modifying them, and computes the others again, layer by
 * layer (trainer/step/recompute.h). Gradients of activations use one set of buffers, which every layer overwrites. */
#include "kernels/addnorm/addnorm.h"
#include "kernels/embedding/embedding.h"
#include "kernels/residual/residual.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "profiles/ranges.h"
#include "trainer/step/gradients.h"
#include "trainer/step/loss.h"
#include "trainer/step/mlp.h"
#include "trainer/step/observe.h"
#include "trainer/step/products.h"
#include "trainer/step/recompute.h"
#include "trainer/step/token_rows.h"
#include "trainer/step/weights.h"

/* Passes a gradient [T,D] to the callback of pb_trainer_observe. */
static pb_status observe(const pb_trainer *t, int layer, const char *name, const char *ops, const void *p)
{
    return pb_observe(t, layer, name, ops, p, (size_t)t->model.g.D, 0);
}

/* Backward of h = x + r followed by a norm of h. In: dcur, the gradient of h through the residual connection, and dn,
 * the gradient of the norm's output. Out: dcur, the gradient of x and of r, which are equal. */
static pb_status norm_back(pb_ctx *ctx, const pb_trainer *t, const pb_param *gain, const void *h, const float *rstd)
{
    return pb_addnorm_bwd(ctx, &(pb_addnorm_bwd_args){.dy = t->dn,
                                                      .dh = t->dcur,
                                                      .h = h,
                                                      .w = gain->w,
                                                      .rstd = rstd,
                                                      .dx = t->dcur,
                                                      .dw = pb_grad_of(gain),
                                                      .T = t->T,
                                                      .D = t->model.g.D,
                                                      .accumulate = pb_adds(t),
                                                      .dtype = t->model.cfg.dtype});
}

/* Backward of the factor of a residual connection, where the model has one: dcur, the gradient of h = factor x + r and
 * so of r, becomes that of x through the residual connection. The backward pass of the block, which reads dcur as the
 * gradient of r, must come before. */
static pb_status factor_back(pb_ctx *ctx, const pb_trainer *t, const pb_param *factor, const void *x)
{
    if (!factor) return PB_OK;
    return pb_residual_bwd(ctx, &(pb_residual_bwd_args){.dy = t->dcur,
                                                        .x = x,
                                                        .s = factor->w,
                                                        .dx = t->dcur,
                                                        .ds = pb_grad_of(factor),
                                                        .T = t->T,
                                                        .D = t->model.g.D,
                                                        .accumulate = pb_adds(t),
                                                        .dtype = t->model.cfg.dtype});
}

/* Backward of the head and the last norm: computes dcur, the gradient of the last layer's residual stream, from the
 * gradient of the logits. With a loss chunk the loss phase has computed dn and the head's gradient. */
static pb_status head_back(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_model *m = &t->model;
    const pb_geometry *g = &m->g;
    const pb_param *gain = m->outer[PB_P_norm];
    PB_TRY(pb_observe_last_norm(t));
    if (!t->cfg.loss_chunk) PB_TRY(pb_head_backward(ctx, t, 0, t->T));
    PB_TRY(observe(t, -1, "grad_nf", "linear_dx", t->dn));
    /* No residual connection bypasses the last norm, so this is a plain RMSNorm backward. */
    PB_TRY(pb_rmsnorm_bwd(ctx, &(pb_rmsnorm_bwd_args){.dy = t->dn,
                                                      .x = t->hf,
                                                      .w = gain->w,
                                                      .rstd = t->rstdf,
                                                      .dx = t->dcur,
                                                      .dw = pb_grad_of(gain),
                                                      .T = t->T,
                                                      .G = 1,
                                                      .D = g->D,
                                                      .lddy = (size_t)g->D,
                                                      .ldx = (size_t)g->D,
                                                      .lddx = (size_t)g->D,
                                                      .accumulate = pb_adds(t),
                                                      .dtype = m->cfg.dtype}));
    return observe(t, -1, "grad_hf", "rmsnorm_bwd", t->dcur);
}

/* Backward pass of one layer. */
static pb_status layer_back(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_model *m = &t->model;
    const pb_layer_acts *a = &t->layers[layer];
    PB_TRY(pb_recompute_layer(ctx, t, layer));
    PB_TRY(pb_observe_layer(t, layer));
    PB_TRY(pb_mlp_backward(ctx, t, layer));
    PB_TRY(factor_back(ctx, t, pb_layer_param(m, layer, PB_P_residual2), a->hm));
    PB_TRY(norm_back(ctx, t, pb_layer_param(m, layer, PB_P_norm2), a->hm, a->rstd2));
    PB_TRY(observe(t, layer, "grad_hm", "addnorm_bwd", t->dcur));
    PB_TRY(t->block->backward(ctx, t, layer));
    PB_TRY(observe(t, layer, "grad_n1", t->model.g.v4 ? "linear_dx" : pb_product_back_ops(t, layer, &pb_product_qkv),
                   t->dn));
    PB_TRY(factor_back(ctx, t, pb_layer_param(m, layer, PB_P_residual1), a->h));
    PB_TRY(norm_back(ctx, t, pb_layer_param(m, layer, PB_P_norm1), a->h, a->rstd1));
    return observe(t, layer, "grad_h", "addnorm_bwd", t->dcur);
}

/* Called when stage `stage` is computed: the weights of the next one are ready before the reduction of this one's
 * gradients begins, and those after it are gathered next to it. */
static pb_status end_stage(pb_ctx *ctx, const pb_trainer *t, int stage)
{
    const int after = t->model.g.L - 1 - stage; /* the layer that stage + 2 needs has this place in the forward pass */
    PB_TRY(pb_weights_ready(ctx, t));
    PB_TRY(pb_gradients_complete(ctx, t, stage));
    return after > 0 ? pb_weights_fetch(ctx, t, after) : PB_OK;
}

pb_status pb_phase_backward(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    const pb_model *m = &t->model;
    const pb_param *embed = m->outer[PB_P_embed];
    pb_dtype table_dtype;
    void *dtable = pb_gradient_written(t, embed, &table_dtype);
    if (m->cfg.frozen) return pb_fail(PB_EINVAL, "backward: a frozen model (evaluation only) has no backward pass");
    PB_TRY(pb_gradients_begin(ctx, t));
    PB_TRY(pb_weights_fetch(ctx, t, m->g.L));
    PB_TRY(head_back(ctx, t));
    PB_TRY(end_stage(ctx, t, 0));
    for (int layer = m->g.L - 1; layer >= 0; layer--) {
        pb_range_layer_set(layer);
        const pb_status s = layer_back(ctx, t, layer);
        pb_range_layer_set(PB_RANGE_NO_VALUE);
        PB_TRY(s);
        PB_TRY(end_stage(ctx, t, m->g.L - layer));
    }
    if (embed->trained && !pb_token_rows_gathered(t))
        PB_TRY(pb_embedding_bwd(ctx, &(pb_embedding_bwd_args){.dy = t->dcur,
                                                              .ids = t->ids,
                                                              .dtable = dtable,
                                                              .T = t->T,
                                                              .V = m->g.V,
                                                              .D = m->g.D,
                                                              .accumulate = m->g.tied || pb_adds(t),
                                                              .dtype = m->cfg.dtype,
                                                              .table_dtype = table_dtype}));
    PB_TRY(pb_gradients_complete(ctx, t, m->g.L + 1));
    return pb_gradients_end(ctx, t);
}
