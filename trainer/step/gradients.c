/* gradients.c - sums the gradients of a step over its micro-batches and over the ranks. */
#include "trainer/step/gradients.h"

#include <stdlib.h>

#include "kernels/cast/cast.h"
#include "kernels/gradient/gradient.h"
#include "trainer/step/grad_slices.h"
#include "trainer/step/products.h"
#include "trainer/step/token_rows.h"

/* ---- opening and closing ----------------------------------------------------------------------------- */

static void carve(pb_trainer *t)
{
    pb_gradients *g = &t->gradients;
    const size_t n = t->model.vector;
    pb_token_rows_carve(t);
    if (g->shared.on) {
        pb_grad_slices_carve(t);
        return;
    }
    g->narrow = t->cfg.comm && t->cfg.reduce == PB_REDUCE_BF16 ? pb_carve(&g->arena, n * sizeof *g->narrow) : NULL;
    g->sum = g->separate ? pb_carve(&g->arena, n * sizeof *g->sum) : g->each;
}

pb_status pb_gradients_open(pb_trainer *t)
{
    pb_gradients *g = &t->gradients;
    const pb_train_config *c = &t->cfg;
    const pb_model *m = &t->model;
    if (c->ordered && c->reduce != PB_REDUCE_F32)
        return pb_fail(PB_EINVAL, "gradients in the order of the ranks need the reduction in f32");
    if (!m->ordered) return PB_OK;
    const bool shared = m->cfg.no_grads;
    pb_token_rows_open(t);
    const size_t least = (c->bucket_bytes ? c->bucket_bytes : PB_BUCKET_BYTES) / sizeof(float);
    g->separate = (c->ordered || shared) && c->micro_batches > 1;
    g->each = m->order[0]->grad;
    const pb_bucket_ends ends = m->cfg.no_weights      ? PB_ENDS_AFTER_EVERY_STAGE
                                : shared || t->rows.on ? PB_ENDS_AFTER_STAGES
                                                       : PB_ENDS_AFTER_TENSORS;
    PB_TRY(pb_buckets_make(m, c->comm ? least : SIZE_MAX, ends, &g->buckets));
    PB_TRY(
        pb_slices_make(m, &g->buckets, pb_comm_size(c->comm), pb_comm_rank(c->comm), c->normuon.per_head, &g->slices));
    if (shared) PB_TRY(pb_grad_slices_open(t));
    pb_arena_begin_in(&g->arena, t->ctx, m->cfg.grads_source);
    carve(t);
    PB_TRY(pb_arena_commit(&g->arena));
    carve(t);
    for (int i = 0; i < m->ordered && !shared; i++) m->order[i]->sum = g->sum ? g->sum + m->order[i]->at : NULL;
    return PB_OK;
}

void pb_gradients_close(pb_trainer *t)
{
    if (t->gradients.arena.ctx) pb_arena_free(&t->gradients.arena);
    free(t->gradients.buckets.bucket);
    pb_slices_free(&t->gradients.slices);
    pb_grad_slices_close(t);
}

/* ---- rounding to bf16 and back ------------------------------------------------------------------------- */

enum { ROW = 64 }; /* cast_fwd and cast_bwd take rows; the last elements are a row of their own */

pb_status pb_narrow(pb_ctx *ctx, const float *from, uint16_t *to, size_t n)
{
    const size_t rows = n / ROW, rest = n % ROW, at = rows * ROW;
    pb_cast_bwd_args a = {.dy = from, .dx = to, .T = (int)rows, .D = ROW, .lddx = ROW, .scale = 1, .dtype = PB_BF16};
    if (rows) PB_TRY(pb_cast_bwd(ctx, &a));
    a = (pb_cast_bwd_args){
        .dy = from + at, .dx = to + at, .T = 1, .D = (int)rest, .lddx = rest, .scale = 1, .dtype = PB_BF16};
    return rest ? pb_cast_bwd(ctx, &a) : PB_OK;
}

