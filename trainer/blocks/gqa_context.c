/* gqa_context.c - attention over rows that several ranks share (trainer/parallel/context.h). Each rank has the queries
 * of its tokens and gathers the keys and values of the whole row; the gradients of these are added over the ranks in
 * f32, and each rank gets those of its tokens. The gathered keys and values are not kept: the backward pass gathers
 * them again. */
#include <math.h>

#include "kernels/attention/attention.h"
#include "kernels/cast/cast.h"
#include "kernels/copy/copy.h"
#include "kernels/gradient/gradient.h"
#include "trainer/blocks/gqa.h"
#include "trainer/parallel/row_chunks.h"

pb_gqa_chunk pb_gqa_chunk_of(const pb_trainer *t, int row, int part)
{
    const int length = pb_context_length(&t->context, t->row);
    return (pb_gqa_chunk){.row = row,
                          .length = length,
                          .keys = (pb_context_chunk(&t->context, part) + 1) * length,
                          .token = (size_t)row * (size_t)t->S + (size_t)part * (size_t)length};
}

void pb_gqa_context_carve(pb_trainer *t, bool backward)
{
    pb_gqa *s = t->block_state;
    const size_t e = pb_dtype_size(t->model.cfg.dtype), w = pb_kv_width(t), row = (size_t)pb_row_most(t);
    const size_t T = (size_t)t->cfg.B * (size_t)t->cfg.S, one = t->cfg.context ? 1 : 0, two = t->context.zigzag ? 1 : 0;
    const size_t biases = t->model.g.keep ? one * (size_t)t->model.g.K : 0;
    if (!backward) {
        s->starts = pb_carve(&t->acts, biases && t->cfg.packed ? (size_t)t->cfg.B * row * sizeof *s->starts : 0);
        s->part_bias = pb_carve(&t->acts, biases * row * sizeof *s->part_bias);
        s->kv = pb_carve(&t->acts, one * T * w * e);
        s->all = pb_carve(&t->acts, one * (size_t)t->cfg.B * row * w * e);
        s->blocks = pb_carve(&t->acts, two * row / 2 * w * e);
        return;
    }
    s->dall = pb_carve(&t->acts, one * row * w * sizeof *s->dall);
    s->dpart = pb_carve(&t->acts, two * row * w * sizeof *s->dpart);
    s->dkv = pb_carve(&t->acts, one * T * w * sizeof *s->dkv);
    s->row_dbias = pb_carve(&t->acts, biases * row * sizeof *s->row_dbias);
    s->chunk_dbias = pb_carve(&t->acts, biases * row * sizeof *s->chunk_dbias);
    s->all_dbias = pb_carve(&t->acts, biases * row * sizeof *s->all_dbias);
    s->own_u = pb_carve(&t->acts, biases * T * sizeof *s->own_u);
}

static pb_status copy(pb_ctx *ctx, const pb_trainer *t, const void *x, size_t ldx, void *y, int D)
{
    return pb_copy_rows(
        ctx, &(pb_copy_rows_args){
                 .x = x, .y = y, .T = t->T, .D = D, .ldx = ldx, .ldy = pb_kv_width(t), .dtype = t->model.cfg.dtype});
}

/* One chunk of keys and values, or of their gradients, of every rank. room: see pb_row_chunks. */
static pb_row_chunks chunks_of(const pb_trainer *t, bool second, void *room)
{
    return (pb_row_chunks){.comm = t->cfg.context,
                           .length = pb_context_length(&t->context, t->row),
                           .width = pb_kv_width(t),
                           .reversed = second,
                           .room = room,
                           .ordered = t->cfg.ordered};
}

/* Gathers chunk `part` of a batch row from all ranks into its place in the row. */
static pb_status gather_chunk(pb_ctx *ctx, const pb_trainer *t, int row, int part)
{
    const pb_gqa *s = pb_gqa_of(t);
    const pb_gqa_chunk c = pb_gqa_chunk_of(t, row, part);
    const size_t half = (size_t)part * (size_t)t->context.ranks * (size_t)c.length;
    void *to = pb_token(t, s->all, (size_t)row * (size_t)t->row + half, pb_kv_width(t));
    const pb_row_chunks all = chunks_of(t, part, s->blocks);
    return pb_row_chunks_gather(ctx, &all, pb_token(t, s->kv, c.token, pb_kv_width(t)), to, t->model.cfg.dtype);
}

