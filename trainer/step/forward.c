/* forward.c - the forward phase: computes logits from token ids (with a loss chunk: what they are computed from), and
 * stores the activations for the backward pass. */
#include "trainer/step/forward.h"

#include "kernels/addnorm/addnorm.h"
#include "kernels/embedding/embedding.h"
#include "kernels/residual/residual.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "profiles/ranges.h"
#include "trainer/step/loss.h"
#include "trainer/step/mlp.h"
#include "trainer/step/weights.h"

pb_status pb_norm(pb_ctx *ctx, const pb_trainer *t, const void *x, const pb_param *gain, void *y, float *rstd)
{
    const size_t D = (size_t)t->model.g.D;
    return pb_rmsnorm_fwd(ctx, &(pb_rmsnorm_fwd_args){.x = x,
                                                      .w = gain->w,
                                                      .y = y,
                                                      .rstd = rstd,
                                                      .T = t->T,
                                                      .G = 1,
                                                      .D = (int)D,
                                                      .ldx = D,
                                                      .ldy = D,
                                                      .eps = t->model.g.eps,
                                                      .dtype = t->model.cfg.dtype});
}

pb_status pb_add_and_norm(pb_ctx *ctx, const pb_trainer *t, const void *x, const pb_param *factor, const pb_param *gain,
                          void *h, void *y, float *rstd)
{
    if (factor)
        PB_TRY(pb_residual_fwd(
            ctx, &(pb_residual_fwd_args){
                     .x = x, .s = factor->w, .y = h, .T = t->T, .D = t->model.g.D, .dtype = t->model.cfg.dtype}));
    return pb_addnorm_fwd(ctx, &(pb_addnorm_fwd_args){.x = factor ? h : x,
                                                      .r = t->proj,
                                                      .w = gain->w,
                                                      .h = h,
                                                      .y = y,
                                                      .rstd = rstd,
                                                      .T = t->T,
                                                      .D = t->model.g.D,
                                                      .eps = t->model.g.eps,
                                                      .dtype = t->model.cfg.dtype});
}

/* Runs one layer. In: the residual stream h of this layer and its norm n1. Out: h and n1 of the next layer, or hf and
 * nf after the last one. The second residual addition and the next layer's first norm are one kernel, so the next
 * layer's weights must be ready before it; the gather of the weights after those may overwrite this layer's. */
static pb_status forward_layer(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_model *m = &t->model;
    const pb_layer_acts *a = &t->layers[layer], *next = layer + 1 < m->g.L ? a + 1 : NULL;
    PB_TRY(t->block->forward(ctx, t, layer));
    PB_TRY(pb_add_and_norm(ctx, t, a->h, pb_layer_param(m, layer, PB_P_residual1), pb_layer_param(m, layer, PB_P_norm2),
                           a->hm, a->n2, a->rstd2));
    PB_TRY(pb_mlp_forward(ctx, t, layer));
    PB_TRY(pb_weights_ready(ctx, t));
    const pb_param *factor = pb_layer_param(m, layer, PB_P_residual2);
    PB_TRY(next ? pb_add_and_norm(ctx, t, a->hm, factor, pb_layer_param(m, layer + 1, PB_P_norm1), next->h, next->n1,
                                  next->rstd1)
                : pb_add_and_norm(ctx, t, a->hm, factor, m->outer[PB_P_norm], t->hf, t->nf, t->rstdf));
    return pb_weights_fetch(ctx, t, layer + 3);
}

pb_status pb_forward_layer(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    pb_range_layer_set(layer);
    const pb_status s = forward_layer(ctx, t, layer);
    pb_range_layer_set(PB_RANGE_NO_VALUE);
    return s;
}

pb_status pb_forward_begin(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_model *m = &t->model;
    const pb_geometry *g = &m->g;
    const pb_layer_acts *a = t->layers;
    PB_TRY(pb_weights_fetch(ctx, t, 0));
    PB_TRY(pb_weights_ready(ctx, t));
    PB_TRY(pb_weights_fetch(ctx, t, 1));
    PB_TRY(pb_embedding_fwd(ctx, &(pb_embedding_fwd_args){.table = m->outer[PB_P_embed]->w,
                                                          .ids = t->ids,
                                                          .y = a->h,
                                                          .T = t->T,
                                                          .V = g->V,
                                                          .D = g->D,
                                                          .dtype = m->cfg.dtype}));
    PB_TRY(pb_weights_ready(ctx, t));
    PB_TRY(pb_weights_fetch(ctx, t, 2));
    PB_TRY(pb_norm(ctx, t, a->h, pb_layer_param(m, 0, PB_P_norm1), a->n1, a->rstd1));
    return t->block->begin(ctx, t);
}

pb_status pb_forward_end(pb_ctx *ctx, const pb_trainer *t)
{
    return t->cfg.loss_chunk ? PB_OK : pb_head_forward(ctx, t, 0, t->T);
}

pb_status pb_phase_forward(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    PB_TRY(pb_forward_begin(ctx, t));
    for (int layer = 0; layer < t->model.g.L; layer++) PB_TRY(pb_forward_layer(ctx, t, layer));
    return pb_forward_end(ctx, t);
}
