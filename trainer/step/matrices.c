/* matrices.c - lists the blocks that NorMuon orthogonalises, and enqueues its ops in the optimizer phase. */
#include "trainer/step/matrices.h"

#include <math.h>
#include <stdlib.h>

/* ---- dividing tensors into blocks ------------------------------------------------------------------------- */

/* `times` blocks of `rows` rows. */
typedef struct cut {
    size_t rows, times;
} cut;
enum { CUTS = 3 };

/* Returns the tensor's line in model.def; -1: it is part of an adapter. */
static int id_of(const pb_model *m, const pb_param *p)
{
    for (int id = 0; p->layer >= 0 && id < PB_NPARAMS; id++)
        if (pb_layer_param(m, p->layer, id) == p) return id;
    return -1;
}

/* Fills out[CUTS] with the blocks of a tensor, in the order of its rows. */
static void cuts_of(const pb_model *m, const pb_param *p, bool per_head, cut out[CUTS])
{
    const pb_geometry *g = &m->g;
    const pb_v4_geometry *v = g->v4;
    const int ratio = pb_ratio(g, p->layer);
    const size_t C = (size_t)pb_v4_columns(ratio, g->d), d = (size_t)g->d, H = (size_t)g->H, K = (size_t)g->K;
    cut c[CUTS] = {{p->rows, 1}};
    switch (id_of(m, p)) {
    case PB_P_qkv:
        if (per_head) c[0] = (cut){d, H + 2 * K};
        else c[0] = (cut){H * d, 1}, c[1] = (cut){K * d, 2};
        break;
    case PB_P_gate_up: c[0] = (cut){(size_t)g->I, 2}; break;
    case PB_P_q_b: c[0] = per_head ? (cut){d, H} : c[0]; break;
    case PB_P_latent: c[0] = (cut){(size_t)v->q_rank, 1}, c[1] = (cut){d, 1}, c[2] = (cut){C, 2}; break;
    case PB_P_index_q: c[0] = per_head ? (cut){(size_t)v->index_d, (size_t)v->index_H} : c[0]; break;
    case PB_P_index_in:
        c[0] = (cut){(size_t)pb_v4_columns(ratio, v->index_d), 2}, c[1] = (cut){(size_t)v->index_H, 1};
        break;
    case PB_P_o_a: c[0] = (cut){(size_t)v->o_rank, (size_t)v->groups}; break;
    default: break;
    }
    for (int i = 0; i < CUTS; i++) out[i] = c[i];
}

/* Returns the index of a shape, which is added if it is new. */
static int shape_of(pb_matrices *x, size_t rows, size_t cols)
{
    int i = 0;
    while (i < x->shapes && (x->shape[i].rows != (int)rows || x->shape[i].cols != (int)cols)) i++;
    if (i == x->shapes) x->shape[x->shapes++] = (pb_matrix_shape){.rows = (int)rows, .cols = (int)cols};
    return i;
}

/* Adds the blocks of a tensor; with x->block NULL it only counts them. */
static void add_tensor(pb_trainer *t, const pb_param *p, int group)
{
    pb_matrices *x = &t->matrices;
    cut c[CUTS];
    size_t first = 0;
    cuts_of(&t->model, p, t->cfg.normuon.per_head, c);
    for (int i = 0; i < CUTS; i++)
        for (size_t k = 0; c[i].rows && k < c[i].times; k++, first += c[i].rows) {
            if (x->block) {
                const int shape = shape_of(x, c[i].rows, p->cols);
                x->block[x->blocks] = (pb_matrix_block){p, first, c[i].rows, group, shape, 0};
                x->shape[shape].n++;
            }
            x->blocks++;
        }
}

static void list(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    x->blocks = x->shapes = x->tensors = 0;
    for (int g = 0; g < t->ngroups; g++)
        for (int i = t->groups[g].first; i < t->groups[g].first + t->groups[g].n; i++) {
            if (!pb_matrices_take(t, t->trained[i])) continue;
            add_tensor(t, t->trained[i], g);
            x->tensors++;
        }
}

/* Places the blocks in the vector of updates, shape by shape, and divides those of a shape between the ranks. */
static void place(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    const size_t ranks = (size_t)pb_comm_size(t->cfg.comm);
    for (int s = 0; s < x->shapes; s++) {
        pb_matrix_shape *shape = &x->shape[s];
        const size_t one = (size_t)shape->rows * (size_t)shape->cols, n = (size_t)shape->n;
        shape->at = x->elements;
        for (int i = 0; i < x->blocks; i++) {
            if (x->block[i].shape != s) continue;
            x->block[i].at = x->elements;
            x->elements += one;
            x->rows += (size_t)shape->rows;
        }
        for (size_t r = 0; r < ranks; r++)
            x->counts[(size_t)s * ranks + r] = (n * (r + 1) / ranks - n * r / ranks) * one;
    }
}

/* ---- opening and closing ------------------------------------------------------------------------------------ */