/* Gathers the keys and values of all rows into s->all. */
static pb_status gather(pb_ctx *ctx, const pb_trainer *t, const pb_gqa_inputs *x)
{
    const pb_gqa *s = pb_gqa_of(t);
    const int half = (int)pb_kv_width(t) / 2;
    PB_TRY(copy(ctx, t, x->k, x->ldk, s->kv, half));
    PB_TRY(copy(ctx, t, x->v, x->ldv, pb_column(t, s->kv, half), half));
    for (int row = 0; row < t->cfg.B; row++)
        for (int part = 0; part < pb_context_parts(&t->context); part++) PB_TRY(gather_chunk(ctx, t, row, part));
    return PB_OK;
}

static pb_status chunk_forward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x,
                               const pb_gqa_chunk *c)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    const size_t Q = (size_t)g->H * (size_t)g->d;
    const void *all = pb_token(t, pb_gqa_of(t)->all, (size_t)c->row * (size_t)t->row, pb_kv_width(t));
    if (g->keep) return pb_gqa_dynamic_chunk(ctx, t, layer, x, c);
    return pb_attention_fwd(ctx, &(pb_attention_fwd_args){.q = pb_token(t, x->q, c->token, x->ldq),
                                                          .k = all,
                                                          .v = pb_token(t, all, 1, pb_kv_width(t) / 2),
                                                          .o = pb_token(t, a->o, c->token, Q),
                                                          .lse = a->lse + c->token * (size_t)g->H,
                                                          .start = t->start ? t->start + c->token : NULL,
                                                          .B = 1,
                                                          .S = c->length,
                                                          .H = g->H,
                                                          .K = g->K,
                                                          .D = g->d,
                                                          .keys = c->keys,
                                                          .ldq = x->ldq,
                                                          .ldk = pb_kv_width(t),
                                                          .ldv = pb_kv_width(t),
                                                          .ldo = Q,
                                                          .scale = 1 / sqrtf((float)g->d),
                                                          .causal = true,
                                                          .dtype = t->model.cfg.dtype});
}

pb_status pb_gqa_context_forward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const int parts = pb_context_parts(&t->context);
    PB_TRY(gather(ctx, t, x));
    if (t->model.g.keep) PB_TRY(pb_gqa_dynamic_begin(ctx, t, layer));
    for (int i = 0; i < t->cfg.B * parts; i++) {
        const pb_gqa_chunk c = pb_gqa_chunk_of(t, i / parts, i % parts);
        PB_TRY(chunk_forward(ctx, t, layer, x, &c));
    }
    return PB_OK;
}

/* Computes dq of a chunk's queries, and writes to dkv [c->keys,2,K,d] their terms of the gradients of the row's keys
 * and values. add, for dynamic-mask attention only: adds the terms of the gradients of the biases to s->row_dbias
 * instead of overwriting them. */
