/* v4_forward.c - the forward pass of the DeepSeek-V4 attention block: computes t->proj, the block's output, from n1,
 * the output of the layer's first norm. v4.h has the formulas. */
#include <math.h>

#include "kernels/cast/cast.h"
#include "kernels/compressor/compressor.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/indexer/indexer.h"
#include "kernels/kv_qat/kv_qat.h"
#include "kernels/linear/linear.h"
#include "kernels/mla_index/mla_index.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "kernels/sparse_mla/sparse_mla.h"
#include "trainer/blocks/v4.h"

static pb_status product(const pb_v4_pass *p, int id, const void *x, void *y)
{
    const pb_param *w = pb_v4_param(p, id);
    return pb_linear_fwd(
        p->ctx, &(pb_linear_fwd_args){
                    .x = x, .w = w->w, .y = y, .T = p->t->T, .N = (int)w->rows, .K = (int)w->cols, .dtype = p->dtype});
}

/* Computes y [rows,D] = RMSNorm(x) with parameter `id` as gain; rows of x are ldx elements apart. */
static pb_status norm(const pb_v4_pass *p, int id, const void *x, size_t ldx, void *y, float *rstd, int rows, int D)
{
    return pb_rmsnorm_fwd(p->ctx, &(pb_rmsnorm_fwd_args){.x = x,
                                                         .w = pb_v4_param(p, id)->w,
                                                         .y = y,
                                                         .rstd = rstd,
                                                         .T = rows,
                                                         .G = 1,
                                                         .D = D,
                                                         .ldx = ldx,
                                                         .ldy = (size_t)D,
                                                         .eps = p->g->eps,
                                                         .dtype = p->dtype});
}

/* Applies RoPE to the last R elements of each of the H heads of every token, in place. */
static pb_status rotate_heads(const pb_v4_pass *p, void *q, int H, int D)
{
    const size_t ld = (size_t)H * D;
    return pb_rope_fwd(p->ctx, &(pb_rope_fwd_args){.q = q,
                                                   .cos = p->v->cos[p->s.table],
                                                   .sin = p->v->sin[p->s.table],
                                                   .pos = p->t->pos,
                                                   .qr = q,
                                                   .B = p->t->cfg.B,
                                                   .S = p->t->S,
                                                   .H = H,
                                                   .D = D,
                                                   .P = pb_row_most(p->t),
                                                   .ldq = ld,
                                                   .ldqr = ld,
                                                   .R = p->g->v4->rope,
                                                   .pairing = PB_ROPE_ADJACENT,
                                                   .dtype = p->dtype});
}

/* Applies RoPE to n rows x [B,n,D] per sequence. Row i has the position of token i*step, which is the first token of
 * compressed row i for step = ratio. Sequences of y are `seq` elements apart (0: contiguous). */
static pb_status rotate_rows(const pb_v4_pass *p, const void *x, void *y, int n, int D, int step, size_t seq)
{
    return pb_rope_fwd(p->ctx, &(pb_rope_fwd_args){.q = x,
                                                   .cos = p->v->cos[p->s.table],
                                                   .sin = p->v->sin[p->s.table],
                                                   .pos = p->t->pos,
                                                   .qr = y,
                                                   .B = p->t->cfg.B,
                                                   .S = n,
                                                   .H = 1,
                                                   .D = D,
                                                   .P = pb_row_most(p->t),
                                                   .ldq = (size_t)D,
                                                   .ldqr = (size_t)D,
                                                   .seqqr = seq,
                                                   .ldpos = (size_t)p->t->S,
                                                   .R = p->g->v4->rope,
                                                   .step = step,
                                                   .pairing = PB_ROPE_ADJACENT,
                                                   .dtype = p->dtype});
}

/* Pools tokens into compressed rows c [B,G,D]. Columns 0 to C-1 of x are the values, columns C to 2C-1 the gates; rows
 * of x are ld elements apart. */
static pb_status pool(const pb_v4_pass *p, int ape, const void *x, size_t ld, int C, void *c, int D)
{
    PB_TRY(pb_compressor_fwd(p->ctx, &(pb_compressor_fwd_args){.a = x,
                                                               .z = pb_column(p->t, (void *)x, C),
                                                               .ape = pb_v4_param(p, ape)->w,
                                                               .start = pb_v4_start(p),
                                                               .c = c,
                                                               .B = p->t->cfg.B,
                                                               .S = p->t->S,
                                                               .D = D,
                                                               .ratio = p->s.ratio,
                                                               .overlap = p->s.ratio == PB_V4_OVERLAPPING,
                                                               .lda = ld,
                                                               .ldz = ld,
                                                               .in_dtype = p->dtype,
                                                               .dtype = p->dtype}));
    return pb_v4_edge_forward(p, ape, x, ld, C, c, D);
}