pb_status pb_widen(pb_ctx *ctx, const uint16_t *from, float *to, size_t n)
{
    const size_t rows = n / ROW, rest = n % ROW, at = rows * ROW;
    pb_cast_fwd_args a = {.x = from, .y = to, .T = (int)rows, .D = ROW, .ldx = ROW, .scale = 1, .dtype = PB_BF16};
    if (rows) PB_TRY(pb_cast_fwd(ctx, &a));
    a = (pb_cast_fwd_args){
        .x = from + at, .y = to + at, .T = 1, .D = (int)rest, .ldx = rest, .scale = 1, .dtype = PB_BF16};
    return rest ? pb_cast_fwd(ctx, &a) : PB_OK;
}

/* ---- reducing, next to the backward pass --------------------------------------------------------------- */

/* True if this backward pass adds gradients over the ranks. In a fixed order that is every one, since the next
 * micro-batch of rank 0 comes after this one of the last rank. */
static bool reduces(const pb_trainer *t) { return t->cfg.comm && (t->reduce || t->gradients.separate); }

static pb_status all_reduce(pb_ctx *ctx, const pb_trainer *t, const void *x, void *y, size_t n, pb_dtype dtype)
{
    return pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = t->cfg.comm,
                                                              .x = x,
                                                              .y = y,
                                                              .count = n,
                                                              .dtype = dtype,
                                                              .op = PB_COMM_SUM,
                                                              .ordered = t->cfg.ordered || ctx->deterministic,
                                                              .overlap = true});
}

/* True if each rank gets the sum of its slices only. In a fixed order of several micro-batches per rank, rank 0 needs
 * all of it for the next micro-batch. */
static bool slices_only(const pb_trainer *t) { return t->shards.on && !t->gradients.separate; }

/* Adds this micro-batch to the sum of the micro-batches before it, on rank 0, which comes first in the order of the
 * additions. Returns in *x what this rank adds to the sum over the ranks. */
static pb_status add_own(pb_ctx *ctx, const pb_trainer *t, const pb_bucket *b, const float **x)
{
    const pb_gradients *g = &t->gradients;
    *x = g->each + b->at;
    if (!g->separate || pb_comm_rank(t->cfg.comm) != 0) return PB_OK;
    PB_TRY(
        pb_gradient_add(ctx, &(pb_gradient_add_args){.x = *x, .y = g->sum + b->at, .n = b->n, .add = t->accumulate}));
    *x = g->sum + b->at;
    return PB_OK;
}

/* Adds a bucket x over the ranks to y, of which each rank needs all, or its slice. */
static pb_status reduce(pb_ctx *ctx, const pb_trainer *t, const pb_bucket *b, const void *x, void *y, pb_dtype dtype)
{
    const pb_slices *s = &t->gradients.slices;
    const int i = (int)(b - t->gradients.buckets.bucket);
    if (!slices_only(t)) return all_reduce(ctx, t, x, y, b->n, dtype);
    return pb_comm_reduce_scatter(
        ctx, &(pb_comm_reduce_scatter_args){.comm = t->cfg.comm,
                                            .x = x,
                                            .y = (unsigned char *)y + pb_slice_at(s, i, s->rank) * pb_dtype_size(dtype),
                                            .counts = s->count + (size_t)i * (size_t)s->ranks,
                                            .dtype = dtype,
                                            .op = PB_COMM_SUM,
                                            .ordered = t->cfg.ordered || ctx->deterministic,
                                            .overlap = true});
}

static bool is_one_of(const pb_trainer *t, const pb_param *p, const pb_product *const *products, int n)
{
    for (int i = 0; i < n && p->layer >= 0; i++)
        if (p == pb_layer_param(&t->model, p->layer, products[i]->param)) return true;
    return false;
}

