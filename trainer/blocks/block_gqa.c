/* block_gqa.c - sets up the grouped-query attention block: checks settings, reserves buffers, makes the RoPE tables,
 * and counts FLOPs. */
#include <stdio.h>

#include "trainer/blocks/gqa.h"
#include "trainer/step/products.h"
#include "trainer/step/tensors.h"

static pb_status check(const pb_train_config *c)
{
    const char *name = c->model.geometry->name;
    const bool dynamic = c->model.geometry->keep > 0;
    if (c->attention == PB_ATTENTION_SPARSE && !dynamic) return pb_fail(PB_EINVAL, "%s has no sparse attention", name);
    if (c->attention == PB_ATTENTION_UNION && !dynamic)
        return pb_fail(PB_EINVAL, "%s has no dynamic-mask attention, of which union is a mode", name);
    if (c->attention == PB_ATTENTION_UNION && c->cached)
        return pb_fail(PB_EINVAL,
                       "attention union selects keys by later tokens too, which generation does not have: use sparse");
    if (c->kv_qat != PB_KV_QAT_NONE) return pb_fail(PB_EINVAL, "%s has no FP8 keys and values", name);
    if (c->model.index_loss > 0) return pb_fail(PB_EINVAL, "%s has no indexer to train", name);
    return PB_OK;
}

/* Reserves what attention computes from q, k and v. */
static void carve_attended(pb_trainer *t, int layer)
{
    const pb_geometry *g = &t->model.g;
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype), f = sizeof(float);
    pb_gqa_acts *a = t->layers[layer].block;
    pb_arena *m = &t->acts;
    a->o = pb_carve(m, T * (size_t)g->H * g->d * e);
    a->lse = pb_carve(m, T * g->H * f);
    const size_t rows = T * (size_t)t->context.ranks; /* tokens of whole rows */
    const size_t keys = !g->keep ? 0 : t->cfg.cached ? (size_t)t->cfg.S : rows, biases = keys * g->K;
    a->u = pb_carve(m, biases * f);
    a->bias = pb_carve(m, biases * f);
    a->list = pb_carve(m, biases * sizeof *a->list);
    a->until = pb_carve(m, biases * sizeof *a->until);
}

static void carve_layer(pb_trainer *t, int layer)
{
    const pb_geometry *g = &t->model.g;
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype), f = sizeof(float);
    pb_gqa_acts *a = t->layers[layer].block;
    pb_arena *m = &t->acts;
    a->qkv = pb_carve(m, T * pb_qkv_width(g) * e);
    a->qk = pb_carve(m, g->qk_norm ? T * (size_t)(g->H + g->K) * g->d * e : 0);
    a->rstdq = pb_carve(m, g->qk_norm ? T * g->H * f : 0);
    a->rstdk = pb_carve(m, g->qk_norm ? T * g->K * f : 0);
    carve_attended(t, layer);
}

static void tensors(const pb_trainer *t, int layer, pb_give_tensor give, void *self)
{
    const pb_geometry *g = &t->model.g;
    const size_t T = (size_t)t->T, d = (size_t)g->d, H = (size_t)g->H, K = (size_t)g->K;
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    const pb_dtype dt = t->model.cfg.dtype;
    const char *attends = g->keep ? "dynmask_keys_build+dynmask_attention_fwd" : "attention_fwd";
    char product[PB_OPS_TEXT];
    snprintf(product, sizeof product, "%s%s", pb_product_ops(t, layer, &pb_product_qkv), a->qk ? "" : "+rope_fwd");
    const pb_given all[] = {
        {"qkv", product, a->qkv, T, (size_t)pb_qkv_width(g), dt},
        {"qk", "rmsnorm_fwd+rope_fwd", a->qk, T, (H + K) * d, dt},
        {"bias", "dynmask_bias_fwd", g->keep ? a->bias : NULL, (size_t)t->cfg.B * K, (size_t)t->row, PB_F32,
         .by_head = !t->cfg.context},
        {"o", attends, a->o, T, H * d, dt, .head = g->d},
        {"lse", attends, a->lse, (size_t)t->cfg.B * H, (size_t)t->S, PB_F32, .by_head = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) give(self, &all[i]);
}

static void carve_shared(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const size_t S = (size_t)pb_row_most(t), n = S * (g->d / 2);
    const size_t cache = S * g->L * 2 * g->K * g->d * pb_dtype_size(t->model.cfg.dtype);
    pb_gqa *s = t->block_state;
    s->cos = pb_carve(&t->acts, n * sizeof(float));
    s->sin = pb_carve(&t->acts, n * sizeof(float));
    s->cache = pb_carve(&t->acts, t->cfg.cached ? cache : 0);
    pb_gqa_context_carve(t, false);
}

/* Reserves the buffers of the block's backward pass. dattn uses the memory of dn if it fits: when this pass begins, the
 * gradient of n2 in dn has been read, and the gradient of n1 is written there after dattn has been read. */
static void carve_scratch(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype), heads = (size_t)g->H * g->d;
    pb_gqa *s = t->block_state;
    s->dqkv = pb_carve(&t->acts, T * pb_qkv_width(g) * e);
    s->dattn = heads <= (size_t)g->D ? t->dn : pb_carve(&t->acts, T * heads * e);
    s->dbias = pb_carve(&t->acts, g->keep ? T * g->K * sizeof(float) : 0);
    pb_gqa_context_carve(t, true);
}

static pb_status tables(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    return pb_upload_rotations(t, pb_gqa_of(t)->cos, pb_gqa_of(t)->sin, g->d, g->theta, &g->rope);
}

static pb_status begin(pb_ctx *ctx, const pb_trainer *t)
{
    (void)ctx, (void)t;
    return PB_OK;
}

static bool selects(const pb_trainer *t) { return t->model.g.keep && t->cfg.attention != PB_ATTENTION_DENSE; }

static double scores(const pb_trainer *t, int token)
{
    const pb_geometry *g = &t->model.g;
    return (double)g->L * (selects(t) && token >= g->keep ? g->keep : token + 1);
}

static pb_flops flops(const pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const double S = pb_row_most(t), T = (double)t->cfg.B * t->cfg.S;
    /* With context parallelism, this is the mean of the ranks that share a row.
     * A causal mask leaves half of the S x S scores; of those, with dynamic-mask attention, a query keeps `w` at most.
     * The forward pass has two products (q k^T, and p v with the probabilities p), the backward pass five, one of which
     * recomputes q k^T. */
    const double w = selects(t) && g->keep < S ? g->keep : S;
    const double attention = 2 * T * (w - w * w / (2 * S)) * 2 * g->H * g->d * g->L;
    return (pb_flops){attention, 2.5 * attention, 0.5 * attention};
}

const pb_block pb_block_gqa = {.state_bytes = sizeof(pb_gqa),
                               .layer_bytes = sizeof(pb_gqa_acts),
                               .check = check,
                               .carve_layer = carve_layer,
                               .carve_attended = carve_attended,
                               .carve_shared = carve_shared,
                               .carve_scratch = carve_scratch,
                               .tables = tables,
                               .rows = pb_gqa_dynamic_starts,
                               .begin = begin,
                               .forward = pb_gqa_forward,
                               .recompute = pb_gqa_recompute,
                               .backward = pb_gqa_backward,
                               .tensors = tensors,
                               .scores = scores,
                               .flops = flops};
