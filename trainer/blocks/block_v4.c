/* block_v4.c - sets up the DeepSeek-V4 attention block: checks settings, reserves buffers, makes the RoPE tables, and
 * counts FLOPs. */
#include <stdio.h>

#include "trainer/blocks/v4.h"
#include "trainer/step/tensors.h"

static bool sparse(const pb_train_config *c) { return c->attention != PB_ATTENTION_DENSE; }

static pb_status check(const pb_train_config *c)
{
    if (c->model.tuning != PB_FULL)
        return pb_fail(PB_EINVAL, "%s has no adapters: need tuning full", c->model.geometry->name);
    if (c->cached) return pb_fail(PB_EINVAL, "%s has no KV cache", c->model.geometry->name);
    if (c->attention == PB_ATTENTION_UNION)
        return pb_fail(PB_EINVAL, "%s has no dynamic-mask attention, of which union is a mode",
                       c->model.geometry->name);
    if (c->model.index_loss > 0 && !sparse(c))
        return pb_fail(PB_EINVAL, "dense attention has no indexer to train: need index loss 0");
    return PB_OK;
}

pb_v4_shape pb_v4_shape_of(const pb_trainer *t, int layer, int S)
{
    const pb_geometry *g = &t->model.g;
    const pb_v4_geometry *v = g->v4;
    const int ratio = v->ratio[layer], row = S * t->context.ranks, wide = row < v->window ? row : v->window;
    pb_v4_shape s = {.ratio = ratio, .step = ratio > 0 ? ratio : 1};
    s.G = ratio > 0 ? S / ratio : 0;
    s.S_kv = S + s.G;
    s.row = row;
    s.row_G = ratio > 0 ? row / ratio : 0;
    s.row_kv = row + s.row_G;
    s.C = pb_v4_columns(ratio, g->d);
    s.index_C = pb_v4_columns(ratio, v->index_d);
    s.width = v->q_rank + g->d + 2 * s.C;
    s.indexed = ratio == PB_V4_OVERLAPPING && sparse(&t->cfg);
    s.T = s.indexed && s.row_G > v->topk ? v->topk : s.row_G;
    s.W = wide + s.T;
    s.table = ratio > 0 ? PB_V4_COMPRESSED : PB_V4_PLAIN;
    return s;
}

const int32_t *pb_v4_lists(const pb_trainer *t, int layer)
{
    if (pb_v4_shape_of(t, layer, t->S).indexed) return pb_v4_layer(t, layer)->idx;
    int i = 0;
    while (pb_v4_of(t)->lists[i].ratio != t->model.g.v4->ratio[layer]) i++;
    return pb_v4_of(t)->lists[i].idx;
}

pb_v4_pass pb_v4_pass_of(pb_ctx *ctx, const pb_trainer *t, int layer)
{
    return (pb_v4_pass){.ctx = ctx,
                        .t = t,
                        .g = &t->model.g,
                        .a = pb_v4_layer(t, layer),
                        .v = pb_v4_of(t),
                        .layer = layer,
                        .s = pb_v4_shape_of(t, layer, t->S),
                        .dtype = t->model.cfg.dtype};
}

pb_indexer pb_v4_indexer(const pb_v4_pass *p)
{
    return (pb_indexer){.q = p->a->index.q,
                        .k = p->t->cfg.context ? p->v->index_all : p->a->index.k,
                        .w = p->a->index.w,
                        .B = p->t->cfg.B,
                        .S = p->t->S,
                        .G = p->s.row_G,
                        .H = p->g->v4->index_H,
                        .D = p->g->v4->index_d,
                        .offset = p->t->context.rank * p->t->S,
                        .dtype = p->dtype};
}

const pb_param *pb_v4_param(const pb_v4_pass *p, int id) { return pb_layer_param(&p->t->model, p->layer, id); }

/* ---- reserving buffers ------------------------------------------------------------------------------ */

static int larger(int a, int b) { return a > b ? a : b; }

/* Returns the maximum of every dimension over all layers, for buffers that the layers share. `indexed` is true if any
 * layer has an indexer. */
