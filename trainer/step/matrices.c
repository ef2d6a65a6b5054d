/* matrices.c - lists the blocks that NorMuon orthogonalises, and enqueues its ops in the optimizer phase. */
#include "trainer/step/matrices.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/parallel/matrix_cuts.h"
#include "trainer/step/shards.h"

/* ---- listing the blocks ----------------------------------------------------------------------------------- */

/* Returns the index of a shape, which is added if it is new. */
static int shape_of(pb_matrices *x, size_t rows, size_t cols)
{
    int i = 0;
    while (i < x->shapes && (x->shape[i].rows != (int)rows || x->shape[i].cols != (int)cols)) i++;
    if (i == x->shapes) x->shape[x->shapes++] = (pb_matrix_shape){.rows = (int)rows, .cols = (int)cols};
    return i;
}

/* Adds the blocks of a tensor, or those of a piece of it; with x->block NULL it only counts them. */
static void add_blocks(pb_trainer *t, const pb_param *p, const pb_piece *piece, int group)
{
    pb_matrices *x = &t->matrices;
    const size_t from = piece ? piece->first / p->cols : 0, to = piece ? from + piece->n / p->cols : p->rows;
    pb_matrix_cut c[PB_MATRIX_CUTS];
    size_t first = 0;
    pb_matrix_cuts(&t->model, p, t->cfg.normuon.per_head, c);
    for (int i = 0; i < PB_MATRIX_CUTS; i++)
        for (size_t k = 0; c[i].rows && k < c[i].times; k++, first += c[i].rows) {
            if (first < from || first >= to) continue;
            if (x->block) {
                const int shape = shape_of(x, c[i].rows, p->cols);
                x->block[x->blocks] = (pb_matrix_block){p, piece, first, c[i].rows, group, shape, 0};
                x->shape[shape].n++;
            }
            x->blocks++;
        }
    x->parts++;
}

/* Lists the blocks of all tensors that NorMuon trains. */
static void list_all(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    x->blocks = x->shapes = x->parts = 0;
    for (int g = 0; g < t->ngroups; g++)
        for (int i = t->groups[g].first; i < t->groups[g].first + t->groups[g].n; i++)
            if (pb_matrices_take(t, t->trained[i])) add_blocks(t, t->trained[i], NULL, g);
}

/* Lists the blocks that this rank owns. */
static void list_own(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    const pb_slices *s = &t->gradients.slices;
    x->blocks = x->shapes = x->parts = 0;
    for (int i = 0; i < s->n; i++)
        if (pb_matrices_take(t, s->piece[i].p)) add_blocks(t, s->piece[i].p, &s->piece[i], t->shards.group[i]);
}

/* Places the blocks in the vector of updates, shape by shape. */
static void place(pb_matrices *x)
{
    x->elements = x->rows = 0;
    for (int s = 0; s < x->shapes; s++) {
        pb_matrix_shape *shape = &x->shape[s];
        shape->at = x->elements;
        for (int i = 0; i < x->blocks; i++) {
            if (x->block[i].shape != s) continue;
            x->block[i].at = x->elements;
            x->elements += (size_t)shape->rows * (size_t)shape->cols;
            x->rows += (size_t)shape->rows;
        }
    }
}

/* ---- dividing the blocks of replicated state between the ranks ------------------------------------------------ */

static uint64_t cost_of(const pb_matrix_shape *s) { return pb_matrix_cost((size_t)s->rows, (size_t)s->cols); }

/* Among the shapes that several blocks have and that no rank has been given yet, returns the one with the most
 * expensive blocks; -1: none is left. */
static int costliest(const pb_matrices *x, size_t ranks)
{
    int best = -1;
    for (int s = 0; s < x->shapes; s++) {
        size_t given = 0;
        for (size_t r = 0; r < ranks; r++) given += x->counts[(size_t)s * ranks + r];
        if (x->shape[s].n > 1 && !given && (best < 0 || cost_of(&x->shape[s]) > cost_of(&x->shape[best]))) best = s;
    }
    return best;
}

/* Gives each block of a shape to the rank with the lowest cost so far; of equal ones, the first. */
static void give(pb_matrices *x, int s, size_t ranks, uint64_t *load)
{
    const pb_matrix_shape *shape = &x->shape[s];
    for (int i = 0; i < shape->n; i++) {
        size_t least = 0;
        for (size_t r = 1; r < ranks; r++)
            if (load[r] < load[least]) least = r;
        load[least] += cost_of(shape);
        x->counts[(size_t)s * ranks + least] += (size_t)shape->rows * (size_t)shape->cols;
    }
}

