/* gqa_forward.c - the forward pass of the grouped-query attention block: computes t->proj, the block's output, from n1,
 * the output of the layer's first norm. With a cache, keys and values are those of all tokens of the row so far. */
#include <math.h>

#include "kernels/attention/attention.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "trainer/blocks/gqa.h"
#include "trainer/step/products.h"

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

/* Returns the queries of the batch, and the keys and values of the tokens from position `first` of the cached row on;
 * without a cache, those of the batch. */
static pb_gqa_inputs inputs(const pb_trainer *t, int layer, const pb_gqa_acts *a, int first)
{
    const pb_geometry *g = &t->model.g;
    const size_t width = (size_t)g->K * g->d, row = (size_t)layer * t->cfg.S + first;
    pb_gqa_inputs x = {.v = pb_column(t, a->qkv, (g->H + g->K) * g->d), .ldv = (size_t)pb_qkv_width(g), .keys = t->S};
    pb_attention_inputs(t, a, &x.q, &x.k, &x.ldk);
    x.ldq = x.ldk;
    if (!t->cfg.cached) return x;
    x.k = (unsigned char *)pb_gqa_of(t)->cache + 2 * row * width * pb_dtype_size(t->model.cfg.dtype);
    x.v = pb_column(t, x.k, (int)width);
    x.ldk = x.ldv = 2 * width;
    x.keys = t->first + t->S;
    return x;
}

/* Copies the values of the batch's tokens into the cache. */
static pb_status keep_values(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_acts *a)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_inputs to = inputs(t, layer, a, t->first);
    const unsigned char *from = pb_column(t, a->qkv, (g->H + g->K) * g->d);
    const size_t e = pb_dtype_size(t->model.cfg.dtype);
    for (size_t i = 0; i < (size_t)t->S; i++)
        PB_TRY(pb_copy(ctx, (unsigned char *)to.v + i * to.ldv * e, from + i * (size_t)pb_qkv_width(g) * e,
                       (size_t)g->K * g->d * e));
    return PB_OK;
}

/* Applies QK-norm (Qwen3 only) and then RoPE to q and k. */
static pb_status position(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_acts *a)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_inputs to = inputs(t, layer, a, t->first);
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
                                                .cos = pb_gqa_of(t)->cos,
                                                .sin = pb_gqa_of(t)->sin,
                                                .pos = t->pos,
                                                .qr = q,
                                                .kr = to.k,
                                                .B = t->cfg.B,
                                                .S = t->S,
                                                .H = g->H,
                                                .K = g->K,
                                                .D = g->d,
                                                .P = pb_row_most(t),
                                                .ldq = ld,
                                                .ldk = ld,
                                                .ldqr = ld,
                                                .ldkr = to.ldk,
                                                .first = t->first,
                                                .pairing = PB_ROPE_HALF,
                                                .dtype = t->model.cfg.dtype});
}

static pb_status attend(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_acts *a)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_inputs x = inputs(t, layer, a, 0);
    if (t->cfg.context) return pb_gqa_context_forward(ctx, t, layer, &x);
    if (g->keep) return pb_gqa_dynamic_forward(ctx, t, layer, &x);
    return pb_attention_fwd(ctx, &(pb_attention_fwd_args){.q = x.q,
                                                          .k = x.k,
                                                          .v = x.v,
                                                          .o = a->o,
                                                          .lse = a->lse,
                                                          .start = t->start,
                                                          .B = t->cfg.B,
                                                          .S = t->S,
                                                          .H = g->H,
                                                          .K = g->K,
                                                          .D = g->d,
                                                          .keys = x.keys,
                                                          .ldq = x.ldq,
                                                          .ldk = x.ldk,
                                                          .ldv = x.ldv,
                                                          .ldo = (size_t)g->H * g->d,
                                                          .scale = 1 / sqrtf((float)g->d),
                                                          .causal = true,
                                                          .dtype = t->model.cfg.dtype});
}

/* Computes q, k and v. */
static pb_status project(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    PB_TRY(pb_product_fwd(ctx, t, layer, &pb_product_qkv, pb_all_rows(t), t->layers[layer].n1, a->qkv));
    PB_TRY(position(ctx, t, layer, a));
    return t->cfg.cached ? keep_values(ctx, t, layer, a) : PB_OK;
}

pb_status pb_gqa_forward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    PB_TRY(project(ctx, t, layer));
    PB_TRY(attend(ctx, t, layer, a));
    return pb_product_fwd(ctx, t, layer, &pb_product_o, pb_all_rows(t), a->o, t->proj);
}

pb_status pb_gqa_recompute(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    PB_TRY(project(ctx, t, layer));
    if (pb_keeps_attended(t)) return pb_product_fwd(ctx, t, layer, &pb_product_o, pb_all_rows(t), a->o, t->proj);
    PB_TRY(attend(ctx, t, layer, a));
    return pb_product_adapters(ctx, t, layer, &pb_product_o, pb_all_rows(t), a->o, t->proj);
}
