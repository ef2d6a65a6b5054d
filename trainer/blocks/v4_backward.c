/* v4_backward.c - the backward pass of the DeepSeek-V4 attention block, from t->dcur (gradient of proj) to t->dn
 * (gradient of n1). RoPE^-1(o) is recomputed instead of stored, because that is cheap. */
#include <math.h>

#include "kernels/cast/cast.h"
#include "kernels/compressor/compressor.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/indexer/indexer.h"
#include "kernels/indexer_kl/indexer_kl.h"
#include "kernels/linear/linear.h"
#include "kernels/mla_mass/mla_mass.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "kernels/sparse_mla/sparse_mla.h"
#include "trainer/blocks/v4.h"
#include "trainer/step/observe.h"

/* Computes dw = dy^T x, the gradient of parameter `id`, which is the weight of the product y = x w^T. */
static pb_status product_dw(const pb_v4_pass *p, int id, const void *dy, const void *x)
{
    const pb_param *w = pb_v4_param(p, id);
    return pb_linear_dw(p->ctx, &(pb_linear_dw_args){.dy = dy,
                                                     .x = x,
                                                     .dw = w->grad,
                                                     .T = p->t->T,
                                                     .N = (int)w->rows,
                                                     .K = (int)w->cols,
                                                     .accumulate = pb_adds(p->t),
                                                     .dtype = p->dtype});
}

/* Computes dw = dy^T x and dx = dy w, the gradients of parameter `id` and of the input in y = x w^T. */
static pb_status product_back(const pb_v4_pass *p, int id, const void *dy, const void *x, void *dx)
{
    const pb_param *w = pb_v4_param(p, id);
    PB_TRY(pb_linear_dx(
        p->ctx,
        &(pb_linear_dx_args){
            .dy = dy, .w = w->w, .dx = dx, .T = p->t->T, .N = (int)w->rows, .K = (int)w->cols, .dtype = p->dtype}));
    return product_dw(p, id, dy, x);
}

/* Backward of RMSNorm over rows of D elements. Rows of dy are contiguous; rows of x are ldx elements apart, rows of dx
 * lddx elements. */
static pb_status norm_back(const pb_v4_pass *p, int id, const void *dy, const void *x, size_t ldx, const float *rstd,
                           void *dx, size_t lddx, int rows, int D)
{
    const pb_param *gain = pb_v4_param(p, id);
    return pb_rmsnorm_bwd(p->ctx, &(pb_rmsnorm_bwd_args){.dy = dy,
                                                         .x = x,
                                                         .w = gain->w,
                                                         .rstd = rstd,
                                                         .dx = dx,
                                                         .dw = gain->grad,
                                                         .T = rows,
                                                         .G = 1,
                                                         .D = D,
                                                         .lddy = (size_t)D,
                                                         .ldx = ldx,
                                                         .lddx = lddx,
                                                         .accumulate = pb_adds(p->t),
                                                         .dtype = p->dtype});
}

/* Computes the gradient of o from dcur and stores it in v4.dwide. The forward pass applies RoPE^-1 to o; the backward
 * of RoPE^-1 is RoPE. */
static pb_status output_back(const pb_v4_pass *p)
{
    const pb_trainer *t = p->t;
    const pb_v4_geometry *v = p->g->v4;
    const pb_param *w = pb_v4_param(p, PB_P_o_a);
    const int G = v->groups, N = v->o_rank, K = p->g->H * p->g->d / v->groups;
    const size_t ld = (size_t)p->g->H * p->g->d;
    PB_TRY(product_back(p, PB_P_o_b, t->dcur, p->a->low, p->v->dlow));
    PB_TRY(pb_v4_rotate_back(p));
    PB_TRY(pb_grouped_linear_dw(p->ctx, &(pb_grouped_linear_dw_args){.dy = p->v->dlow,
                                                                     .x = p->v->wide,
                                                                     .dw = w->grad,
                                                                     .T = t->T,
                                                                     .G = G,
                                                                     .N = N,
                                                                     .K = K,
                                                                     .accumulate = pb_adds(t),
                                                                     .dtype = p->dtype}));
    PB_TRY(pb_grouped_linear_dx(
        p->ctx,
        &(pb_grouped_linear_dx_args){
            .dy = p->v->dlow, .w = w->w, .dx = p->v->dwide, .T = t->T, .G = G, .N = N, .K = K, .dtype = p->dtype}));
    return pb_rope_fwd(p->ctx, &(pb_rope_fwd_args){.q = p->v->dwide,
                                                   .cos = p->v->cos[p->s.table],
                                                   .sin = p->v->sin[p->s.table],
                                                   .pos = t->pos,
                                                   .qr = p->v->dwide,
                                                   .B = t->cfg.B,
                                                   .S = t->S,
                                                   .H = p->g->H,
                                                   .D = p->g->d,
                                                   .P = pb_row_most(t),
                                                   .ldq = ld,
                                                   .ldqr = ld,
                                                   .R = v->rope,
                                                   .pairing = PB_ROPE_ADJACENT,
                                                   .dtype = p->dtype});
}

