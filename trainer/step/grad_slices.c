/* grad_slices.c - gradients of which each rank keeps its slices only. */
#include "trainer/step/grad_slices.h"

#include <stdlib.h>

#include "kernels/gradient/gradient.h"
#include "trainer/step/gradients.h"
#include "trainer/step/token_rows.h"

/* ---- memory --------------------------------------------------------------------------------------------- */

/* True if the gradients of a bucket are written by stages that are far apart, so that it needs a buffer of its own. */
static bool stays(const pb_model *m, const pb_bucket *b)
{
    return b->at >= m->wide || (m->g.tied && b->stage == m->g.L + 1);
}

static size_t own_count(const pb_trainer *t, int bucket)
{
    const pb_slices *s = &t->gradients.slices;
    return s->count[(size_t)bucket * (size_t)s->ranks + (size_t)s->rank];
}

/* The largest slice of this rank, and the largest bucket, in elements. */
static void largest(const pb_trainer *t, size_t *slice, size_t *bucket)
{
    const pb_buckets *b = &t->gradients.buckets;
    *slice = *bucket = 0;
    for (int i = 0; i < b->n; i++) {
        if (own_count(t, i) > *slice) *slice = own_count(t, i);
        if (b->bucket[i].n > *bucket) *bucket = b->bucket[i].n;
    }
}

/* Points the gradients of bucket b to its buffer. */
static void place(pb_trainer *t, const pb_bucket *b, float *buffer)
{
    const pb_model *m = &t->model;
    for (int i = 0; i < m->ordered; i++) {
        pb_param *p = m->order[i];
        if (p->at < b->at || p->at >= b->at + b->n) continue;
        p->grad = buffer ? buffer + (p->at - b->at) : NULL;
        p->sum = NULL;
    }
}

static void carve_buffers(pb_trainer *t)
{
    pb_gradients *g = &t->gradients;
    size_t most[2] = {0, 0};
    float *turns[2];
    for (int i = 0, k = 0; i < g->buckets.n; i++) {
        const pb_bucket *b = &g->buckets.bucket[i];
        if (stays(&t->model, b)) continue;
        if (b->n > most[k % 2]) most[k % 2] = b->n;
        k++;
    }
    for (int i = 0; i < 2; i++) turns[i] = pb_carve(&g->arena, most[i] * sizeof(float));
    for (int i = 0, k = 0; i < g->buckets.n; i++) {
        const pb_bucket *b = &g->buckets.bucket[i];
        place(t, b, stays(&t->model, b) ? pb_carve(&g->arena, b->n * sizeof(float)) : turns[k++ % 2]);
    }
}

void pb_grad_slices_carve(pb_trainer *t)
{
    pb_gradients *g = &t->gradients;
    pb_grad_slices *s = &g->shared;
    const bool bf16 = t->cfg.reduce == PB_REDUCE_BF16;
    const size_t ranks = (size_t)g->slices.ranks;
    size_t slice, bucket;
    largest(t, &slice, &bucket);
    s->own = pb_carve(&g->arena, g->slices.total * sizeof *s->own);
    s->own16 = pb_carve(&g->arena, bf16 && !g->separate ? g->slices.total * sizeof *s->own16 : 0);
    s->out16 = pb_carve(&g->arena, bf16 ? bucket * sizeof *s->out16 : 0);
    s->blocks = pb_carve(&g->arena, g->separate ? ranks * slice * sizeof *s->blocks : 0);
    s->block16 = pb_carve(&g->arena, bf16 && g->separate ? ranks * slice * sizeof *s->block16 : 0);
    carve_buffers(t);
}

pb_status pb_grad_slices_open(pb_trainer *t)
{
    pb_gradients *g = &t->gradients;
    pb_grad_slices *s = &g->shared;
    const size_t ranks = (size_t)g->slices.ranks;
    int n = 0;
    s->on = true;
    s->turn = calloc((size_t)g->buckets.n + 1, sizeof *s->turn);
    s->same = calloc(((size_t)g->buckets.n + 1) * ranks, sizeof *s->same);
    if (!s->turn || !s->same) return pb_fail(PB_ENOMEM, "no memory for the order of the buckets");
    for (int stage = 0; stage <= t->model.g.L + 1; stage++)
        for (int i = 0; i < g->buckets.n; i++)
            if (pb_bucket_due(t, &g->buckets.bucket[i]) == stage) s->turn[n++] = i;
    for (size_t i = 0; i < (size_t)g->buckets.n * ranks; i++) s->same[i] = own_count(t, (int)(i / ranks));
    return PB_OK;
}

void pb_grad_slices_close(pb_trainer *t)
{
    free(t->gradients.shared.turn);
    free(t->gradients.shared.same);
}

