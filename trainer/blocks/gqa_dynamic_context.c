/* gqa_dynamic_context.c - dynamic-mask attention over rows that several ranks share, for one chunk of a rank's queries
 * at a time. gqa_context.c gathers keys and values, and calls these functions.
 *
 * Every rank computes the biases and the key lists of whole rows from the gathered values. That is little work compared
 * with attention, and the lists have the bits of one rank's. The ops need the biases of a chunk's keys in contiguous
 * memory, so these are copied. The gradients of the biases are summed over the ranks. From the sums, each rank computes
 * the gradients of its own values, and its term of the gradients of the biases' parameters. */
#include "kernels/comm/comm.h"
#include "kernels/copy/copy.h"
#include "kernels/gradient/gradient.h"
#include "trainer/blocks/gqa.h"

/* Copies K rows of n floats; x NULL: zeros. */
static pb_status copy(pb_ctx *ctx, const pb_trainer *t, const float *x, int ldx, float *y, int ldy, int n)
{
    if (n == 0) return PB_OK;
    return pb_copy_rows(
        ctx, &(pb_copy_rows_args){.x = x, .y = y, .T = t->model.g.K, .D = n, .ldx = (size_t)ldx, .ldy = (size_t)ldy});
}

/* The first of a batch row's elements in a tensor [B,K,row]. */
static size_t of_row(const pb_trainer *t, int row) { return (size_t)row * (size_t)t->model.g.K * (size_t)t->row; }

pb_status pb_gqa_dynamic_starts(pb_trainer *t, const pb_batch *b, int S)
{
    if (!t->cfg.context || !t->cfg.packed || !t->model.g.keep) return PB_OK;
    return pb_upload(t->ctx, pb_gqa_of(t)->starts, b->start, (size_t)t->cfg.B * (size_t)S * sizeof *b->start);
}

pb_status pb_gqa_dynamic_begin(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const size_t w = pb_kv_width(t);
    const pb_gqa_inputs rows = {.v = pb_token(t, pb_gqa_of(t)->all, 1, w / 2), .ldv = w, .keys = t->row};
    return pb_gqa_dynamic_lists(ctx, t, layer, &rows);
}

/* Copies the biases of the keys that a chunk sees. */
static pb_status chunk_biases(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_chunk *c)
{
    const float *bias = pb_gqa_layer(t, layer)->bias + of_row(t, c->row);
    return copy(ctx, t, bias, t->row, pb_gqa_of(t)->part_bias, c->keys, c->keys);
}

/* Sets the fields that both passes share: the chunk's queries, and the keys that they may attend to. */
#define SET_CHUNK(args, t, layer, x, c)                                                                                \
    do {                                                                                                               \
        const size_t w_ = pb_kv_width(t), Q_ = (size_t)(t)->model.g.H * (size_t)(t)->model.g.d;                        \
        const pb_gqa_acts *a_ = pb_gqa_layer(t, layer);                                                                \
        (args)->q = pb_token(t, (x)->q, (c)->token, (x)->ldq);                                                         \
        (args)->k = pb_token(t, pb_gqa_of(t)->all, (size_t)(c)->row * (size_t)(t)->row, w_);                           \
        (args)->v = pb_token(t, (args)->k, 1, w_ / 2);                                                                 \
        (args)->bias = pb_gqa_of(t)->part_bias;                                                                        \
        (args)->list = a_->list + of_row(t, (c)->row);                                                                 \
        (args)->until = a_->until + of_row(t, (c)->row);                                                               \
        (args)->o = pb_token(t, a_->o, (c)->token, Q_);                                                                \
        (args)->lse = a_->lse + (c)->token * (size_t)(t)->model.g.H;                                                   \
        (args)->B = 1, (args)->S = (c)->length, (args)->S_kv = (c)->keys, (args)->L = (t)->row;                        \
        (args)->ldk = (args)->ldv = w_;                                                                                \
    } while (0)

pb_status pb_gqa_dynamic_chunk(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x,
                               const pb_gqa_chunk *c)
{
    pb_dynmask_attention_fwd_args args = pb_gqa_dynamic_fwd_args(t, layer, x);
    SET_CHUNK(&args, t, layer, x, c);
    PB_TRY(chunk_biases(ctx, t, layer, c));
    return pb_dynmask_attention_fwd(ctx, &args);
}

pb_status pb_gqa_dynamic_chunk_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x,
                                    const pb_gqa_chunk *c, float *dkv, bool add)
{
    const pb_gqa *s = pb_gqa_of(t);
    const pb_geometry *g = &t->model.g;
    pb_dynmask_attention_bwd_args args = pb_gqa_dynamic_bwd_args(t, layer, x);
    float *to = add ? s->chunk_dbias : s->row_dbias;
    SET_CHUNK(&args, t, layer, x, c);
    args.dO = pb_token(t, s->dattn, c->token, (size_t)g->H * (size_t)g->d);
    args.dq = pb_token(t, s->dqkv, c->token, (size_t)pb_qkv_width(g));
    args.dk = dkv, args.dv = dkv + pb_kv_width(t) / 2;
    args.lddk = args.lddv = pb_kv_width(t);
    args.dbias = s->all_dbias;
    args.wide = true;
    PB_TRY(chunk_biases(ctx, t, layer, c));
    PB_TRY(pb_dynmask_attention_bwd(ctx, &args));
    PB_TRY(copy(ctx, t, s->all_dbias, c->keys, to, t->row, c->keys));
    PB_TRY(copy(ctx, t, NULL, t->row, to + c->keys, t->row, t->row - c->keys)); /* keys after the chunk */
    if (!add) return PB_OK;
    return pb_gradient_add(
        ctx, &(pb_gradient_add_args){.x = to, .y = s->row_dbias, .n = (size_t)g->K * (size_t)t->row, .add = true});
}

pb_status pb_gqa_dynamic_row_end(pb_ctx *ctx, const pb_trainer *t, int row)
{
    const pb_gqa *s = pb_gqa_of(t);
    float *own = s->dbias + (size_t)row * (size_t)t->model.g.K * (size_t)t->S;
    PB_TRY(pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = t->cfg.context,
                                                              .x = s->row_dbias,
                                                              .y = s->all_dbias,
                                                              .count = (size_t)t->model.g.K * (size_t)t->row,
                                                              .dtype = PB_F32,
                                                              .op = PB_COMM_SUM,
                                                              .ordered = t->cfg.ordered || ctx->deterministic}));
    for (int part = 0; part < pb_context_parts(&t->context); part++) {
        const pb_gqa_chunk c = pb_gqa_chunk_of(t, row, part);
        PB_TRY(copy(ctx, t, s->all_dbias + c.keys - c.length, t->row, own + part * c.length, t->S, c.length));
    }
    return PB_OK;
}

pb_status pb_gqa_dynamic_end(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x)
{
    const pb_gqa *s = pb_gqa_of(t);
    const int parts = pb_context_parts(&t->context);
    for (int i = 0; i < t->cfg.B * parts; i++) {
        const pb_gqa_chunk c = pb_gqa_chunk_of(t, i / parts, i % parts);
        const float *u = pb_gqa_layer(t, layer)->u + of_row(t, c.row) + c.keys - c.length;
        float *own = s->own_u + (size_t)c.row * (size_t)t->model.g.K * (size_t)t->S;
        PB_TRY(copy(ctx, t, u, t->row, own + i % parts * c.length, t->S, c.length));
    }
    return pb_gqa_dynamic_bias_back(ctx, t, layer, x, s->own_u);
}