/* Writes the key lists `idx`: the tokens of the window, then the compressed rows in `pick`. pick NULL: all compressed
 * rows. */
static pb_status build_list(const pb_v4_pass *p, const int32_t *pick, int32_t *idx)
{
    return pb_mla_index_build(p->ctx, &(pb_mla_index_build_args){.pick = pick,
                                                                 .start = p->t->start,
                                                                 .idx = idx,
                                                                 .B = p->t->cfg.B,
                                                                 .S = p->t->S,
                                                                 .T = p->s.T,
                                                                 .W = p->s.W,
                                                                 .window = p->g->v4->window,
                                                                 .ratio = p->s.step,
                                                                 .offset = p->t->context.rank * p->t->S,
                                                                 .keys = p->s.row});
}

/* ---- the computations of a layer, in order --------------------------------------------------------------- */

static pb_status queries(const pb_v4_pass *p)
{
    const pb_geometry *g = p->g;
    const pb_v4_acts *a = p->a;
    const size_t ld = (size_t)g->H * g->d;
    PB_TRY(norm(p, PB_P_latent_norm, a->latent, (size_t)p->s.width, a->qr, a->rstd_latent, p->t->T, g->v4->q_rank));
    PB_TRY(product(p, PB_P_q_b, a->qr, a->q0));
    PB_TRY(pb_rmsnorm_fwd(p->ctx, &(pb_rmsnorm_fwd_args){.x = a->q0,
                                                         .y = a->q,
                                                         .rstd = a->rstd_q,
                                                         .T = p->t->T,
                                                         .G = g->H,
                                                         .D = g->d,
                                                         .ldx = ld,
                                                         .ldy = ld,
                                                         .eps = g->eps,
                                                         .dtype = p->dtype}));
    return rotate_heads(p, a->q, g->H, g->d);
}

/* Computes kv, the keys of a layer, which are also the values: one row per token, then the compressed rows. */
static pb_status keys(const pb_v4_pass *p)
{
    const pb_trainer *t = p->t;
    const pb_v4_acts *a = p->a;
    const int d = p->g->d, at = p->g->v4->q_rank, rows = t->cfg.B * p->s.G;
    const size_t ld = (size_t)p->s.width, seq = (size_t)p->s.S_kv * d;
    void *kv = t->cfg.kv_qat ? p->v->rows : a->kv;
    PB_TRY(norm(p, PB_P_kv_norm, pb_column(t, a->latent, at), ld, p->v->normed, a->rstd_kv, t->T, d));
    PB_TRY(rotate_rows(p, p->v->normed, kv, t->S, d, 1, seq));
    if (rows > 0) {
        PB_TRY(pool(p, PB_P_ape, pb_column(t, a->latent, at + d), ld, p->s.C, a->pooled, d));
        PB_TRY(norm(p, PB_P_pool_norm, a->pooled, (size_t)d, p->v->normed, a->rstd_pooled, rows, d));
        PB_TRY(rotate_rows(p, p->v->normed, pb_column(t, kv, t->S * d), p->s.G, d, p->s.step, seq));
    }
    if (!t->cfg.kv_qat) return PB_OK;
    const int plain = d - p->g->v4->rope;
    return pb_kv_qat_fwd(p->ctx,
                         &(pb_kv_qat_fwd_args){.x = kv,
                                               .y = a->kv,
                                               .T = t->cfg.B * p->s.S_kv,
                                               .D = d,
                                               .R = p->g->v4->rope,
                                               .block = plain < 64 ? plain : 64,
                                               .ldx = (size_t)d,
                                               .ldy = (size_t)d,
                                               .scale = t->cfg.kv_qat == PB_KV_QAT_F32 ? PB_QAT_F32 : PB_QAT_UE8M0,
                                               .dtype = p->dtype});
}

/* Computes the indexer's queries, compressed keys and head weights. */
static pb_status index_inputs(const pb_v4_pass *p)
{
    const pb_trainer *t = p->t;
    const pb_v4_index *x = &p->a->index;
    const int H = p->g->v4->index_H, D = p->g->v4->index_d, C = p->s.index_C, rows = t->cfg.B * p->s.G;
    const size_t ld = (size_t)2 * C + H;
    PB_TRY(product(p, PB_P_index_q, p->a->qr, x->q));
    PB_TRY(rotate_heads(p, x->q, H, D));
    PB_TRY(product(p, PB_P_index_in, t->layers[p->layer].n1, x->in));
    PB_TRY(pool(p, PB_P_index_ape, x->in, ld, C, x->pooled, D));
    PB_TRY(norm(p, PB_P_index_norm, x->pooled, (size_t)D, x->k, x->rstd, rows, D));
    PB_TRY(rotate_rows(p, x->k, x->k, p->s.G, D, p->s.step, 0));
    return pb_cast_fwd(p->ctx, &(pb_cast_fwd_args){.x = pb_column(t, x->in, 2 * C),
                                                   .y = x->w,
                                                   .T = t->T,
                                                   .D = H,
                                                   .ldx = ld,
                                                   .scale = 1 / sqrtf((float)H * (float)D),
                                                   .dtype = p->dtype});
}