static bool is_of_mlp(const pb_trainer *t, const pb_param *p)
{
    return is_one_of(t, p, (const pb_product *const[]){&pb_product_gate_up, &pb_product_down}, 2);
}

static bool is_product(const pb_trainer *t, const pb_param *p)
{
    return is_of_mlp(t, p) || is_one_of(t, p, (const pb_product *const[]){&pb_product_qkv, &pb_product_o}, 2);
}

/* True if a single op computes the whole gradient of p. The gradient of a tied embedding has two parts, from the head
 * and from the lookup; the lookup's part is added by another op here, unless it travels as rows. */
static bool written_by_one_op(const pb_trainer *t, const pb_param *p)
{
    const pb_model *m = &t->model;
    const bool head_at_once = !t->cfg.loss_chunk || t->T <= t->cfg.loss_chunk;
    if (p == m->outer[PB_P_embed]) return m->g.tied ? head_at_once && pb_token_rows_gathered(t) : true;
    if (p == m->outer[PB_P_head]) return head_at_once;
    const bool mlp_at_once = pb_mlp_rows(t) >= t->T;
    return is_product(t, p) && (mlp_at_once || !is_of_mlp(t, p));
}

/* True if the backward pass of this micro-batch writes the gradient of p to `narrow`. */
static bool written_in_bf16(const pb_trainer *t, const pb_param *p)
{
    return t->gradients.narrow && t->reduce && !t->accumulate && p->dtype == PB_BF16 && written_by_one_op(t, p);
}

void *pb_gradient_written(const pb_trainer *t, const pb_param *p, pb_dtype *dtype)
{
    const bool bf16 = p->trained && written_in_bf16(t, p);
    *dtype = bf16 ? PB_BF16 : PB_F32;
    return bf16 ? (void *)(t->gradients.narrow + p->at) : pb_grad_of(p);
}

static bool written_in_f32(const pb_trainer *t, const pb_param *p) { return !written_in_bf16(t, p); }

/* A run of neighbouring tensors, order[first] to order[end-1], in the vector of gradients. */
typedef struct run {
    int first, end;
    size_t at, n; /* the elements of the tensors and of the gaps between them */
} run;

/* Sets *r to the next run, from order[r->end] on and below element `end`, of tensors that `chosen` selects. Returns
 * false if no further tensor is selected. */
static bool next_run(const pb_trainer *t, size_t end, bool (*chosen)(const pb_trainer *t, const pb_param *p), run *r)
{
    pb_param *const *order = t->model.order;
    const int n = t->model.ordered;
    for (r->first = r->end; r->first < n && order[r->first]->at < end && !chosen(t, order[r->first]);) r->first++;
    for (r->end = r->first; r->end < n && order[r->end]->at < end && chosen(t, order[r->end]);) r->end++;
    if (r->end == r->first) return false;
    r->at = order[r->first]->at;
    r->n = order[r->end - 1]->at + pb_param_n(order[r->end - 1]) - r->at;
    return true;
}

/* Rounds to bf16 what the backward pass has written in f32 of a bucket. */
static pb_status narrow_bucket(pb_ctx *ctx, const pb_trainer *t, const pb_bucket *b)
{
    const pb_gradients *g = &t->gradients;
    run r = {0};
    while (t->model.order[r.end]->at < b->at) r.end++;
    while (next_run(t, b->at + b->n, written_in_f32, &r)) PB_TRY(pb_narrow(ctx, g->each + r.at, g->narrow + r.at, r.n));
    return PB_OK;
}

static pb_status reduce_bucket(pb_ctx *ctx, const pb_trainer *t, const pb_bucket *b)
{
    const pb_gradients *g = &t->gradients;
    const float *x;
    PB_TRY(add_own(ctx, t, b, &x));
    if (!reduces(t)) return PB_OK;
    if (!g->narrow) return reduce(ctx, t, b, x, g->sum + b->at, PB_F32);
    PB_TRY(narrow_bucket(ctx, t, b)); /* each == sum: they differ only with `ordered` */
    return reduce(ctx, t, b, g->narrow + b->at, g->narrow + b->at, PB_BF16);
}

