/* mlp.c - implements mlp.h. */
#include "trainer/step/mlp.h"

#include "kernels/swiglu/swiglu.h"
#include "trainer/step/observe.h"
#include "trainer/step/products.h"

/* The chunk of tokens that begins with number `first`. */
static pb_rows chunk_at(const pb_trainer *t, int first)
{
    const int most = pb_mlp_rows(t), left = t->T - first;
    return (pb_rows){first, left < most ? left : most};
}

static bool in_chunks(const pb_trainer *t) { return pb_mlp_rows(t) < t->T; }

/* Pointer to the first row of a chunk in a tensor [T,D] of the model's dtype. */
static void *row(const pb_trainer *t, void *p, pb_rows r)
{
    return (unsigned char *)p + (size_t)r.first * (size_t)t->model.g.D * pb_dtype_size(t->model.cfg.dtype);
}

static pb_status gate_up(pb_ctx *ctx, const pb_trainer *t, int layer, pb_rows r)
{
    const pb_layer_acts *a = &t->layers[layer];
    return pb_product_fwd(ctx, t, layer, &pb_product_gate_up, r, row(t, a->n2, r), a->gu);
}

static pb_status activate(pb_ctx *ctx, const pb_trainer *t, int layer, pb_rows r)
{
    const pb_model *m = &t->model;
    return pb_swiglu_fwd(
        ctx,
        &(pb_swiglu_fwd_args){.gu = t->layers[layer].gu, .y = t->act, .T = r.n, .I = m->g.I, .dtype = m->cfg.dtype});
}

pb_status pb_mlp_forward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    for (pb_rows r = chunk_at(t, 0); r.n; r = chunk_at(t, r.first + r.n)) {
        PB_TRY(gate_up(ctx, t, layer, r));
        PB_TRY(activate(ctx, t, layer, r));
        PB_TRY(pb_product_fwd(ctx, t, layer, &pb_product_down, r, t->act, row(t, t->proj, r)));
    }
    return PB_OK;
}

pb_status pb_mlp_recompute(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    return in_chunks(t) ? PB_OK : gate_up(ctx, t, layer, pb_all_rows(t));
}

/* Gives the gradient of a tensor of the MLP to the observer; in chunks it is never whole. */
static pb_status observe(const pb_trainer *t, int layer, const char *name, const char *ops, const void *p, size_t cols)
{
    return in_chunks(t) ? PB_OK : pb_observe(t, layer, name, ops, p, cols, 0);
}

static pb_status backward_rows(pb_ctx *ctx, const pb_trainer *t, int layer, pb_rows r)
{
    const pb_model *m = &t->model;
    const pb_layer_acts *a = &t->layers[layer];
    const bool full = m->cfg.tuning == PB_FULL;
    const size_t I = (size_t)m->g.I;
    void *n2 = row(t, a->n2, r), *dcur = row(t, t->dcur, r), *dn = row(t, t->dn, r);
    /* SwiGLU's output is not stored. The adapter of `down` needs it here, before swiglu_bwd runs, so it is recomputed.
     * The gradient of down's own weight is computed later, from the output that swiglu_bwd writes as a by-product. */
    if (pb_has_adapter(t, layer, PB_TARGET_DOWN)) PB_TRY(activate(ctx, t, layer, r));
    if (pb_shares_mlp(t)) PB_TRY(pb_product_adapters(ctx, t, layer, &pb_product_down, r, t->act, row(t, t->proj, r)));
    PB_TRY(pb_product_dx(ctx, t, layer, &pb_product_down, r, dcur, t->act, t->dact));
    PB_TRY(observe(t, layer, "grad_act", pb_product_back_ops(t, layer, &pb_product_down), t->dact, I));
    PB_TRY(pb_swiglu_bwd(ctx, &(pb_swiglu_bwd_args){.dy = t->dact,
                                                    .gu = a->gu,
                                                    .dgu = t->dgu,
                                                    .y = full ? t->act : NULL,
                                                    .T = r.n,
                                                    .I = m->g.I,
                                                    .dtype = m->cfg.dtype}));
    PB_TRY(observe(t, layer, "grad_gu", "swiglu_bwd", t->dgu, 2 * I));
    PB_TRY(pb_product_dx(ctx, t, layer, &pb_product_gate_up, r, t->dgu, n2, dn));
    PB_TRY(pb_product_dw(ctx, t, layer, &pb_product_gate_up, r, t->dgu, n2));
    /* The all-reduce of the layer above overlaps with the products before this one, and takes SMs from them. This one
     * has 130 tiles (qwen2.5-0.5b) for the 132 SMs of an H200: with fewer it needs a second wave, twice the time. */
    return pb_product_dw(ctx, t, layer, &pb_product_down, r, dcur, t->act);
}

pb_status pb_mlp_backward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    for (pb_rows r = chunk_at(t, 0); r.n; r = chunk_at(t, r.first + r.n)) {
        if (in_chunks(t)) PB_TRY(gate_up(ctx, t, layer, r));
        PB_TRY(backward_rows(ctx, t, layer, r));
    }
    return pb_observe(t, layer, "grad_n2", pb_product_back_ops(t, layer, &pb_product_gate_up), t->dn,
                      (size_t)t->model.g.D, 0);
}
