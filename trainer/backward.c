/* backward.c - the backward phase: gradients of all trained parameters.
 *
 * It reads the activations without modifying them. Gradients of activations use one set of buffers,
 * which every layer overwrites. */
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
#include "trainer/trainer_impl.h"

static float *grad_of(const pb_param *p) { return p && p->trained ? p->grad : NULL; }

/* Backward of the adapters of a product with input x: adds their contribution to dx and computes
 * the gradients of A and B. */
static pb_status adapters_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, const void *x,
                               const void *dy, void *dx, int lddy)
{
    const pb_model *m = &t->model;
    pb_lora_bwd_args a = {.x = x,
                          .dx = dx,
                          .T = t->T,
                          .R = m->cfg.rank,
                          .scale = m->cfg.alpha / (float)m->cfg.rank,
                          .accumulate = t->accumulate,
                          .dtype = m->cfg.dtype};
    for (int i = (int)pr->first; i < (int)pr->first + pr->targets; i++) {
        const pb_param *la = m->lora_a[layer * PB_NTARGETS + i], *lb = m->lora_b[layer * PB_NTARGETS + i];
        int offset;
        if (!la) continue;
        pb_lora_grad *g = &a.target[a.n++];
        pb_target_shape(&m->g, (pb_target)i, &a.K, &g->N, &offset);
        g->a = la->w;
        g->b = lb->w;
        g->xa = t->layers[layer].xa[i];
        g->dy = pb_column(t, (void *)dy, offset);
        g->da = la->grad;
        g->db = lb->grad;
        g->lddy = (size_t)lddy;
    }
    return a.n ? pb_lora_bwd(ctx, &a) : PB_OK;
}

static bool has_adapter(const pb_trainer *t, int layer, pb_target target)
{
    return t->model.lora_a[layer * PB_NTARGETS + (int)target];
}

/* dx = dy w, plus the adapters' contribution; also computes the adapters' gradients. x, the input of the product, is
 * only read if the product has adapters. */
static pb_status project_dx(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, const void *dy,
                            const void *x, void *dx)
{
    const pb_param *w = pb_layer_param(&t->model, layer, pr->param);
    const int N = (int)w->rows, K = (int)w->cols;
    if (w->q)
        PB_TRY(pb_nf4_linear_dx(
            ctx,
            &(pb_nf4_linear_dx_args){
                .dy = dy, .q = w->q, .scales = w->scales, .dx = dx, .T = t->T, .N = N, .K = K, .dtype = w->dtype}));
    else
        PB_TRY(pb_linear_dx(
            ctx, &(pb_linear_dx_args){.dy = dy, .w = w->w, .dx = dx, .T = t->T, .N = N, .K = K, .dtype = w->dtype}));
    return adapters_back(ctx, t, layer, pr, x, dy, dx, N);
}

/* dw = dy^T x and the gradient of the bias; does nothing unless the weight is trained. */
static pb_status project_dw(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, const void *dy,
                            const void *x)
{
    const pb_param *w = pb_layer_param(&t->model, layer, pr->param);
    const pb_param *b = pr->bias < 0 ? NULL : pb_layer_param(&t->model, layer, pr->bias);
    if (!w->trained) return PB_OK;
    return pb_linear_dw(ctx, &(pb_linear_dw_args){.dy = dy,
                                                  .x = x,
                                                  .dw = w->grad,
                                                  .dbias = grad_of(b),
                                                  .T = t->T,
                                                  .N = (int)w->rows,
                                                  .K = (int)w->cols,
                                                  .accumulate = t->accumulate,
                                                  .dtype = w->dtype});
}

/* Backward of a residual addition followed by a norm. In: dcur, the gradient of h through the residual connection, and
 * dn, the gradient of the norm's output. Out: dcur, the gradient of both summands of h. */
static pb_status norm_back(pb_ctx *ctx, const pb_trainer *t, const pb_param *gain, const void *h, const float *rstd)
{
    return pb_addnorm_bwd(ctx, &(pb_addnorm_bwd_args){.dy = t->dn,
                                                      .dh = t->dcur,
                                                      .h = h,
                                                      .w = gain->w,
                                                      .rstd = rstd,
                                                      .dx = t->dcur,
                                                      .dw = grad_of(gain),
                                                      .T = t->T,
                                                      .D = t->model.g.D,
                                                      .accumulate = t->accumulate,
                                                      .dtype = t->model.cfg.dtype});
}