static pb_v4_shape largest(const pb_trainer *t)
{
    pb_v4_shape all = {0};
    for (int i = 0; i < t->model.g.L; i++) {
        const pb_v4_shape s = pb_v4_shape_of(t, i, t->cfg.S);
        all.G = larger(all.G, s.G);
        all.S_kv = larger(all.S_kv, s.S_kv);
        all.row_G = larger(all.row_G, s.row_G);
        all.row_kv = larger(all.row_kv, s.row_kv);
        all.C = larger(all.C, s.C);
        all.width = larger(all.width, s.width);
        all.index_C = larger(all.index_C, s.indexed ? s.index_C : 0);
        all.T = larger(all.T, s.indexed ? s.T : 0);
        all.W = larger(all.W, s.indexed ? s.W : 0);
        all.indexed |= s.indexed;
    }
    return all;
}

/* True if the indexers are trained. */
static bool indexers_trained(const pb_trainer *t) { return t->cfg.model.index_loss > 0 && !t->cfg.model.frozen; }

/* Reserves the buffers of an indexer. Each has at least one element: token rows shorter than `ratio` give no compressed
 * rows, but the ops reject a NULL pointer. */
static pb_v4_index carve_index(pb_trainer *t, const pb_v4_shape *s)
{
    const pb_v4_geometry *g = t->model.g.v4;
    const size_t T = (size_t)t->T, rows = (size_t)t->cfg.B * s->G + 1, e = pb_dtype_size(t->model.cfg.dtype);
    pb_arena *m = &t->acts;
    return (pb_v4_index){.q = pb_carve(m, T * (size_t)g->index_H * g->index_d * e),
                         .in = pb_carve(m, T * (size_t)(2 * s->index_C + g->index_H) * e),
                         .pooled = pb_carve(m, rows * g->index_d * e),
                         .k = pb_carve(m, rows * g->index_d * e),
                         .rstd = pb_carve(m, rows * sizeof(float)),
                         .w = pb_carve(m, T * g->index_H * sizeof(float)),
                         .pick = pb_carve(m, (T * s->T + 1) * sizeof(int32_t))};
}

static void tensors(const pb_trainer *t, int layer, pb_give_tensor give, void *self)
{
    const pb_geometry *g = &t->model.g;
    const size_t T = (size_t)t->T, B = (size_t)t->cfg.B, H = (size_t)g->H, d = (size_t)g->d;
    const pb_v4_shape s = pb_v4_shape_of(t, layer, t->S);
    const pb_v4_acts *a = t->layers[layer].block;
    const pb_dtype dt = t->model.cfg.dtype;
    char keys[PB_OPS_TEXT];
    snprintf(keys, sizeof keys, "rmsnorm_fwd+rope_fwd%s%s", s.G ? "+compressor_fwd" : "",
             t->cfg.kv_qat ? "+kv_qat_fwd" : "");
    const pb_given all[] = {
        {"latent", "linear_fwd", a->latent, T, (size_t)s.width, dt},
        {"qr", "rmsnorm_fwd", a->qr, T, (size_t)g->v4->q_rank, dt},
        {"q", "linear_fwd+rmsnorm_fwd+rope_fwd", a->q, T, H * d, dt, .head = g->d},
        {"kv", keys, a->kv, B * (size_t)s.S_kv, d, dt},
        {"idx", s.indexed ? "indexer_pick+mla_index_build" : "mla_index_build", pb_v4_lists(t, layer), T, (size_t)s.W,
         PB_I32},
        {"o", "sparse_mla_fwd", a->o, T, H * d, dt, .head = g->d},
        {"lse", "sparse_mla_fwd", a->lse, T, H, PB_F32, .head = 1},
        {"low", "rope_bwd+grouped_linear_fwd", a->low, T, (size_t)g->v4->groups * (size_t)g->v4->o_rank, dt},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) give(self, &all[i]);
}

