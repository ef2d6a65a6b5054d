/* activations.c - reserves the device memory of a step: activations, their gradients, and the state of clipping. */
#include "trainer/step/activations.h"

#include <string.h>

#include "trainer/step/products.h"

/* Reserves x A^T of the adapters first .. end-1 of a layer. */
static void carve_adapters(pb_trainer *t, int layer, int first, int end)
{
    const size_t bytes = (size_t)t->T * (size_t)t->model.cfg.rank * pb_dtype_size(t->model.cfg.dtype);
    for (int i = first; i < end; i++)
        t->layers[layer].xa[i] = pb_carve(&t->acts, pb_has_adapter(t, layer, (pb_target)i) ? bytes : 0);
}

static void carve_attention(pb_trainer *t, int layer)
{
    const size_t T = (size_t)t->T;
    pb_layer_acts *a = &t->layers[layer];
    a->rstd1 = pb_carve(&t->acts, T * sizeof *a->rstd1);
    t->block->carve_layer(t, layer);
    carve_adapters(t, layer, PB_TARGET_Q, PB_TARGET_GATE);
}

static void carve_mlp(pb_trainer *t, int layer)
{
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype);
    pb_layer_acts *a = &t->layers[layer];
    a->rstd2 = pb_carve(&t->acts, T * sizeof *a->rstd2);
    a->gu = t->gu;
    if (!pb_shares_mlp(t)) a->gu = pb_carve(&t->acts, T * 2 * t->model.g.I * e);
    carve_adapters(t, layer, PB_TARGET_GATE, PB_NTARGETS);
}

/* True if the buffers of the attention block's backward pass use the memory of hm and n2. That is possible if the layers
 * share hm and n2: the MLP's backward pass, which runs before, is the last to read them. */
static bool scratch_over_stream(const pb_trainer *t)
{
    return !t->cfg.model.frozen && pb_shares_attention(t) && pb_shares_mlp(t);
}

static void carve_scratch(pb_trainer *t)
{
    if (t->block->carve_scratch) t->block->carve_scratch(t);
}

static void *block_of(const pb_trainer *t, int layer)
{
    return (unsigned char *)t->block_layers + (size_t)layer * t->block->layer_bytes;
}

/* Reserves the activations of a layer. What the layers share is layer 0's, including the buffers of its attention
 * block: all of it without a backward pass, else what the backward pass computes again. */
static void carve_layer(pb_trainer *t, int layer)
{
    const size_t row = (size_t)t->T * t->model.g.D * pb_dtype_size(t->model.cfg.dtype);
    const bool first = layer == 0;
    pb_layer_acts *a = &t->layers[layer];
    if (first) *a = (pb_layer_acts){.block = t->block_layers};
    else *a = t->layers[0];
    if (first || !t->cfg.model.frozen) a->h = pb_carve(&t->acts, row);
    if (first || !pb_shares_n1(t)) a->n1 = pb_carve(&t->acts, row);
    if (first || !pb_shares_attention(t)) {
        a->block = block_of(t, layer);
        carve_attention(t, layer);
    } else if (pb_keeps_attended(t)) {
        a->block = memcpy(block_of(t, layer), block_of(t, 0), t->block->layer_bytes);
        t->block->carve_attended(t, layer);
    }
    pb_overlay o = pb_overlay_begin(&t->acts);
    if (first || !pb_shares_attention(t) || !pb_shares_mlp(t)) a->hm = pb_carve(&t->acts, row);
    if (first || !pb_shares_n2(t)) a->n2 = pb_carve(&t->acts, row);
    if (first && scratch_over_stream(t)) pb_overlay_next(&t->acts, &o), carve_scratch(t);
    pb_overlay_end(&t->acts, &o);
    if (first || !pb_shares_mlp(t)) carve_mlp(t, layer);
}

/* Reserves the buffers of one layer's MLP. The gradient dact uses the memory of act, unless the adapter of `down` reads
 * act after dact is written. The gradient dgu uses the memory of gu if gu is computed again, so that it need not be
 * kept. */