/* Backward of the MLP: from dcur, the gradient of down's output, to dn, the gradient of n2. */
static pb_status mlp_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_layer_acts *a)
{
    const pb_model *m = &t->model;
    const bool full = m->cfg.tuning == PB_FULL;
    /* SwiGLU's output is not stored. The adapter of `down` needs it here, before swiglu_bwd runs, so it is recomputed.
     * The gradient of down's own weight is computed later, from the output that swiglu_bwd writes as a by-product. */
    if (has_adapter(t, layer, PB_TARGET_DOWN))
        PB_TRY(pb_swiglu_fwd(
            ctx, &(pb_swiglu_fwd_args){.gu = a->gu, .y = t->act, .T = t->T, .I = m->g.I, .dtype = m->cfg.dtype}));
    PB_TRY(project_dx(ctx, t, layer, &pb_product_down, t->dcur, t->act, t->dact));
    PB_TRY(pb_swiglu_bwd(ctx, &(pb_swiglu_bwd_args){.dy = t->dact,
                                                    .gu = a->gu,
                                                    .dgu = t->dgu,
                                                    .y = full ? t->act : NULL,
                                                    .T = t->T,
                                                    .I = m->g.I,
                                                    .dtype = m->cfg.dtype}));
    PB_TRY(project_dw(ctx, t, layer, &pb_product_down, t->dcur, t->act));
    PB_TRY(project_dx(ctx, t, layer, &pb_product_gate_up, t->dgu, a->n2, t->dn));
    return project_dw(ctx, t, layer, &pb_product_gate_up, t->dgu, a->n2);
}

/* Backward of QK-norm, in place on d: the gradient of `heads` normed heads per token becomes that of x. */
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
                                                      .dw = grad_of(gain),
                                                      .T = t->T,
                                                      .G = heads,
                                                      .D = g->d,
                                                      .lddy = ld,
                                                      .ldx = ld,
                                                      .lddx = ld,
                                                      .accumulate = t->accumulate,
                                                      .dtype = t->model.cfg.dtype});
}

/* Backward of RoPE and QK-norm, in place on the q and k columns of dqkv. */
static pb_status position_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_layer_acts *a)
{
    const pb_geometry *g = &t->model.g;
    const size_t ld = (size_t)pb_qkv_width(g);
    void *dk = pb_column(t, t->dqkv, g->H * g->d);
    PB_TRY(pb_rope_bwd(ctx, &(pb_rope_bwd_args){.dqr = t->dqkv,
                                                .dkr = dk,
                                                .cos = t->cos,
                                                .sin = t->sin,
                                                .pos = t->pos,
                                                .dq = t->dqkv,
                                                .dk = dk,
                                                .B = t->cfg.B,
                                                .S = t->S,
                                                .H = g->H,
                                                .K = g->K,
                                                .D = g->d,
                                                .P = t->cfg.S,
                                                .lddqr = ld,
                                                .lddkr = ld,
                                                .lddq = ld,
                                                .lddk = ld,
                                                .pairing = PB_ROPE_HALF,
                                                .dtype = t->model.cfg.dtype}));
    if (!a->qk) return PB_OK;
    PB_TRY(head_norm_back(ctx, t, pb_layer_param(&t->model, layer, PB_P_q_norm), a->qkv, a->rstdq, t->dqkv, g->H));
    return head_norm_back(ctx, t, pb_layer_param(&t->model, layer, PB_P_k_norm), pb_column(t, a->qkv, g->H * g->d),
                          a->rstdk, dk, g->K);
}

/* Backward of attention: from dattn to dqkv. */
static pb_status attend_back(pb_ctx *ctx, const pb_trainer *t, const pb_layer_acts *a)
{
    const pb_geometry *g = &t->model.g;
    const size_t W = (size_t)pb_qkv_width(g), Q = (size_t)g->H * g->d;
    const int v = (g->H + g->K) * g->d;
    void *q, *k;
    size_t ld;
    pb_attention_inputs(t, a, &q, &k, &ld);
    return pb_attention_bwd(ctx, &(pb_attention_bwd_args){.dO = t->dattn,
                                                          .q = q,
                                                          .k = k,
                                                          .v = pb_column(t, a->qkv, v),
                                                          .o = a->o,
                                                          .lse = a->lse,
                                                          .start = t->start,
                                                          .dq = t->dqkv,
                                                          .dk = pb_column(t, t->dqkv, (int)Q),
                                                          .dv = pb_column(t, t->dqkv, v),
                                                          .B = t->cfg.B,
                                                          .S = t->S,
                                                          .H = g->H,
                                                          .K = g->K,
                                                          .D = g->d,
                                                          .lddo = Q,
                                                          .ldq = ld,
                                                          .ldk = ld,
                                                          .ldv = W,
                                                          .ldo = Q,
                                                          .lddq = W,
                                                          .lddk = W,
                                                          .lddv = W,
                                                          .scale = 1 / sqrtf((float)g->d),
                                                          .causal = true,
                                                          .dtype = t->model.cfg.dtype});
}