/* Reserves the activations of a layer. If all layers share one set, it has the largest layer's size. */
static void carve_layer(pb_trainer *t, int layer)
{
    const pb_geometry *g = &t->model.g;
    const pb_v4_shape s = pb_shares_attention(t) ? largest(t) : pb_v4_shape_of(t, layer, t->cfg.S);
    const size_t T = (size_t)t->T, B = (size_t)t->cfg.B, e = pb_dtype_size(t->model.cfg.dtype), f = sizeof(float);
    const size_t q = T * (size_t)g->H * g->d;
    pb_v4_acts *a = t->layers[layer].block;
    pb_arena *m = &t->acts;
    a->latent = pb_carve(m, T * s.width * e);
    a->rstd_latent = pb_carve(m, T * f);
    a->qr = pb_carve(m, T * g->v4->q_rank * e);
    a->q0 = pb_carve(m, q * e);
    a->q = pb_carve(m, q * e);
    a->rstd_q = pb_carve(m, T * g->H * f);
    a->rstd_kv = pb_carve(m, T * f);
    a->kv = pb_carve(m, B * s.S_kv * g->d * e);
    a->pooled = pb_carve(m, B * s.G * g->d * e);
    a->rstd_pooled = pb_carve(m, B * s.G * f);
    a->idx = pb_carve(m, s.indexed ? T * s.W * sizeof *a->idx : 0);
    a->index = indexers_trained(t) && s.indexed ? carve_index(t, &s) : pb_v4_of(t)->index;
    a->o = pb_carve(m, q * e);
    a->lse = pb_carve(m, T * g->H * f);
    a->low = pb_carve(m, T * (size_t)g->v4->groups * g->v4->o_rank * e);
}

static void carve_lists(pb_trainer *t)
{
    pb_v4 *v = t->block_state;
    v->nlists = 0;
    for (int layer = 0; layer < t->model.g.L; layer++) {
        const pb_v4_shape s = pb_v4_shape_of(t, layer, t->cfg.S);
        int i = 0;
        while (i < v->nlists && v->lists[i].ratio != s.ratio) i++;
        if (s.indexed || i < v->nlists) continue;
        v->lists[v->nlists++] = (pb_v4_list){s.ratio, pb_carve(&t->acts, (size_t)t->T * s.W * sizeof(int32_t))};
    }
}

static void carve_shared(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const pb_v4_shape s = largest(t);
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype), f = sizeof(float);
    const size_t n = (size_t)pb_row_most(t) * (g->v4->rope / 2);
    pb_v4 *v = t->block_state;
    for (int i = 0; i < PB_V4_TABLES; i++) {
        v->cos[i] = pb_carve(&t->acts, n * f);
        v->sin[i] = pb_carve(&t->acts, n * f);
    }
    v->one = pb_carve(&t->acts, f);
    carve_lists(t);
    if (s.indexed && !indexers_trained(t)) v->index = carve_index(t, &s);
    v->wide = pb_carve(&t->acts, T * (size_t)g->H * g->d * e);
    v->normed = pb_carve(&t->acts, T * g->d * e);
    v->rows = pb_carve(&t->acts, t->cfg.kv_qat ? (size_t)t->cfg.B * s.S_kv * g->d * e : 0);
    pb_v4_context_carve(t, &s, false);
}

static void carve_index_back(pb_trainer *t, const pb_v4_shape *s)
{
    const size_t slots = ((size_t)t->T * s->T + 1) * sizeof(float);
    const pb_v4_index like = carve_index(t, s);
    pb_v4 *v = t->block_state;
    v->index_back = (pb_v4_index_back){.mass = pb_carve(&t->acts, slots),
                                       .score = pb_carve(&t->acts, slots),
                                       .loss = pb_carve(&t->acts, (size_t)t->model.g.L * sizeof(float)),
                                       .dq = like.q,
                                       .dk = like.k,
                                       .din = like.in,
                                       .dw = like.w};
}

static void carve_backward(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const pb_v4_shape s = largest(t);
    const size_t T = (size_t)t->T, e = pb_dtype_size(t->model.cfg.dtype);
    pb_v4 *v = t->block_state;
    pb_arena *m = &t->acts;
    v->dwide = pb_carve(m, T * (size_t)g->H * g->d * e);
    v->dlow = pb_carve(m, T * (size_t)g->v4->groups * g->v4->o_rank * e);
    v->dqr = pb_carve(m, T * g->v4->q_rank * e);
    v->dlatent = pb_carve(m, T * s.width * e);
    v->dkv = pb_carve(m, (size_t)t->cfg.B * s.S_kv * g->d * e);
    v->drow = pb_carve(m, T * g->d * e);
    v->dsink = pb_carve(m, g->H * sizeof(float));
    if (indexers_trained(t)) carve_index_back(t, &s);
    pb_v4_context_carve(t, &s, true);
}

