/* token_rows.c - the gradient of a tied embedding over several ranks: its lookup part travels as rows of tokens. */
#include "trainer/step/token_rows.h"

#include "kernels/embedding/embedding.h"
#include "kernels/gradient/gradient.h"
#include "trainer/step/gradients.h"

void pb_token_rows_open(pb_trainer *t)
{
    const pb_model *m = &t->model;
    const size_t rows = (size_t)pb_comm_size(t->cfg.comm) * (size_t)t->cfg.B * (size_t)t->cfg.S;
    const bool less = rows * pb_dtype_size(m->cfg.dtype) < (size_t)m->g.V * sizeof(float);
    t->rows.on = t->cfg.comm && !t->cfg.ordered && m->g.tied && m->outer[PB_P_embed]->trained && less;
}

void pb_token_rows_carve(pb_trainer *t)
{
    pb_token_rows *r = &t->rows;
    const size_t rows = (size_t)pb_comm_size(t->cfg.comm) * (size_t)t->cfg.B * (size_t)t->cfg.S;
    const size_t row = (size_t)t->model.g.D * pb_dtype_size(t->model.cfg.dtype);
    r->ids = pb_carve(&t->gradients.arena, r->on ? rows * sizeof *r->ids : 0);
    r->dy = pb_carve(&t->gradients.arena, r->on ? rows * row : 0);
}

bool pb_token_rows_gathered(const pb_trainer *t)
{
    const pb_gradients *g = &t->gradients;
    return t->rows.on && (t->reduce || g->separate || g->shared.on);
}

int pb_bucket_due(const pb_trainer *t, const pb_bucket *b)
{
    return t->rows.on && b->at == t->model.outer[PB_P_embed]->at ? 0 : b->stage;
}

pb_status pb_token_rows_gather(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_token_rows *r = &t->rows;
    if (!pb_token_rows_gathered(t)) return PB_OK;
    pb_comm_all_gather_args a = {
        .comm = t->cfg.comm, .x = t->ids, .y = r->ids, .count = (size_t)t->T, .dtype = PB_I32, .overlap = true};
    PB_TRY(pb_comm_all_gather(ctx, &a));
    a.x = t->dcur;
    a.y = r->dy;
    a.count = (size_t)t->T * (size_t)t->model.g.D;
    a.dtype = t->model.cfg.dtype;
    return pb_comm_all_gather(ctx, &a);
}

/* Adds this rank's slice of the embedding's buffer to its own sums. */
static pb_status add_slice(pb_ctx *ctx, const pb_trainer *t, const pb_param *embed)
{
    const pb_gradients *g = &t->gradients;
    const pb_slices *s = &g->slices;
    int i = 0;
    while (g->buckets.bucket[i].at != embed->at) i++;
    const size_t n = s->count[(size_t)i * (size_t)s->ranks + (size_t)s->rank];
    return n ? pb_gradient_add(ctx, &(pb_gradient_add_args){.x = embed->grad + pb_slice_at(s, i, s->rank),
                                                            .y = g->shared.own + s->own[i],
                                                            .n = n,
                                                            .add = true})
             : PB_OK;
}

pb_status pb_token_rows_add(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_model *m = &t->model;
    const pb_param *embed = m->outer[PB_P_embed];
    const bool sliced = t->gradients.shared.on;
    pb_dtype dtype = PB_F32;
    void *table = sliced ? embed->grad : pb_gradient_sum(t, embed, &dtype);
    if (!pb_token_rows_gathered(t)) return PB_OK;
    PB_TRY(pb_embedding_bwd(ctx, &(pb_embedding_bwd_args){.dy = t->rows.dy,
                                                          .ids = t->rows.ids,
                                                          .dtable = table,
                                                          .T = pb_comm_size(t->cfg.comm) * t->T,
                                                          .V = m->g.V,
                                                          .D = m->g.D,
                                                          .accumulate = !sliced,
                                                          .dtype = m->cfg.dtype,
                                                          .table_dtype = dtype}));
    return sliced ? add_slice(ctx, t, embed) : PB_OK;
}