/* ---- reducing -------------------------------------------------------------------------------------------- */

/* Sends x, bucket i, to the ranks that keep its slices: as blocks. */
static pb_status exchange(pb_ctx *ctx, const pb_trainer *t, int i, const void *x, pb_dtype dtype)
{
    const pb_gradients *g = &t->gradients;
    const size_t at = (size_t)i * (size_t)g->slices.ranks;
    return pb_comm_all_to_all(
        ctx, &(pb_comm_all_to_all_args){.comm = t->cfg.comm,
                                        .x = x,
                                        .y = dtype == PB_BF16 ? (void *)g->shared.block16 : g->shared.blocks,
                                        .send = g->slices.count + at,
                                        .receive = g->shared.same + at,
                                        .dtype = dtype,
                                        .overlap = true});
}

/* Sends x, bucket i, to the ranks that keep its slices: as a sum, to element `own` of the own vector. */
static pb_status scatter(pb_ctx *ctx, const pb_trainer *t, int i, const void *x, pb_dtype dtype)
{
    const pb_gradients *g = &t->gradients;
    const size_t own = g->slices.own[i];
    return pb_comm_reduce_scatter(
        ctx,
        &(pb_comm_reduce_scatter_args){.comm = t->cfg.comm,
                                       .x = x,
                                       .y = dtype == PB_BF16 ? (void *)(g->shared.own16 + own) : g->shared.own + own,
                                       .counts = g->slices.count + (size_t)i * (size_t)g->slices.ranks,
                                       .dtype = dtype,
                                       .op = PB_COMM_SUM,
                                       .ordered = t->cfg.ordered || ctx->deterministic,
                                       .overlap = true});
}

static pb_status send(pb_ctx *ctx, const pb_trainer *t, int i)
{
    const pb_gradients *g = &t->gradients;
    const pb_bucket *b = &g->buckets.bucket[i];
    const float *grad = pb_bucket_grad(t, b);
    uint16_t *narrow = g->shared.out16;
    const bool bf16 = t->cfg.reduce == PB_REDUCE_BF16;
    if (bf16) PB_TRY(pb_narrow(ctx, grad, narrow, b->n));
    return (g->separate ? exchange : scatter)(ctx, t, i, bf16 ? (const void *)narrow : grad, bf16 ? PB_BF16 : PB_F32);
}

/* Adds the blocks of a bucket that have arrived to the own vector, in the order of the ranks. */
static pb_status settle(pb_ctx *ctx, const pb_trainer *t, int i)
{
    const pb_gradients *g = &t->gradients;
    const pb_grad_slices *s = &g->shared;
    const size_t n = own_count(t, i), ranks = (size_t)g->slices.ranks;
    const bool bf16 = t->cfg.reduce == PB_REDUCE_BF16;
    if (!n) return PB_OK;
    if (bf16 && !g->separate) return pb_widen(ctx, s->own16 + g->slices.own[i], s->own + g->slices.own[i], n);
    if (!g->separate) return PB_OK;
    if (bf16) PB_TRY(pb_widen(ctx, s->block16, s->blocks, ranks * n));
    for (size_t r = 0; r < ranks; r++)
        PB_TRY(pb_gradient_add(
            ctx, &(pb_gradient_add_args){
                     .x = s->blocks + r * n, .y = s->own + g->slices.own[i], .n = n, .add = t->accumulate || r > 0}));
    return PB_OK;
}

static pb_status wait(pb_ctx *ctx, const pb_trainer *t)
{
    return pb_comm_wait(ctx, &(pb_comm_wait_args){.comm = t->cfg.comm});
}

pb_status pb_grad_slices_complete(pb_ctx *ctx, const pb_trainer *t, int stage)
{
    const pb_gradients *g = &t->gradients;
    if (t->accumulate && !g->separate)
        return pb_fail(PB_EINVAL, "sharded gradients of several micro-batches, but the trainer was opened for one");
    for (int k = 0; k < g->buckets.n; k++) {
        const int i = g->shared.turn[k];
        if (pb_bucket_due(t, &g->buckets.bucket[i]) != stage) continue;
        if (k > 0) {
            PB_TRY(wait(ctx, t));
            PB_TRY(settle(ctx, t, g->shared.turn[k - 1]));
        }
        PB_TRY(send(ctx, t, i));
    }
    return PB_OK;
}

pb_status pb_grad_slices_end(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_gradients *g = &t->gradients;
    PB_TRY(wait(ctx, t));
    if (g->buckets.n) PB_TRY(settle(ctx, t, g->shared.turn[g->buckets.n - 1]));
    return pb_token_rows_add(ctx, t);
}
