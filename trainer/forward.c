/* forward.c - the forward pass and the loss. */
#include <math.h>

#include "kernels/addnorm/addnorm.h"
#include "kernels/attention/attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "kernels/lora/lora.h"
#include "kernels/nf4_linear/nf4_linear.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/xent/xent.h"
#include "trainer/trainer_impl.h"

const pb_product pb_product_qkv = {PB_P_qkv, PB_P_qkv_bias, PB_TARGET_Q, 3};
const pb_product pb_product_o = {PB_P_o, PB_P_o_bias, PB_TARGET_O, 1};
const pb_product pb_product_gate_up = {PB_P_gate_up, -1, PB_TARGET_GATE, 2};
const pb_product pb_product_down = {PB_P_down, -1, PB_TARGET_DOWN, 1};

/* Adds to y the output of the adapters of a product with input x. Stores x A^T in xa for the backward pass. */
static pb_status adapters(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, const void *x, void *y,
                          int ldy)
{
    const pb_model *m = &t->model;
    pb_lora_fwd_args a = {
        .x = x, .T = t->T, .R = m->cfg.rank, .scale = m->cfg.alpha / (float)m->cfg.rank, .dtype = m->cfg.dtype};
    for (int i = (int)pr->first; i < (int)pr->first + pr->targets; i++) {
        const pb_param *la = m->lora_a[layer * PB_NTARGETS + i], *lb = m->lora_b[layer * PB_NTARGETS + i];
        int offset;
        if (!la) continue;
        pb_lora_target *g = &a.target[a.n++];
        pb_target_shape(&m->g, (pb_target)i, &a.K, &g->N, &offset);
        g->a = la->w;
        g->b = lb->w;
        g->xa = t->layers[layer].xa[i];
        g->y = pb_column(t, y, offset);
        g->ldy = (size_t)ldy;
    }
    return a.n ? pb_lora_fwd(ctx, &a) : PB_OK;
}

/* y [T,rows] = x w^T (+ bias) (+ adapters), where w is dense or NF4. */
static pb_status project(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, const void *x, void *y)
{
    const pb_param *w = pb_layer_param(&t->model, layer, pr->param);
    const pb_param *b = pr->bias < 0 ? NULL : pb_layer_param(&t->model, layer, pr->bias);
    const float *bias = b ? b->w : NULL;
    const int N = (int)w->rows, K = (int)w->cols;
    if (w->q)
        PB_TRY(pb_nf4_linear_fwd(ctx, &(pb_nf4_linear_fwd_args){.x = x,
                                                                .q = w->q,
                                                                .scales = w->scales,
                                                                .bias = bias,
                                                                .y = y,
                                                                .T = t->T,
                                                                .N = N,
                                                                .K = K,
                                                                .dtype = w->dtype}));
    else
        PB_TRY(pb_linear_fwd(
            ctx, &(pb_linear_fwd_args){
                     .x = x, .w = w->w, .bias = bias, .y = y, .T = t->T, .N = N, .K = K, .dtype = w->dtype}));
    return adapters(ctx, t, layer, pr, x, y, N);
}

static pb_status head_norm(pb_ctx *ctx, const pb_trainer *t, const pb_param *gain, const void *x, void *y, float *rstd,
                           int heads)
{
    const pb_geometry *g = &t->model.g;
    return pb_rmsnorm_fwd(ctx, &(pb_rmsnorm_fwd_args){.x = x,
                                                      .w = gain->w,
                                                      .y = y,
                                                      .rstd = rstd,
                                                      .T = t->T,
                                                      .G = heads,
                                                      .D = g->d,
                                                      .ldx = (size_t)pb_qkv_width(g),
                                                      .ldy = (size_t)(g->H + g->K) * g->d,
                                                      .eps = g->eps,
                                                      .dtype = t->model.cfg.dtype});
}

/* QK-norm (Qwen3 only), then RoPE of q and k. */
static pb_status position(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_layer_acts *a)
{
    const pb_geometry *g = &t->model.g;
    void *q, *k;
    size_t ld;
    pb_attention_inputs(t, a, &q, &k, &ld);
    if (a->qk) {
        PB_TRY(head_norm(ctx, t, pb_layer_param(&t->model, layer, PB_P_q_norm), a->qkv, q, a->rstdq, g->H));
        PB_TRY(head_norm(ctx, t, pb_layer_param(&t->model, layer, PB_P_k_norm), pb_column(t, a->qkv, g->H * g->d), k,
                         a->rstdk, g->K));
    }
    return pb_rope_fwd(ctx, &(pb_rope_fwd_args){.q = q,
                                                .k = k,
                                                .cos = t->cos,
                                                .sin = t->sin,
                                                .pos = t->pos,
                                                .qr = q,
                                                .kr = k,
                                                .B = t->cfg.B,
                                                .S = t->S,
                                                .H = g->H,
                                                .K = g->K,
                                                .D = g->d,
                                                .P = t->cfg.S,
                                                .ldq = ld,
                                                .ldk = ld,
                                                .ldqr = ld,
                                                .ldkr = ld,
                                                .pairing = PB_ROPE_HALF,
                                                .dtype = t->model.cfg.dtype});
}