static pb_dtype type_of(const pb_trainer *t)
{
    const pb_ns_dtype d = t->cfg.normuon.products;
    return d == PB_NS_DTYPE_F32 ? PB_F32 : d == PB_NS_DTYPE_BF16 ? PB_BF16 : t->model.cfg.dtype;
}

static void carve(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    x->u = pb_carve(&x->arena, x->elements * pb_dtype_size(x->dtype));
    x->factor = pb_carve(&x->arena, x->rows * sizeof *x->factor);
    x->flag = pb_carve(&x->arena, sizeof *x->flag);
    x->block_list = pb_carve(&x->arena, (size_t)x->blocks * sizeof *x->block_list);
    x->piece_list = pb_carve(&x->arena, (size_t)x->blocks * sizeof *x->piece_list);
}

pb_status pb_matrices_open(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    if (t->cfg.optimizer != PB_OPTIMIZER_NORMUON || t->cfg.model.frozen) return PB_OK;
    x->on = true;
    x->dtype = type_of(t);
    list(t); /* counts */
    const size_t n = (size_t)x->blocks + 1;
    x->block = calloc(n, sizeof *x->block);
    x->shape = calloc(n, sizeof *x->shape);
    x->counts = calloc(n * (size_t)pb_comm_size(t->cfg.comm), sizeof *x->counts);
    if (!x->block || !x->shape || !x->counts) return pb_fail(PB_ENOMEM, "no memory for the list of matrices");
    list(t);
    place(t);
    pb_arena_begin(&x->arena, t->ctx);
    carve(t);
    PB_TRY(pb_arena_commit(&x->arena));
    carve(t);
    return PB_OK;
}

void pb_matrices_close(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    if (x->arena.ctx) pb_arena_free(&x->arena);
    free(x->block);
    free(x->shape);
    free(x->counts);
}

pb_status pb_matrices_check(const pb_train_config *c)
{
    const pb_normuon_config *n = &c->normuon;
    if (c->optimizer != PB_OPTIMIZER_NORMUON) return PB_OK;
    if (c->comm && c->shard != PB_SHARD_NONE)
        return pb_fail(PB_EINVAL, "the optimizer normuon needs whole matrices on every rank: use --shard none");
    if (!(n->mu >= 0 && n->mu < 1 && n->beta2 >= 0 && n->beta2 < 1))
        return pb_fail(PB_EINVAL, "normuon: momentum %g, beta2 %g: need numbers from 0 to below 1", (double)n->mu,
                       (double)n->beta2);
    if (!(n->rate >= 0 && isfinite(n->rate)))
        return pb_fail(PB_EINVAL, "normuon: the matrices' learning rate is %g times that of AdamW: need a number",
                       (double)n->rate);
    if (n->steps < 1 || n->steps > PB_NS_STEPS)
        return pb_fail(PB_EINVAL, "normuon: %d Newton-Schulz steps: need 1 to %d", n->steps, PB_NS_STEPS);
    return PB_OK;
}

/* ---- device lists --------------------------------------------------------------------------------------------- */

static pb_normuon_piece piece_of(const pb_trainer *t, const pb_matrix_block *b, float *factor)
{
    const pb_matrices *x = &t->matrices;
    const pb_param *p = b->p;
    const pb_clip_variant variant = t->cfg.clip;
    const size_t first = b->first * p->cols;
    return (pb_normuon_piece){.w = (unsigned char *)p->w + first * pb_dtype_size(p->dtype),
                              .master = p->master ? p->master + first : NULL,
                              .grad = p->sum + first,
                              .m = p->m + first,
                              .u = (unsigned char *)x->u + b->at * pb_dtype_size(x->dtype),
                              .factor = factor,
                              .n = b->rows * p->cols,
                              .rows = (int)b->rows,
                              .cols = (int)p->cols,
                              .wdtype = p->dtype,
                              .clip = variant == PB_CLIP_NONE    ? -1
                                      : variant == PB_CLIP_MULTI ? 0
                                                                 : b->group,
                              .decay = t->cfg.weight_decay};
}

pb_status pb_matrices_write_lists(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    const size_t n = (size_t)x->blocks;
    size_t row = 0;
    if (!n || t->ctx->planning) return PB_OK;
    pb_normuon_piece *pieces = calloc(n, sizeof *pieces);
    pb_normuon_block *blocks = calloc(n, sizeof *blocks);
    pb_status s = pieces && blocks ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the list of matrices");
    for (size_t i = 0; s == PB_OK && i < n; i++) {
        const pb_matrix_block *b = &x->block[i];
        pieces[i] = piece_of(t, b, x->factor + row);
        blocks[i] = (pb_normuon_block){.u = pieces[i].u,
                                       .v = b->p->v + b->first,
                                       .factor = x->factor + row,
                                       .rows = (int)b->rows,
                                       .cols = (int)b->p->cols};
        row += b->rows;
    }
    if (s == PB_OK) s = pb_upload(t->ctx, x->piece_list, pieces, n * sizeof *pieces);
    if (s == PB_OK) s = pb_upload(t->ctx, x->block_list, blocks, n * sizeof *blocks);
    free(pieces);
    free(blocks);
    return s;
}