static pb_status chunk_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x, const pb_gqa_chunk *c,
                            float *dkv, bool add)
{
    const pb_geometry *g = &t->model.g;
    const pb_gqa_acts *a = pb_gqa_layer(t, layer);
    const size_t Q = (size_t)g->H * (size_t)g->d, W = (size_t)pb_qkv_width(g);
    const void *all = pb_token(t, pb_gqa_of(t)->all, (size_t)c->row * (size_t)t->row, pb_kv_width(t));
    if (g->keep) return pb_gqa_dynamic_chunk_back(ctx, t, layer, x, c, dkv, add);
    return pb_attention_bwd(ctx, &(pb_attention_bwd_args){.dO = pb_token(t, pb_gqa_of(t)->dattn, c->token, Q),
                                                          .q = pb_token(t, x->q, c->token, x->ldq),
                                                          .k = all,
                                                          .v = pb_token(t, all, 1, pb_kv_width(t) / 2),
                                                          .o = pb_token(t, a->o, c->token, Q),
                                                          .lse = a->lse + c->token * (size_t)g->H,
                                                          .start = t->start ? t->start + c->token : NULL,
                                                          .dq = pb_token(t, pb_gqa_of(t)->dqkv, c->token, W),
                                                          .dk = dkv,
                                                          .dv = dkv + pb_kv_width(t) / 2,
                                                          .B = 1,
                                                          .S = c->length,
                                                          .H = g->H,
                                                          .K = g->K,
                                                          .D = g->d,
                                                          .keys = c->keys,
                                                          .lddo = Q,
                                                          .ldq = x->ldq,
                                                          .ldk = pb_kv_width(t),
                                                          .ldv = pb_kv_width(t),
                                                          .ldo = Q,
                                                          .lddq = W,
                                                          .lddk = pb_kv_width(t),
                                                          .lddv = pb_kv_width(t),
                                                          .scale = 1 / sqrtf((float)g->d),
                                                          .causal = true,
                                                          .wide = true,
                                                          .dtype = t->model.cfg.dtype});
}

/* Sums x [ranks length,2,K,d] over the ranks: gradients of one chunk of each rank, in the order of the row. This rank
 * receives those of its own chunk c. room: NULL for first chunks; for second ones of a zigzag row, memory of x's size. */
static pb_status reduce(pb_ctx *ctx, const pb_trainer *t, const pb_gqa_chunk *c, const float *x, float *room)
{
    const pb_row_chunks all = chunks_of(t, room != NULL, room);
    return pb_row_chunks_reduce(ctx, &all, x, pb_gqa_of(t)->dkv + c->token * pb_kv_width(t));
}

/* Computes dq of this rank's chunks of a batch row, and the gradients of its keys and values. The rank's last chunk
 * attends to the most keys; what the rank adds to the gradients of later keys is 0. */
static pb_status row_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x, int row)
{
    const pb_gqa *s = pb_gqa_of(t);
    const pb_gqa_chunk first = pb_gqa_chunk_of(t, row, 0),
                       last = pb_gqa_chunk_of(t, row, pb_context_parts(&t->context) - 1);
    PB_TRY(chunk_back(ctx, t, layer, x, &last, s->dall, false));
    PB_TRY(pb_copy_rows(ctx, &(pb_copy_rows_args){.y = s->dall + (size_t)last.keys * pb_kv_width(t),
                                                  .T = t->row - last.keys,
                                                  .D = (int)pb_kv_width(t),
                                                  .ldy = pb_kv_width(t)}));
    if (!t->context.zigzag) return reduce(ctx, t, &first, s->dall, NULL);
    PB_TRY(chunk_back(ctx, t, layer, x, &first, s->dpart, true));
    PB_TRY(pb_gradient_add(
        ctx,
        &(pb_gradient_add_args){.x = s->dpart, .y = s->dall, .n = (size_t)first.keys * pb_kv_width(t), .add = true}));
    PB_TRY(reduce(ctx, t, &first, s->dall, NULL));
    return reduce(ctx, t, &last, s->dall + (size_t)t->row / 2 * pb_kv_width(t), s->dpart);
}

pb_status pb_gqa_context_backward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_geometry *g = &t->model.g;
    PB_TRY(gather(ctx, t, x));
    for (int row = 0; row < t->cfg.B; row++) {
        PB_TRY(row_back(ctx, t, layer, x, row));
        if (g->keep) PB_TRY(pb_gqa_dynamic_row_end(ctx, t, row));
    }
    PB_TRY(pb_cast_bwd(ctx, &(pb_cast_bwd_args){.dy = pb_gqa_of(t)->dkv,
                                                .dx = pb_column(t, pb_gqa_of(t)->dqkv, g->H * g->d),
                                                .T = t->T,
                                                .D = (int)pb_kv_width(t),
                                                .lddx = (size_t)pb_qkv_width(g),
                                                .scale = 1,
                                                .dtype = t->model.cfg.dtype}));
    return g->keep ? pb_gqa_dynamic_end(ctx, t, layer, x) : PB_OK;
}