static void carve_mlp_work(pb_trainer *t)
{
    const pb_model_config *c = &t->model.cfg;
    const size_t e = pb_dtype_size(c->dtype), act = (size_t)pb_mlp_rows(t) * t->model.g.I * e;
    const bool separate = c->tuning != PB_FULL && (c->targets & 1u << PB_TARGET_DOWN);
    t->gu = pb_carve(&t->acts, pb_shares_mlp(t) ? 2 * act : 0);
    t->act = pb_carve(&t->acts, act);
    if (c->frozen) return;
    t->dact = t->act;
    if (separate) t->dact = pb_carve(&t->acts, act);
    t->dgu = t->gu;
    if (!pb_shares_mlp(t)) t->dgu = pb_carve(&t->acts, 2 * act);
}

/* Reserves what is in use during one part of the step, by all layers: by their MLPs, by the loss with a loss chunk, and
 * by the backward pass of their attention. These share memory. */
static void carve_work(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype), logits = (size_t)pb_logit_rows(t) * g->V * e;
    pb_arena *m = &t->acts;
    t->proj = pb_carve(m, T * g->D * e);
    t->dn = t->proj; /* dn is written when proj has been added to the residual stream */
    pb_overlay o = pb_overlay_begin(m);
    carve_mlp_work(t);
    pb_overlay_next(m, &o);
    if (t->cfg.loss_chunk) t->logits = pb_carve(m, logits);
    pb_overlay_next(m, &o);
    if (!t->cfg.model.frozen && !scratch_over_stream(t)) carve_scratch(t);
    pb_overlay_end(m, &o);
    if (!t->cfg.loss_chunk) t->logits = pb_carve(m, logits);
}

static void carve_backward(pb_trainer *t)
{
    t->dcur = pb_carve(&t->acts, (size_t)t->T * t->model.g.D * pb_dtype_size(t->model.cfg.dtype));
    if (t->block->carve_backward) t->block->carve_backward(t);
}

void pb_activations_carve(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype), f = sizeof(float);
    pb_arena *m = &t->acts;
    t->ids = pb_carve(m, T * sizeof *t->ids);
    t->targets = pb_carve(m, T * sizeof *t->targets);
    t->mask = pb_carve(m, T * f);
    t->inv_count = pb_carve(m, f);
    t->loss_scale = pb_carve(m, f);
    const bool codes = t->cfg.model.moments == PB_ADAMW_8BIT && !t->cfg.model.frozen;
    t->adamw_maps = codes ? pb_carve(m, 2 * 256 * f) : NULL;
    t->index_scale = pb_carve(m, t->cfg.model.index_loss > 0 ? f : 0);
    t->start = pb_carve(m, t->cfg.packed ? T * sizeof *t->start : 0);
    t->pos = pb_carve(m, t->cfg.packed || t->cfg.context ? T * sizeof *t->pos : 0);
    t->block->carve_shared(t);
    carve_work(t);
    const bool learns = !t->cfg.model.frozen;
    for (int i = 0; i < g->L; i++) carve_layer(t, i);
    t->hf = pb_carve(m, T * g->D * e);
    t->nf = t->layers[0].n1;
    if (!pb_shares_nf(t)) t->nf = pb_carve(m, T * g->D * e);
    t->rstdf = pb_carve(m, T * f);
    t->chunk_loss = pb_carve(m, t->cfg.loss_chunk ? f : 0);
    t->nll = pb_carve(m, T * f);
    t->report = pb_carve(m, sizeof *t->report);
    t->reports = t->cfg.comm ? pb_carve(m, (size_t)pb_comm_size(t->cfg.comm) * sizeof *t->reports) : t->report;
    t->step_loss = pb_carve(m, f);
    t->all_loss = t->cfg.comm ? pb_carve(m, f) : t->step_loss;
    if (learns) carve_backward(t);
    t->partial = pb_carve(m, (size_t)t->slots * f);
    t->clip = pb_carve(m, (size_t)t->ngroups * sizeof *t->clip);
    t->clip_list = pb_carve(m, (size_t)t->ntrained * sizeof *t->clip_list);
    t->adamw_list = pb_carve(m, (size_t)pb_adamw_entries(t) * sizeof *t->adamw_list);
    t->state = pb_carve(m, sizeof *t->state);
}
