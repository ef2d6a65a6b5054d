/* gqa_dynamic.c - dynamic-mask attention of the Doge family: biases from the values, key lists from the biases, and
 * attention to the listed keys. The form is that of transformers 5.23 (models/doge/modeling_doge.py): bias = exp(A
 * softplus(dt)), and each query keeps the g->keep keys before it with the largest biases. */
#include <math.h>

#include "kernels/dynmask_attention/dynmask_attention.h"
#include "kernels/dynmask_bias/dynmask_bias.h"
#include "kernels/dynmask_keys/dynmask_keys.h"
#include "trainer/blocks/gqa.h"
#include "trainer/step/products.h"

/* Most keys that a query attends to. */
static int kept(const pb_trainer *t, const pb_gqa_inputs *x)
{
    const int keep = t->model.g.keep;
    return t->cfg.attention == PB_ATTENTION_DENSE || keep > x->keys ? x->keys : keep;
}

/* The biases of all keys. With a cache they are computed again from the cached values for each batch: they are few, and
 * the ops read them without gaps. */
static pb_status biases(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    const pb_param *dt = pb_layer_param(&t->model, layer, PB_P_dt_bias);
    return pb_dynmask_bias_fwd(ctx, &(pb_dynmask_bias_fwd_args){.v = x->v,
                                                                .w = pb_layer_param(&t->model, layer, PB_P_dt)->w,
                                                                .dt = dt ? dt->w : NULL,
                                                                .a = pb_layer_param(&t->model, layer, PB_P_dt_a)->w,
                                                                .u = a->u,
                                                                .bias = a->bias,
                                                                .B = t->cfg.B,
                                                                .S = x->keys,
                                                                .K = g->K,
                                                                .D = g->d,
                                                                .ldv = x->ldv,
                                                                .exponential = true,
                                                                .dtype = t->model.cfg.dtype});
}

static pb_status select_keys(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    const int32_t *starts = t->cfg.context && t->start ? pb_gqa_of(t)->starts : t->start;
    return pb_dynmask_keys_build(ctx, &(pb_dynmask_keys_build_args){.bias = a->bias,
                                                                    .start = starts,
                                                                    .list = a->list,
                                                                    .until = a->until,
                                                                    .B = t->cfg.B,
                                                                    .S = x->keys,
                                                                    .K = t->model.g.K,
                                                                    .L = x->keys,
                                                                    .keep = kept(t, x),
                                                                    .exact = t->cfg.attention != PB_ATTENTION_UNION});
}

pb_status pb_gqa_dynamic_lists(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    PB_TRY(biases(ctx, t, layer, x));
    return select_keys(ctx, t, layer, x);
}

pb_dynmask_attention_fwd_args pb_gqa_dynamic_fwd_args(const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    return (pb_dynmask_attention_fwd_args){.q = x->q,
                                           .k = x->k,
                                           .v = x->v,
                                           .bias = a->bias,
                                           .list = a->list,
                                           .until = a->until,
                                           .o = a->o,
                                           .lse = a->lse,
                                           .B = t->cfg.B,
                                           .S = t->S,
                                           .S_kv = x->keys,
                                           .H = g->H,
                                           .K = g->K,
                                           .D = g->d,
                                           .L = x->keys,
                                           .keep = kept(t, x),
                                           .ldq = x->ldq,
                                           .ldk = x->ldk,
                                           .ldv = x->ldv,
                                           .ldo = (size_t)g->H * g->d,
                                           .scale = 1 / sqrtf((float)g->d),
                                           .dtype = t->model.cfg.dtype};
}

pb_status pb_gqa_dynamic_forward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_dynmask_attention_fwd_args args = pb_gqa_dynamic_fwd_args(t, layer, x);
    PB_TRY(pb_gqa_dynamic_lists(ctx, t, layer, x));
    return pb_dynmask_attention_fwd(ctx, &args);
}

pb_dynmask_attention_bwd_args pb_gqa_dynamic_bwd_args(const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    const pb_gqa *s = pb_gqa_of(t);
    const size_t W = (size_t)pb_qkv_width(g), Q = (size_t)g->H * g->d;
    return (pb_dynmask_attention_bwd_args){.dO = s->dattn,
                                           .q = x->q,
                                           .k = x->k,
                                           .v = x->v,
                                           .bias = a->bias,
                                           .list = a->list,
                                           .until = a->until,
                                           .o = a->o,
                                           .lse = a->lse,
                                           .dq = s->dqkv,
                                           .dk = pb_column(t, s->dqkv, (int)Q),
                                           .dv = pb_column(t, s->dqkv, (g->H + g->K) * g->d),
                                           .dbias = s->dbias,
                                           .B = t->cfg.B,
                                           .S = t->S,
                                           .S_kv = x->keys,
                                           .H = g->H,
                                           .K = g->K,
                                           .D = g->d,
                                           .L = x->keys,
                                           .keep = kept(t, x),
                                           .lddo = Q,
                                           .ldq = x->ldq,
                                           .ldk = x->ldk,
                                           .ldv = x->ldv,
                                           .ldo = Q,
                                           .lddq = W,
                                           .lddk = W,
                                           .lddv = W,
                                           .scale = 1 / sqrtf((float)g->d),
                                           .dtype = t->model.cfg.dtype};
}

pb_status pb_gqa_dynamic_bias_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x, const float *u)
{
    const pb_geometry *g = &t->model.g;
    const pb_param *dt = pb_layer_param(&t->model, layer, PB_P_dt), *A = pb_layer_param(&t->model, layer, PB_P_dt_a);
    return pb_dynmask_bias_bwd(
        ctx, &(pb_dynmask_bias_bwd_args){.dbias = pb_gqa_of(t)->dbias,
                                         .v = x->v,
                                         .w = dt->w,
                                         .a = A->w,
                                         .u = u,
                                         .dv = pb_column(t, pb_gqa_of(t)->dqkv, (g->H + g->K) * g->d),
                                         .dw = pb_grad_of(dt),
                                         .ddt = pb_grad_of(pb_layer_param(&t->model, layer, PB_P_dt_bias)),
                                         .da = pb_grad_of(A),
                                         .B = t->cfg.B,
                                         .S = x->keys,
                                         .K = g->K,
                                         .D = g->d,
                                         .ldv = x->ldv,
                                         .lddv = (size_t)pb_qkv_width(g),
                                         .exponential = true,
                                         .accumulate = pb_adds(t),
                                         .dtype = t->model.cfg.dtype});
}

/* Computes dq, dk, dv and dbias, then the gradients of the biases' parameters. */
pb_status pb_gqa_dynamic_backward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_dynmask_attention_bwd_args args = pb_gqa_dynamic_bwd_args(t, layer, x);
    PB_TRY(pb_dynmask_attention_bwd(ctx, &args));
    return pb_gqa_dynamic_bias_back(ctx, t, layer, x, pb_gqa_layer(t, layer)->u);
}
