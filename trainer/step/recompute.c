/* recompute.c - computes the activations of a layer again, for its backward pass. */
#include "trainer/step/recompute.h"

#include "trainer/step/forward.h"
#include "trainer/step/mlp.h"
#include "trainer/step/products.h"

static pb_status attention(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_layer_acts *a = &t->layers[layer];
    PB_TRY(pb_norm(ctx, t, a->h, pb_layer_param(&t->model, layer, PB_P_norm1), a->n1, a->rstd1));
    const bool whole = pb_shares_mlp(t) && !pb_keeps_attended(t);
    return whole ? t->block->forward(ctx, t, layer) : t->block->recompute(ctx, t, layer);
}

static pb_status mlp(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_layer_acts *a = &t->layers[layer];
    const pb_param *gain = pb_layer_param(&t->model, layer, PB_P_norm2);
    const pb_param *factor = pb_layer_param(&t->model, layer, PB_P_residual1);
    PB_TRY(pb_shares_attention(t) ? pb_add_and_norm(ctx, t, a->h, factor, gain, a->hm, a->n2, a->rstd2)
                                  : pb_norm(ctx, t, a->hm, gain, a->n2, a->rstd2));
    return pb_mlp_recompute(ctx, t, layer);
}

/* Computes the output of a norm again if an observer, or the backward pass of the product after it, reads it. */
static pb_status norm1(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_layer_acts *a = &t->layers[layer];
    if (!t->observer && !t->model.g.v4 && !pb_product_reads_input(t, layer, &pb_product_qkv)) return PB_OK;
    return pb_norm(ctx, t, a->h, pb_layer_param(&t->model, layer, PB_P_norm1), a->n1, a->rstd1);
}

static pb_status norm2(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_layer_acts *a = &t->layers[layer];
    if (!t->observer && !pb_reads_n2(t)) return PB_OK;
    return pb_norm(ctx, t, a->hm, pb_layer_param(&t->model, layer, PB_P_norm2), a->n2, a->rstd2);
}

pb_status pb_recompute_layer(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    if (pb_shares_attention(t)) PB_TRY(attention(ctx, t, layer));
    else if (pb_shares_n1(t)) PB_TRY(norm1(ctx, t, layer));
    if (pb_shares_mlp(t)) return mlp(ctx, t, layer);
    return pb_shares_n2(t) ? norm2(ctx, t, layer) : PB_OK;
}