/* Backward of GQA: from dcur, the gradient of o's output, to dn, the gradient of n1. */
pb_status pb_gqa_backward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_layer_acts *a = &t->layers[layer];
    PB_TRY(project_dx(ctx, t, layer, &pb_product_o, t->dcur, a->o, t->dattn));
    PB_TRY(project_dw(ctx, t, layer, &pb_product_o, t->dcur, a->o));
    PB_TRY(attend_back(ctx, t, a));
    PB_TRY(position_back(ctx, t, layer, a));
    PB_TRY(project_dx(ctx, t, layer, &pb_product_qkv, t->dqkv, a->n1, t->dn));
    return project_dw(ctx, t, layer, &pb_product_qkv, t->dqkv, a->n1);
}

/* Backward of the head and the last norm: from the gradient of the logits to dcur, the gradient of
 * the last residual stream. */
static pb_status head_back(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_model *m = &t->model;
    const pb_geometry *g = &m->g;
    const pb_param *head = m->outer[g->tied ? PB_P_embed : PB_P_head], *gain = m->outer[PB_P_norm];
    PB_TRY(pb_linear_dx(
        ctx, &(pb_linear_dx_args){
                 .dy = t->logits, .w = head->w, .dx = t->dn, .T = t->T, .N = g->V, .K = g->D, .dtype = m->cfg.dtype}));
    if (head->trained)
        PB_TRY(pb_linear_dw(ctx, &(pb_linear_dw_args){.dy = t->logits,
                                                      .x = t->nf,
                                                      .dw = head->grad,
                                                      .T = t->T,
                                                      .N = g->V,
                                                      .K = g->D,
                                                      .accumulate = t->accumulate,
                                                      .dtype = m->cfg.dtype}));
    /* No residual connection bypasses the last norm, so this is a plain RMSNorm backward. */
    return pb_rmsnorm_bwd(ctx, &(pb_rmsnorm_bwd_args){.dy = t->dn,
                                                      .x = t->hf,
                                                      .w = gain->w,
                                                      .rstd = t->rstdf,
                                                      .dx = t->dcur,
                                                      .dw = grad_of(gain),
                                                      .T = t->T,
                                                      .G = 1,
                                                      .D = g->D,
                                                      .lddy = (size_t)g->D,
                                                      .ldx = (size_t)g->D,
                                                      .lddx = (size_t)g->D,
                                                      .accumulate = t->accumulate,
                                                      .dtype = m->cfg.dtype});
}

pb_status pb_phase_backward(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    const pb_model *m = &t->model;
    const pb_param *embed = m->outer[PB_P_embed];
    if (m->cfg.frozen) return pb_fail(PB_EINVAL, "backward: the model is frozen");
    PB_TRY(head_back(ctx, t));
    for (int layer = m->g.L - 1; layer >= 0; layer--) {
        const pb_layer_acts *a = &t->layers[layer];
        PB_TRY(mlp_back(ctx, t, layer, a));
        PB_TRY(norm_back(ctx, t, pb_layer_param(m, layer, PB_P_norm2), a->hm, a->rstd2));
        PB_TRY(t->block->backward(ctx, t, layer));
        PB_TRY(norm_back(ctx, t, pb_layer_param(m, layer, PB_P_norm1), a->h, a->rstd1));
    }
    if (!embed->trained) return PB_OK;
    return pb_embedding_bwd(ctx, &(pb_embedding_bwd_args){.dy = t->dcur,
                                                          .ids = t->ids,
                                                          .dtable = embed->grad,
                                                          .T = t->T,
                                                          .V = m->g.V,
                                                          .D = m->g.D,
                                                          .accumulate = m->g.tied || t->accumulate,
                                                          .dtype = m->cfg.dtype});
}