/* Makes the layer's key lists from the indexer's top-k selection. */
static pb_status select_rows(const pb_v4_pass *p)
{
    PB_TRY(index_inputs(p));
    PB_TRY(pb_v4_gather_index(p));
    if (p->s.T > 0)
        PB_TRY(pb_indexer_pick(p->ctx, &(pb_indexer_pick_args){.x = pb_v4_indexer(p),
                                                               .start = p->t->start,
                                                               .pick = p->a->index.pick,
                                                               .K = p->s.T,
                                                               .ratio = p->s.ratio}));
    return build_list(p, p->a->index.pick, p->a->idx);
}

static pb_status attend(const pb_v4_pass *p)
{
    const pb_geometry *g = p->g;
    PB_TRY(pb_v4_gather_keys(p));
    return pb_sparse_mla_fwd(p->ctx, &(pb_sparse_mla_fwd_args){.q = p->a->q,
                                                               .kv = pb_v4_keys(p),
                                                               .idx = pb_v4_lists(p->t, p->layer),
                                                               .sink = pb_v4_param(p, PB_P_sink)->w,
                                                               .o = p->a->o,
                                                               .lse = p->a->lse,
                                                               .B = p->t->cfg.B,
                                                               .S = p->t->S,
                                                               .S_kv = p->s.row_kv,
                                                               .H = g->H,
                                                               .D = g->d,
                                                               .V = g->d,
                                                               .W = p->s.W,
                                                               .scale = 1 / sqrtf((float)g->d),
                                                               .dtype = p->dtype});
}

pb_status pb_v4_rotate_back(const pb_v4_pass *p)
{
    const size_t ld = (size_t)p->g->H * p->g->d;
    return pb_rope_bwd(p->ctx, &(pb_rope_bwd_args){.dqr = p->a->o,
                                                   .cos = p->v->cos[p->s.table],
                                                   .sin = p->v->sin[p->s.table],
                                                   .pos = p->t->pos,
                                                   .dq = p->v->wide,
                                                   .B = p->t->cfg.B,
                                                   .S = p->t->S,
                                                   .H = p->g->H,
                                                   .D = p->g->d,
                                                   .P = pb_row_most(p->t),
                                                   .lddqr = ld,
                                                   .lddq = ld,
                                                   .R = p->g->v4->rope,
                                                   .pairing = PB_ROPE_ADJACENT,
                                                   .dtype = p->dtype});
}

/* Computes low, the input of o_b, from o. */
static pb_status lower(const pb_v4_pass *p)
{
    const pb_v4_geometry *v = p->g->v4;
    PB_TRY(pb_v4_rotate_back(p));
    return pb_grouped_linear_fwd(p->ctx, &(pb_grouped_linear_fwd_args){.x = p->v->wide,
                                                                       .w = pb_v4_param(p, PB_P_o_a)->w,
                                                                       .y = p->a->low,
                                                                       .T = p->t->T,
                                                                       .G = v->groups,
                                                                       .N = v->o_rank,
                                                                       .K = p->g->H * p->g->d / v->groups,
                                                                       .dtype = p->dtype});
}

/* Makes the key lists that do not depend on activations, before the first layer. */
pb_status pb_v4_begin(pb_ctx *ctx, const pb_trainer *t)
{
    for (int i = 0; i < pb_v4_of(t)->nlists; i++) {
        int layer = 0;
        while (t->model.g.v4->ratio[layer] != pb_v4_of(t)->lists[i].ratio) layer++;
        const pb_v4_pass p = pb_v4_pass_of(ctx, t, layer);
        PB_TRY(build_list(&p, NULL, pb_v4_of(t)->lists[i].idx));
    }
    return PB_OK;
}

pb_status pb_v4_recompute(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_v4_pass p = pb_v4_pass_of(ctx, t, layer);
    PB_TRY(product(&p, PB_P_latent, t->layers[layer].n1, p.a->latent));
    PB_TRY(queries(&p));
    PB_TRY(keys(&p));
    if (p.s.indexed) PB_TRY(select_rows(&p));
    PB_TRY(attend(&p));
    return lower(&p);
}

pb_status pb_v4_forward(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    const pb_v4_pass p = pb_v4_pass_of(ctx, t, layer);
    PB_TRY(pb_v4_recompute(ctx, t, layer));
    return product(&p, PB_P_o_b, p.a->low, t->proj);
}