static pb_status attend(pb_ctx *ctx, const pb_trainer *t, const pb_layer_acts *a)
{
    const pb_geometry *g = &t->model.g;
    void *q, *k;
    size_t ld;
    pb_attention_inputs(t, a, &q, &k, &ld);
    return pb_attention_fwd(ctx, &(pb_attention_fwd_args){.q = q,
                                                          .k = k,
                                                          .v = pb_column(t, a->qkv, (g->H + g->K) * g->d),
                                                          .o = a->o,
                                                          .lse = a->lse,
                                                          .start = t->start,
                                                          .B = t->cfg.B,
                                                          .S = t->S,
                                                          .H = g->H,
                                                          .K = g->K,
                                                          .D = g->d,
                                                          .ldq = ld,
                                                          .ldk = ld,
                                                          .ldv = (size_t)pb_qkv_width(g),
                                                          .ldo = (size_t)g->H * g->d,
                                                          .scale = 1 / sqrtf((float)g->d),
                                                          .causal = true,
                                                          .dtype = t->model.cfg.dtype});
}

/* h = x + r, and y = RMSNorm(h) with the given gain. */
static pb_status add_and_norm(pb_ctx *ctx, const pb_trainer *t, const void *x, const void *r, const pb_param *gain,
                              void *h, void *y, float *rstd)
{
    return pb_addnorm_fwd(ctx, &(pb_addnorm_fwd_args){.x = x,
                                                      .r = r,
                                                      .w = gain->w,
                                                      .h = h,
                                                      .y = y,
                                                      .rstd = rstd,
                                                      .T = t->T,
                                                      .D = t->model.g.D,
                                                      .eps = t->model.g.eps,
                                                      .dtype = t->model.cfg.dtype});
}

pb_status pb_gqa_forward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_layer_acts *a = &t->layers[layer];
    PB_TRY(project(ctx, t, layer, &pb_product_qkv, a->n1, a->qkv));
    PB_TRY(position(ctx, t, layer, a));
    PB_TRY(attend(ctx, t, a));
    return project(ctx, t, layer, &pb_product_o, a->o, t->proj);
}

/* One layer. In: the residual stream h of this layer and its norm n1. Out: h and n1 of the next layer, or hf and nf
 * after the last one. The second residual addition and the next layer's first norm are one kernel. */
static pb_status block(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_model *m = &t->model;
    const pb_layer_acts *a = &t->layers[layer], *next = layer + 1 < m->g.L ? a + 1 : NULL;
    PB_TRY(t->block->forward(ctx, t, layer));
    PB_TRY(add_and_norm(ctx, t, a->h, t->proj, pb_layer_param(m, layer, PB_P_norm2), a->hm, a->n2, a->rstd2));
    PB_TRY(project(ctx, t, layer, &pb_product_gate_up, a->n2, a->gu));
    PB_TRY(pb_swiglu_fwd(
        ctx, &(pb_swiglu_fwd_args){.gu = a->gu, .y = t->act, .T = t->T, .I = m->g.I, .dtype = m->cfg.dtype}));
    PB_TRY(project(ctx, t, layer, &pb_product_down, t->act, t->proj));
    if (next)
        return add_and_norm(ctx, t, a->hm, t->proj, pb_layer_param(m, layer + 1, PB_P_norm1), next->h, next->n1,
                            next->rstd1);
    return add_and_norm(ctx, t, a->hm, t->proj, m->outer[PB_P_norm], t->hf, t->nf, t->rstdf);
}

pb_status pb_phase_forward(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    const pb_model *m = &t->model;
    const pb_geometry *g = &m->g;
    const pb_layer_acts *a = t->layers;
    const pb_param *head = m->outer[g->tied ? PB_P_embed : PB_P_head];
    PB_TRY(pb_embedding_fwd(ctx, &(pb_embedding_fwd_args){.table = m->outer[PB_P_embed]->w,
                                                          .ids = t->ids,
                                                          .y = a->h,
                                                          .T = t->T,
                                                          .V = g->V,
                                                          .D = g->D,
                                                          .dtype = m->cfg.dtype}));
    PB_TRY(pb_rmsnorm_fwd(ctx, &(pb_rmsnorm_fwd_args){.x = a->h,
                                                      .w = pb_layer_param(m, 0, PB_P_norm1)->w,
                                                      .y = a->n1,
                                                      .rstd = a->rstd1,
                                                      .T = t->T,
                                                      .G = 1,
                                                      .D = g->D,
                                                      .ldx = (size_t)g->D,
                                                      .ldy = (size_t)g->D,
                                                      .eps = g->eps,
                                                      .dtype = m->cfg.dtype}));
    PB_TRY(t->block->begin(ctx, t));
    for (int layer = 0; layer < g->L; layer++) PB_TRY(block(ctx, t, layer));
    return pb_linear_fwd(
        ctx, &(pb_linear_fwd_args){
                 .x = t->nf, .w = head->w, .y = t->logits, .T = t->T, .N = g->V, .K = g->D, .dtype = m->cfg.dtype});
}

pb_status pb_phase_loss(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    return pb_xent_bwd(ctx, &(pb_xent_bwd_args){.logits = t->logits,
                                                .target = t->targets,
                                                .mask = t->mask,
                                                .inv_count = t->inv_count,
                                                .dlogits = t->logits,
                                                .nll = t->nll,
                                                .loss = t->loss,
                                                .loss_scale = t->loss_scale,
                                                .total = t->step_loss,
                                                .add = t->accumulate,
                                                .T = t->T,
                                                .V = t->model.g.V,
                                                .dtype = t->model.cfg.dtype});
}