/* ---- the ops of the phase --------------------------------------------------------------------------------------- */

static pb_normuon_when when(const pb_trainer *t, const float *guard)
{
    const int groups = pb_trainer_clip_groups(t);
    return (pb_normuon_when){.clip = groups ? t->clip : NULL,
                             .loss_scale = t->loss_scale,
                             .loss = t->all_loss,
                             .guard = guard,
                             .nclip = groups,
                             .scale_gradients = t->cfg.clip == PB_CLIP_MULTI};
}

/* True if the op apply writes the momentum, after the guard has decided. */
static bool late(const pb_trainer *t) { return t->cfg.normuon.guard && t->cfg.normuon.momentum == PB_GUARD_RESTORE; }

/* Orthogonalises this rank's blocks of a shape, and gathers those of all ranks. A single block is not worth a
 * collective: every rank computes it. */
static pb_status orthogonalise(pb_ctx *ctx, const pb_trainer *t, int s)
{
    const pb_matrices *x = &t->matrices;
    const pb_matrix_shape *shape = &x->shape[s];
    const int ranks = pb_comm_size(t->cfg.comm), rank = pb_comm_rank(t->cfg.comm);
    const size_t *counts = x->counts + (size_t)s * (size_t)ranks;
    const size_t one = (size_t)shape->rows * (size_t)shape->cols, e = pb_dtype_size(x->dtype);
    const bool shared = ranks > 1 && shape->n > 1;
    size_t first = 0;
    for (int r = 0; shared && r < rank; r++) first += counts[r];
    unsigned char *const all = (unsigned char *)x->u + shape->at * e, *const own = all + first * e;
    const int n = shared ? (int)(counts[rank] / one) : shape->n;
    if (n)
        PB_TRY(pb_newton_schulz_run(ctx, &(pb_newton_schulz_run_args){.x = own,
                                                                      .y = own,
                                                                      .n = n,
                                                                      .R = shape->rows,
                                                                      .C = shape->cols,
                                                                      .variant = t->cfg.normuon.variant,
                                                                      .steps = t->cfg.normuon.steps,
                                                                      .eps = PB_MATRICES_EPS,
                                                                      .dtype = x->dtype}));
    if (!shared) return PB_OK;
    return pb_comm_all_gather(
        ctx, &(pb_comm_all_gather_args){.comm = t->cfg.comm, .x = own, .y = all, .counts = counts, .dtype = x->dtype});
}

/* Sets the flag on all ranks if an update is not finite on any. All ranks call it in every step. */
static pb_status guard(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_matrices *x = &t->matrices;
    PB_TRY(pb_normuon_check(ctx,
                            &(pb_normuon_check_args){.x = x->u, .flag = x->flag, .n = x->elements, .dtype = x->dtype}));
    return pb_comm_agree(
        ctx, &(pb_comm_agree_args){.comm = t->cfg.comm, .x = x->flag, .y = x->flag, .count = 1, .dtype = PB_F32});
}

pb_status pb_matrices_orthogonalise(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_matrices *x = &t->matrices;
    if (!x->on) return PB_OK;
    PB_TRY(pb_normuon_momentum(ctx, &(pb_normuon_momentum_args){.list = x->piece_list,
                                                                .when = when(t, NULL),
                                                                .elements = x->elements,
                                                                .n = x->blocks,
                                                                .mu = t->cfg.normuon.mu,
                                                                .nesterov = t->cfg.normuon.nesterov,
                                                                .keep = !late(t),
                                                                .dtype = x->dtype}));
    for (int s = 0; s < x->shapes; s++) PB_TRY(orthogonalise(ctx, t, s));
    return t->cfg.normuon.guard ? guard(ctx, t) : PB_OK;
}

pb_status pb_matrices_update(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_matrices *x = &t->matrices;
    const pb_normuon_when now = when(t, pb_matrices_guard(t));
    if (!x->on) return PB_OK;
    PB_TRY(pb_normuon_rows(ctx, &(pb_normuon_rows_args){.list = x->block_list,
                                                        .when = now,
                                                        .elements = x->elements,
                                                        .rows = x->rows,
                                                        .n = x->blocks,
                                                        .beta2 = t->cfg.normuon.beta2,
                                                        .dtype = x->dtype}));
    return pb_normuon_apply(ctx, &(pb_normuon_apply_args){.list = x->piece_list,
                                                          .when = now,
                                                          .state = t->state,
                                                          .elements = x->elements,
                                                          .n = x->blocks,
                                                          .rate = t->cfg.normuon.rate,
                                                          .adjust = t->cfg.normuon.adjust,
                                                          .cautious = t->cfg.normuon.cautious,
                                                          .commit = late(t),
                                                          .mu = t->cfg.normuon.mu,
                                                          .dtype = x->dtype});
}