/* Backward of attention: computes dq (stored in v4.wide), dkv and the gradient of the sink. The sink's gradient is
 * computed as the weight gradient of a linear layer with input 1, because that op can add to an existing gradient. */
static pb_status attend_back(const pb_v4_pass *p)
{
    const pb_geometry *g = p->g;
    const bool shared = p->t->cfg.context != NULL;
    PB_TRY(pb_v4_gather_keys(p));
    PB_TRY(pb_sparse_mla_bwd(p->ctx, &(pb_sparse_mla_bwd_args){.dO = p->v->dwide,
                                                               .q = p->a->q,
                                                               .kv = pb_v4_keys(p),
                                                               .idx = pb_v4_lists(p->t, p->layer),
                                                               .sink = pb_v4_param(p, PB_P_sink)->w,
                                                               .o = p->a->o,
                                                               .lse = p->a->lse,
                                                               .dq = p->v->wide,
                                                               .dkv = shared ? p->v->dall : p->v->dkv,
                                                               .dsink = p->v->dsink,
                                                               .B = p->t->cfg.B,
                                                               .S = p->t->S,
                                                               .S_kv = p->s.row_kv,
                                                               .H = g->H,
                                                               .D = g->d,
                                                               .V = g->d,
                                                               .W = p->s.W,
                                                               .wide = shared,
                                                               .scale = 1 / sqrtf((float)g->d),
                                                               .dtype = p->dtype}));
    PB_TRY(pb_v4_reduce_keys(p));
    return pb_linear_dw(p->ctx, &(pb_linear_dw_args){.dy = p->v->dsink,
                                                     .x = p->v->one,
                                                     .dw = pb_v4_param(p, PB_P_sink)->grad,
                                                     .T = 1,
                                                     .N = g->H,
                                                     .K = 1,
                                                     .accumulate = pb_adds(p->t),
                                                     .dtype = PB_F32});
}

/* Backward of RoPE for n rows per sequence, with H heads of D elements per row. Row i has the position of token i*step.
 * Sequences of dy are `seq` elements apart (0: contiguous); dx is contiguous. */
static pb_status rotate_back(const pb_v4_pass *p, const void *dy, void *dx, int n, int H, int D, int step, size_t seq)
{
    const size_t ld = (size_t)H * D;
    return pb_rope_bwd(p->ctx, &(pb_rope_bwd_args){.dqr = dy,
                                                   .cos = p->v->cos[p->s.table],
                                                   .sin = p->v->sin[p->s.table],
                                                   .pos = p->t->pos,
                                                   .dq = dx,
                                                   .B = p->t->cfg.B,
                                                   .S = n,
                                                   .H = H,
                                                   .D = D,
                                                   .P = pb_row_most(p->t),
                                                   .lddqr = ld,
                                                   .lddq = ld,
                                                   .seqdqr = seq,
                                                   .ldpos = (size_t)p->t->S,
                                                   .R = p->g->v4->rope,
                                                   .step = step,
                                                   .pairing = PB_ROPE_ADJACENT,
                                                   .dtype = p->dtype});
}

/* Backward of the compressor: computes from dc [B,G,D] the gradients of the values (columns 0 to C-1 of dx) and of the
 * gates (columns C to 2C-1). Rows of x and of dx are ld elements apart. Tokens that belong to no compressed row get
 * gradient 0. With context parallelism, row 0 of dc becomes 0. */