const float *pb_bucket_grad(const pb_trainer *t, const pb_bucket *b)
{
    const pb_model *m = &t->model;
    int i = 0;
    while (m->order[i]->at != b->at) i++;
    return m->order[i]->grad;
}

pb_status pb_gradients_begin(pb_ctx *ctx, const pb_trainer *t)
{
    if (!t->cfg.comm) return PB_OK;
    PB_TRY(pb_comm_all_gather(ctx, &(pb_comm_all_gather_args){.comm = t->cfg.comm,
                                                              .x = t->report,
                                                              .y = t->reports,
                                                              .count = sizeof *t->report / sizeof(float),
                                                              .dtype = PB_F32,
                                                              .overlap = true}));
    return t->reduce ? all_reduce(ctx, t, t->step_loss, t->all_loss, 1, PB_F32) : PB_OK;
}

pb_status pb_gradients_complete(pb_ctx *ctx, const pb_trainer *t, int stage)
{
    const pb_buckets *b = &t->gradients.buckets;
    if (t->gradients.shared.on) return pb_grad_slices_complete(ctx, t, stage);
    for (int i = 0; i < b->n; i++)
        if (pb_bucket_due(t, &b->bucket[i]) == stage) PB_TRY(reduce_bucket(ctx, t, &b->bucket[i]));
    return PB_OK;
}

void *pb_gradient_sum(const pb_trainer *t, const pb_param *p, pb_dtype *dtype)
{
    const pb_clip_variant clip = t->cfg.clip;
    const bool whole = t->gradients.narrow && !t->shards.on;         /* the rank has the bf16 sums of all tensors */
    const bool read = clip == PB_CLIP_MULTI || clip == PB_CLIP_NONE; /* the other variants read f32 only */
    *dtype = whole && read && t->cfg.optimizer == PB_OPTIMIZER_ADAMW ? PB_BF16 : PB_F32;
    return *dtype == PB_BF16 ? (void *)(t->gradients.narrow + p->at) : p->sum;
}

static bool needs_f32(const pb_trainer *t, const pb_param *p)
{
    pb_dtype dtype;
    (void)pb_gradient_sum(t, p, &dtype);
    return dtype == PB_F32;
}

/* Converts the sums of the tensors that are read in f32. Neighbours are converted together. */
static pb_status widen_whole(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_gradients *g = &t->gradients;
    run r = {0};
    while (next_run(t, t->model.vector, needs_f32, &r)) PB_TRY(pb_widen(ctx, g->narrow + r.at, g->sum + r.at, r.n));
    return PB_OK;
}

/* Converts the sums from bf16 to f32: those that are read in f32, or this rank's slices. */
static pb_status widen_sums(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_gradients *g = &t->gradients;
    const pb_slices *s = &g->slices;
    if (!slices_only(t)) return widen_whole(ctx, t);
    for (int i = 0; i < g->buckets.n; i++) {
        const size_t at = g->buckets.bucket[i].at + pb_slice_at(s, i, s->rank);
        PB_TRY(pb_widen(ctx, g->narrow + at, g->sum + at, s->count[(size_t)i * (size_t)s->ranks + (size_t)s->rank]));
    }
    return PB_OK;
}

pb_status pb_gradients_end(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_gradients *g = &t->gradients;
    if (!t->cfg.comm) return PB_OK;
    PB_TRY(pb_token_rows_gather(ctx, t));
    if (g->shared.on) return pb_grad_slices_end(ctx, t);
    PB_TRY(pb_comm_wait(ctx, &(pb_comm_wait_args){.comm = t->cfg.comm}));
    if (g->narrow && t->reduce) PB_TRY(widen_sums(ctx, t));
    return pb_token_rows_add(ctx, t);
}