static pb_status tables(pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const float one = 1;
    pb_v4 *v = t->block_state;
    PB_TRY(pb_upload(t->ctx, v->one, &one, sizeof one));
    PB_TRY(pb_upload_rotations(t, v->cos[PB_V4_PLAIN], v->sin[PB_V4_PLAIN], g->v4->rope, g->theta, NULL));
    return pb_upload_rotations(t, v->cos[PB_V4_COMPRESSED], v->sin[PB_V4_COMPRESSED], g->v4->rope,
                               g->v4->compress_theta, &g->v4->compress_rope);
}

/* ---- counting FLOPs ------------------------------------------------------------------------------------ */

/* Compressed rows that token i of a row may see in a layer. */
static int visible_rows(const pb_v4_shape *s, int i) { return s->ratio > 0 ? (i + 1) / s->ratio : 0; }

/* Keys that token i of a row attends to in a layer. */
static double keys_of(const pb_trainer *t, const pb_v4_shape *s, int i)
{
    const int window = t->model.g.v4->window, rows = visible_rows(s, i);
    return (i + 1 < window ? i + 1 : window) + (rows < s->T ? rows : s->T);
}

static double scores(const pb_trainer *t, int token)
{
    double sum = 0;
    for (int layer = 0; layer < t->model.g.L; layer++) {
        const pb_v4_shape s = pb_v4_shape_of(t, layer, t->cfg.S);
        sum += keys_of(t, &s, token);
    }
    return sum;
}

/* FLOPs of attention and of the indexer. Attention has two products per listed key in the forward pass, and five in the
 * backward pass, one of which recomputes scores. The indexer scores all visible compressed rows. pb_trainer_flops
 * counts the products of the indexer's weights in both passes; this function corrects that count, because the input of
 * these products gets no gradient, and because they are not computed if no layer uses its indexer. Training the
 * indexer also computes attention mass and scores of the selected rows; they are small and not counted. With context
 * parallelism, this is the mean of the ranks that share a row. */
static pb_flops flops(const pb_trainer *t)
{
    const pb_geometry *g = &t->model.g;
    const pb_v4_geometry *v = g->v4;
    const double T = (double)t->cfg.B * t->cfg.S, B = (double)t->cfg.B / t->context.ranks;
    pb_flops f = {0};
    for (int layer = 0; layer < g->L; layer++) {
        const pb_v4_shape s = pb_v4_shape_of(t, layer, t->cfg.S);
        double seen = 0, scored = 0;
        for (int i = 0; i < s.row; i++) {
            seen += keys_of(t, &s, i);
            scored += s.indexed ? visible_rows(&s, i) : 0;
        }
        const double attention = 4 * B * seen * g->H * g->d;
        f.forward += attention + 2 * B * scored * v->index_H * v->index_d;
        f.backward += 2.5 * attention;
        f.again += 0.5 * attention;
        for (int id = PB_P_index_q; id <= PB_P_index_in; id++) {
            const pb_param *p = pb_layer_param(&t->model, layer, id);
            const double product = p ? 2 * T * (double)pb_param_n(p) : 0;
            f.backward -= product;
            f.forward -= s.indexed ? 0 : product;
        }
    }
    return f;
}

static pb_status own_loss(const pb_trainer *t, double *loss)
{
    float layer[PB_V4_RATIOS];
    const int L = t->model.g.L;
    PB_TRY(pb_download(t->ctx, layer, pb_v4_of(t)->index_back.loss, (size_t)L * sizeof *layer));
    for (int i = 0; i < L; i++) *loss += (double)layer[i] * (double)t->cfg.model.index_loss * (double)t->host_inv_count;
    return PB_OK;
}

const pb_block pb_block_v4 = {.state_bytes = sizeof(pb_v4),
                              .layer_bytes = sizeof(pb_v4_acts),
                              .check = check,
                              .carve_layer = carve_layer,
                              .tensors = tensors,
                              .carve_shared = carve_shared,
                              .carve_backward = carve_backward,
                              .tables = tables,
                              .rows = pb_v4_context_rows,
                              .begin = pb_v4_begin,
                              .forward = pb_v4_forward,
                              .recompute = pb_v4_recompute,
                              .backward = pb_v4_backward,
                              .own_loss = own_loss,
                              .scores = scores,
                              .flops = flops};