static pb_status pool_back(const pb_v4_pass *p, int ape, void *dc, void *x, void *dx, size_t ld, int C, int D)
{
    const pb_trainer *t = p->t;
    PB_TRY(pb_v4_edge_take(p, dc, D));
    PB_TRY(pb_compressor_bwd(p->ctx, &(pb_compressor_bwd_args){.dc = dc,
                                                               .a = x,
                                                               .z = pb_column(t, x, C),
                                                               .ape = pb_v4_param(p, ape)->w,
                                                               .start = pb_v4_start(p),
                                                               .da = dx,
                                                               .dz = pb_column(t, dx, C),
                                                               .dape = pb_v4_param(p, ape)->grad,
                                                               .B = t->cfg.B,
                                                               .S = t->S,
                                                               .D = D,
                                                               .ratio = p->s.ratio,
                                                               .overlap = p->s.ratio == PB_V4_OVERLAPPING,
                                                               .lda = ld,
                                                               .ldz = ld,
                                                               .ldda = ld,
                                                               .lddz = ld,
                                                               .accumulate = pb_adds(t),
                                                               .in_dtype = p->dtype,
                                                               .dtype = p->dtype}));
    return pb_v4_edge_backward(p, ape, x, dx, ld, C, D);
}

/* Backward of the compressed rows: computes the columns a and z of dlatent from rows S to S+G-1 of dkv. */
static pb_status rows_back(const pb_v4_pass *p)
{
    const pb_trainer *t = p->t;
    const int d = p->g->d, at = p->g->v4->q_rank + d, rows = t->cfg.B * p->s.G;
    if (!p->s.ratio) return PB_OK;
    PB_TRY(
        rotate_back(p, pb_column(t, p->v->dkv, t->S * d), p->v->drow, p->s.G, 1, d, p->s.step, (size_t)p->s.S_kv * d));
    PB_TRY(norm_back(p, PB_P_pool_norm, p->v->drow, p->a->pooled, (size_t)d, p->a->rstd_pooled, p->v->drow, (size_t)d,
                     rows, d));
    return pool_back(p, PB_P_ape, p->v->drow, pb_column(t, p->a->latent, at), pb_column(t, p->v->dlatent, at),
                     (size_t)p->s.width, p->s.C, d);
}

/* Computes the columns kv_a, a and z of dlatent from dkv. */
static pb_status keys_back(const pb_v4_pass *p)
{
    const pb_trainer *t = p->t;
    const int d = p->g->d, at = p->g->v4->q_rank;
    const size_t ld = (size_t)p->s.width;
    PB_TRY(rows_back(p));
    PB_TRY(rotate_back(p, p->v->dkv, p->v->drow, t->S, 1, d, 1, (size_t)p->s.S_kv * d));
    return norm_back(p, PB_P_kv_norm, p->v->drow, pb_column(t, p->a->latent, at), ld, p->a->rstd_kv,
                     pb_column(t, p->v->dlatent, at), ld, t->T, d);
}

/* Computes dqr and the columns q_a of dlatent from dq, which is in v4.wide. */
static pb_status queries_back(const pb_v4_pass *p)
{
    const pb_geometry *g = p->g;
    const size_t ld = (size_t)g->H * g->d, latent = (size_t)p->s.width;
    PB_TRY(rotate_back(p, p->v->wide, p->v->wide, p->t->S, g->H, g->d, 1, 0));
    PB_TRY(pb_rmsnorm_bwd(p->ctx, &(pb_rmsnorm_bwd_args){.dy = p->v->wide,
                                                         .x = p->a->q0,
                                                         .rstd = p->a->rstd_q,
                                                         .dx = p->v->wide,
                                                         .T = p->t->T,
                                                         .G = g->H,
                                                         .D = g->d,
                                                         .lddy = ld,
                                                         .ldx = ld,
                                                         .lddx = ld,
                                                         .dtype = p->dtype}));
    PB_TRY(product_back(p, PB_P_q_b, p->v->wide, p->a->qr, p->v->dqr));
    return norm_back(p, PB_P_latent_norm, p->v->dqr, p->a->latent, latent, p->a->rstd_latent, p->v->dlatent, latent,
                     p->t->T, g->v4->q_rank);
}

/* ---- training the indexer -------------------------------------------------------------------------------- */

/* Computes the indexer's loss, which is the KL divergence between the attention mass of the selected rows and the
 * softmax of their scores. Replaces the scores in b->score by their gradients. */