static pb_status share(pb_matrices *x, size_t ranks)
{
    x->counts = calloc(((size_t)x->shapes + 1) * ranks, sizeof *x->counts);
    uint64_t *load = calloc(ranks, sizeof *load);
    const pb_status s = x->counts && load ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the list of matrices");
    for (int i; s == PB_OK && (i = costliest(x, ranks)) >= 0;) give(x, i, ranks, load);
    free(load);
    return s;
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

static pb_status make_list(pb_trainer *t, void (*list)(pb_trainer *t))
{
    pb_matrices *x = &t->matrices;
    free(x->block);
    free(x->shape);
    x->block = NULL;
    list(t); /* counts */
    x->block = calloc((size_t)x->blocks + 1, sizeof *x->block);
    x->shape = calloc((size_t)x->blocks + 1, sizeof *x->shape);
    if (!x->block || !x->shape) return pb_fail(PB_ENOMEM, "no memory for the list of matrices");
    list(t);
    place(x);
    return PB_OK;
}

pb_status pb_matrices_open(pb_trainer *t)
{
    pb_matrices *x = &t->matrices;
    if (t->cfg.optimizer != PB_OPTIMIZER_NORMUON || t->cfg.model.frozen) return PB_OK;
    x->on = true;
    x->dtype = type_of(t);
    PB_TRY(make_list(t, list_all));
    x->whole = (pb_matrix_counts){x->parts, x->blocks, x->shapes, x->elements};
    if (t->shards.on) PB_TRY(make_list(t, list_own));
    else PB_TRY(share(x, (size_t)pb_comm_size(t->cfg.comm)));
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

pb_matrix_place pb_matrices_place(const pb_trainer *t, const pb_matrix_block *b)
{
    const pb_piece *x = b->piece;
    const pb_param *p = b->p;
    const size_t at = b->first * p->cols - (x ? x->first : 0), row = b->first - (x ? x->first / p->cols : 0);
    float *const master = x ? pb_shards_master(t, x) : p->master;
    return (pb_matrix_place){.w = (unsigned char *)(x ? pb_shards_w(t, x) : p->w) + at * pb_dtype_size(p->dtype),
                             .master = master ? master + at : NULL,
                             .grad = (x ? pb_shards_grad(t, x) : p->sum) + at,
                             .m = (float *)(x ? pb_shards_m(t, x) : p->m) + at,
                             .v = (float *)(x ? pb_shards_v(t, x) : p->v) + row};
}

static pb_normuon_piece piece_of(const pb_trainer *t, const pb_matrix_block *b, const pb_matrix_place *at,
                                 float *factor)
{
    const pb_matrices *x = &t->matrices;
    const pb_param *p = b->p;
    const pb_clip_variant variant = t->cfg.clip;
    return (pb_normuon_piece){.w = at->w,
                              .master = at->master,
                              .grad = at->grad,
                              .m = at->m,
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
        const pb_matrix_place at = pb_matrices_place(t, b);
        pieces[i] = piece_of(t, b, &at, x->factor + row);
        blocks[i] = (pb_normuon_block){
            .u = pieces[i].u, .v = at.v, .factor = x->factor + row, .rows = (int)b->rows, .cols = (int)b->p->cols};
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

static pb_status factorise(pb_ctx *ctx, const pb_trainer *t, const pb_matrix_shape *shape, void *u, int n)
{
    const pb_normuon_config *c = &t->cfg.normuon;
    if (!n) return PB_OK;
    return pb_newton_schulz_run(ctx, &(pb_newton_schulz_run_args){.x = u,
                                                                  .y = u,
                                                                  .n = n,
                                                                  .R = shape->rows,
                                                                  .C = shape->cols,
                                                                  .variant = c->variant,
                                                                  .steps = c->steps,
                                                                  .eps = PB_MATRICES_EPS,
                                                                  .dtype = t->matrices.dtype});
}

static size_t elements_of(const pb_matrix_shape *s) { return (size_t)s->n * (size_t)s->rows * (size_t)s->cols; }

/* True if the blocks of shape a have more elements than those of shape b; of equal ones, if a comes first. */
static bool larger(const pb_matrices *x, int a, int b)
{
    const size_t na = elements_of(&x->shape[a]), nb = elements_of(&x->shape[b]);
    return na > nb || (na == nb && a < b);
}

/* Returns the shape that is orthogonalised after shape `last` (-1: the first one), or -1: none is left. They go by falling
 * number of elements, because the gather of the last one has no later work that hides it. */
static int shape_after(const pb_matrices *x, int last)
{
    int next = -1;
    for (int s = 0; s < x->shapes; s++)
        if ((last < 0 || larger(x, last, s)) && (next < 0 || larger(x, s, next))) next = s;
    return next;
}

/* True if ranks divide the blocks, and gather their factors. */
static bool gathers(const pb_trainer *t) { return !t->shards.on && pb_comm_size(t->cfg.comm) > 1; }

/* Orthogonalises this rank's blocks of a shape. If the state is not sharded, it also begins to gather those of all ranks,
 * which runs next to the products of the next shape. A single block is not worth a collective: every rank computes it. */
static pb_status orthogonalise(pb_ctx *ctx, const pb_trainer *t, int s)
{
    const pb_matrices *x = &t->matrices;
    const pb_matrix_shape *shape = &x->shape[s];
    const int ranks = pb_comm_size(t->cfg.comm), rank = pb_comm_rank(t->cfg.comm);
    const size_t one = (size_t)shape->rows * (size_t)shape->cols, e = pb_dtype_size(x->dtype);
    unsigned char *const all = (unsigned char *)x->u + shape->at * e;
    if (!gathers(t) || shape->n == 1) return factorise(ctx, t, shape, all, shape->n);
    const size_t *counts = x->counts + (size_t)s * (size_t)ranks;
    size_t first = 0;
    for (int r = 0; r < rank; r++) first += counts[r];
    PB_TRY(factorise(ctx, t, shape, all + first * e, (int)(counts[rank] / one)));
    return pb_comm_all_gather(
        ctx,
        &(pb_comm_all_gather_args){
            .comm = t->cfg.comm, .x = all + first * e, .y = all, .counts = counts, .dtype = x->dtype, .overlap = true});
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
    for (int s = shape_after(x, -1); s >= 0; s = shape_after(x, s)) PB_TRY(orthogonalise(ctx, t, s));
    if (gathers(t)) PB_TRY(pb_comm_wait(ctx, &(pb_comm_wait_args){.comm = t->cfg.comm}));
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
