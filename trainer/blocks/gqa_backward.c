/* gqa_backward.c - the backward pass of the grouped-query attention block: computes t->dn, the gradient of the block's
 * input n1, from t->dcur, the gradient of its output. */
#include <math.h>
#include <stdio.h>

#include "kernels/attention/attention.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "trainer/blocks/gqa.h"
#include "trainer/step/observe.h"
#include "trainer/step/products.h"

/* Backward of QK-norm for `heads` heads per token, in place: d is the gradient of the norm's output and becomes the
 * gradient of its input x. */
static pb_status head_norm_back(pb_ctx *ctx, const pb_trainer *t, const pb_param *gain, const void *x,
                                const float *rstd, void *d, int heads)
{
    const pb_geometry *g = &t->model.g;
    const size_t ld = (size_t)pb_qkv_width(g);
    return pb_rmsnorm_bwd(ctx, &(pb_rmsnorm_bwd_args){.dy = d,
                                                      .x = x,
                                                      .w = gain->w,
                                                      .rstd = rstd,
                                                      .dx = d,
                                                      .dw = pb_grad_of(gain),
                                                      .T = t->T,
                                                      .G = heads,
                                                      .D = g->d,
                                                      .lddy = ld,
                                                      .ldx = ld,
                                                      .lddx = ld,
                                                      .accumulate = pb_adds(t),
                                                      .dtype = t->model.cfg.dtype});
}

/* Backward of RoPE and QK-norm, in place on the q and k columns of dqkv. */
static pb_status position_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_acts *a)
{
    const pb_geometry *g = &t->model.g;
    const size_t ld = (size_t)pb_qkv_width(g);
    void *dk = pb_column(t, pb_gqa_of(t)->dqkv, g->H * g->d);
    PB_TRY(pb_rope_bwd(ctx, &(pb_rope_bwd_args){.dqr = pb_gqa_of(t)->dqkv,
                                                .dkr = dk,
                                                .cos = pb_gqa_of(t)->cos,
                                                .sin = pb_gqa_of(t)->sin,
                                                .pos = t->pos,
                                                .dq = pb_gqa_of(t)->dqkv,
                                                .dk = dk,
                                                .B = t->cfg.B,
                                                .S = t->S,
                                                .H = g->H,
                                                .K = g->K,
                                                .D = g->d,
                                                .P = pb_row_most(t),
                                                .lddqr = ld,
                                                .lddkr = ld,
                                                .lddq = ld,
                                                .lddk = ld,
                                                .pairing = PB_ROPE_HALF,
                                                .dtype = t->model.cfg.dtype}));
    if (!a->qk) return PB_OK;
    PB_TRY(head_norm_back(ctx, t, pb_layer_param(&t->model, layer, PB_P_q_norm), a->qkv, a->rstdq, pb_gqa_of(t)->dqkv,
                          g->H));
    return head_norm_back(ctx, t, pb_layer_param(&t->model, layer, PB_P_k_norm), pb_column(t, a->qkv, g->H * g->d),
                          a->rstdk, dk, g->K);
}

/* Backward of attention: computes dqkv from dattn, the gradient of attention's output. */
static pb_status attend_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_acts *a)
{
    const pb_geometry *g = &t->model.g;
    const size_t W = (size_t)pb_qkv_width(g), Q = (size_t)g->H * g->d;
    const int v = (g->H + g->K) * g->d;
    pb_gqa_inputs x = {.v = pb_column(t, a->qkv, v), .ldv = W, .keys = t->S};
    pb_attention_inputs(t, a, &x.q, &x.k, &x.ldk);
    x.ldq = x.ldk;
    if (t->cfg.context) return pb_gqa_context_backward(ctx, t, layer, &x);
    if (g->keep) return pb_gqa_dynamic_backward(ctx, t, layer, &x);
    return pb_attention_bwd(ctx, &(pb_attention_bwd_args){.dO = pb_gqa_of(t)->dattn,
                                                          .q = x.q,
                                                          .k = x.k,
                                                          .v = x.v,
                                                          .o = a->o,
                                                          .lse = a->lse,
                                                          .start = t->start,
                                                          .dq = pb_gqa_of(t)->dqkv,
                                                          .dk = pb_column(t, pb_gqa_of(t)->dqkv, (int)Q),
                                                          .dv = pb_column(t, pb_gqa_of(t)->dqkv, v),
                                                          .B = t->cfg.B,
                                                          .S = t->S,
                                                          .H = g->H,
                                                          .K = g->K,
                                                          .D = g->d,
                                                          .lddo = Q,
                                                          .ldq = x.ldq,
                                                          .ldk = x.ldk,
                                                          .ldv = x.ldv,
                                                          .ldo = Q,
                                                          .lddq = W,
                                                          .lddk = W,
                                                          .lddv = W,
                                                          .scale = 1 / sqrtf((float)g->d),
                                                          .causal = true,
                                                          .dtype = t->model.cfg.dtype});
}

/* Backward of the whole block: computes dn, the gradient of n1, from dcur, the gradient of the projection o's
 * output. */
pb_status pb_gqa_backward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    const pb_geometry *g = &t->model.g;
    char ops[PB_OPS_TEXT];
    snprintf(ops, sizeof ops, "%s+rope_bwd%s", g->keep ? "dynmask_attention_bwd+dynmask_bias_bwd" : "attention_bwd",
             a->qk ? "+rmsnorm_bwd" : "");
    PB_TRY(pb_product_dx(ctx, t, layer, &pb_product_o, pb_all_rows(t), t->dcur, a->o, pb_gqa_of(t)->dattn));
    PB_TRY(pb_observe(t, layer, "grad_o", pb_product_back_ops(t, layer, &pb_product_o), pb_gqa_of(t)->dattn,
                      (size_t)g->H * g->d, g->d));
    PB_TRY(pb_product_dw(ctx, t, layer, &pb_product_o, pb_all_rows(t), t->dcur, a->o));
    PB_TRY(attend_back(ctx, t, layer, a));
    PB_TRY(position_back(ctx, t, layer, a));
    PB_TRY(pb_observe(t, layer, "grad_qkv", ops, pb_gqa_of(t)->dqkv, (size_t)pb_qkv_width(g), g->d));
    PB_TRY(
        pb_product_dx(ctx, t, layer, &pb_product_qkv, pb_all_rows(t), pb_gqa_of(t)->dqkv, t->layers[layer].n1, t->dn));
    return pb_product_dw(ctx, t, layer, &pb_product_qkv, pb_all_rows(t), pb_gqa_of(t)->dqkv, t->layers[layer].n1);
}