static pb_status index_loss(const pb_v4_pass *p)
{
    const pb_trainer *t = p->t;
    const pb_geometry *g = p->g;
    const pb_v4_index_back *b = &p->v->index_back;
    const int32_t *picked = p->a->index.pick;
    const int K = p->s.T;
    PB_TRY(pb_mla_mass_fwd(p->ctx, &(pb_mla_mass_fwd_args){.q = p->a->q,
                                                           .kv = pb_v4_keys(p),
                                                           .idx = p->a->idx,
                                                           .lse = p->a->lse,
                                                           .mass = b->mass,
                                                           .B = t->cfg.B,
                                                           .S = t->S,
                                                           .S_kv = p->s.row_kv,
                                                           .H = g->H,
                                                           .D = g->d,
                                                           .W = p->s.W,
                                                           .from = p->s.W - K,
                                                           .n = K,
                                                           .scale = 1 / sqrtf((float)g->d),
                                                           .dtype = p->dtype}));
    PB_TRY(
        pb_indexer_at(p->ctx, &(pb_indexer_at_args){.x = pb_v4_indexer(p), .pick = picked, .score = b->score, .K = K}));
    PB_TRY(pb_indexer_kl_fwd(
        p->ctx,
        &(pb_indexer_kl_fwd_args){
            .score = b->score, .mass = b->mass, .pick = picked, .loss = b->loss + p->layer, .R = t->T, .K = K}));
    return pb_indexer_kl_bwd(p->ctx, &(pb_indexer_kl_bwd_args){.score = b->score,
                                                               .mass = b->mass,
                                                               .pick = picked,
                                                               .scale = t->index_scale,
                                                               .dscore = b->score,
                                                               .R = t->T,
                                                               .K = K});
}

/* Computes the gradients of a layer's indexer parameters. The inputs qr and n1 get no gradient from the indexer's
 * loss. */
static pb_status index_back(const pb_v4_pass *p)
{
    const pb_trainer *t = p->t;
    const pb_v4_index *x = &p->a->index;
    const pb_v4_index_back *b = &p->v->index_back;
    const int H = p->g->v4->index_H, D = p->g->v4->index_d, C = p->s.index_C;
    const size_t ld = (size_t)2 * C + H;
    const bool shared = t->cfg.context != NULL;
    PB_TRY(pb_v4_gather_index(p));
    PB_TRY(index_loss(p));
    PB_TRY(pb_indexer_bwd(p->ctx, &(pb_indexer_bwd_args){.x = pb_v4_indexer(p),
                                                         .pick = x->pick,
                                                         .dscore = b->score,
                                                         .dq = b->dq,
                                                         .dk = shared ? p->v->dindex : b->dk,
                                                         .dw = b->dw,
                                                         .K = p->s.T,
                                                         .wide = shared}));
    PB_TRY(pb_v4_reduce_index(p));
    PB_TRY(rotate_back(p, b->dq, b->dq, t->S, H, D, 1, 0));
    PB_TRY(product_dw(p, PB_P_index_q, b->dq, p->a->qr));
    PB_TRY(rotate_back(p, b->dk, b->dk, p->s.G, 1, D, p->s.step, 0));
    PB_TRY(norm_back(p, PB_P_index_norm, b->dk, x->pooled, (size_t)D, x->rstd, b->dk, (size_t)D, t->cfg.B * p->s.G, D));
    PB_TRY(pool_back(p, PB_P_index_ape, b->dk, x->in, b->din, ld, C, D));
    PB_TRY(pb_cast_bwd(p->ctx, &(pb_cast_bwd_args){.dy = b->dw,
                                                   .dx = pb_column(t, b->din, 2 * C),
                                                   .T = t->T,
                                                   .D = H,
                                                   .lddx = ld,
                                                   .scale = 1 / sqrtf((float)H * (float)D),
                                                   .dtype = p->dtype}));
    return product_dw(p, PB_P_index_in, b->din, t->layers[p->layer].n1);
}

pb_status pb_v4_backward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_v4_pass p = pb_v4_pass_of(ctx, t, layer);
    const size_t wide = (size_t)p.g->H * p.g->d;
    PB_TRY(output_back(&p));
    PB_TRY(pb_observe(t, layer, "grad_o", "grouped_linear_dx+rope_fwd", p.v->dwide, wide, p.g->d));
    PB_TRY(attend_back(&p));
    PB_TRY(pb_observe(t, layer, "grad_q", "sparse_mla_bwd", p.v->wide, wide, p.g->d));
    PB_TRY(keys_back(&p));
    PB_TRY(queries_back(&p));
    if (t->index_scale && p.s.indexed) PB_TRY(index_back(&p));
    PB_TRY(pb_observe(t, layer, "grad_latent", "compressor_bwd+linear_dx+rmsnorm_bwd", p.v->dlatent, p.s.width, 0));
    return product_back(&p, PB_P_latent, p.v->dlatent, t->layers[layer].n1, t->dn);
}
