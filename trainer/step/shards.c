/* shards.c - the slices of the training state that a rank keeps: memory, norms, and gathering of the weights. */
#include "trainer/step/shards.h"

#include <stdlib.h>

#include "trainer/step/weights.h"

/* ---- opening and closing ----------------------------------------------------------------------------- */

/* Advances *at by the bytes of n moments, rounded up so that the next ones are aligned, and returns its old value. */
static size_t place(size_t *at, pb_adamw_format format, size_t n)
{
    const size_t old = *at, align = PB_FLAT_ALIGN * sizeof(float);
    *at += (pb_adamw_moment_bytes(format, n) + align - 1) / align * align;
    return old;
}

/* Decides where the moments of each piece are, and returns the bytes of all. */
static size_t place_all(const pb_slices *all, pb_shards *s)
{
    size_t at = 0;
    for (int i = 0; i < all->n; i++) {
        const pb_piece *x = &all->piece[i];
        s->m[i] = place(&at, x->p->moments, x->n);
        s->v[i] = place(&at, x->p->moments, pb_piece_seconds(x));
    }
    return at;
}

static void carve(pb_trainer *t, size_t moments)
{
    pb_shards *s = &t->shards;
    const size_t n = t->gradients.slices.total * sizeof(float);
    s->moments = pb_carve(&s->arena, moments);
    s->master = t->model.cfg.dtype == PB_F32 ? NULL : pb_carve(&s->arena, n);
    s->partial = pb_carve(&s->arena, (size_t)t->slots * sizeof *s->partial);
}

/* Finds the clip group of a parameter, and the first of its slots in t->partial. */
static void find_slot(const pb_trainer *t, const pb_param *p, int *group, int *slot)
{
    *slot = 0;
    for (*group = 0; *group < t->ngroups; ++*group) {
        const pb_clip_group *g = &t->groups[*group];
        for (int i = g->first; i < g->first + g->n; i++) {
            if (t->trained[i] == p) return;
            *slot += pb_clip_slots(pb_param_n(t->trained[i]));
        }
    }
}

pb_status pb_shards_open(pb_trainer *t)
{
    pb_shards *s = &t->shards;
    const pb_slices *all = &t->gradients.slices;
    if (!t->model.cfg.sharded) return PB_OK;
    if (t->cfg.clip == PB_CLIP_SYNC)
        return pb_fail(PB_EINVAL, "--clip sync reads norms on the host, which --shard does not support");
    s->on = true;
    s->kept = t->model.cfg.dtype == PB_F32; /* the weights are their own masters */
    s->m = calloc((size_t)all->n + 1, sizeof *s->m);
    s->v = calloc((size_t)all->n + 1, sizeof *s->v);
    s->slot = calloc((size_t)all->n + 1, sizeof *s->slot);
    s->group = calloc((size_t)all->n + 1, sizeof *s->group);
    if (!s->m || !s->v || !s->slot || !s->group)
        return pb_fail(PB_ENOMEM, "no memory for the slices of the optimizer's state");
    for (int i = 0; i < all->n; i++) {
        const pb_piece *x = &all->piece[i];
        find_slot(t, x->p, &s->group[i], &s->slot[i]);
        s->slot[i] += (int)(x->first / pb_clip_run(pb_param_n(x->p)));
    }
    const size_t moments = place_all(all, s);
    pb_arena_begin(&s->arena, t->ctx);
    carve(t, moments);
    PB_TRY(pb_arena_commit(&s->arena));
    carve(t, moments);
    return PB_OK;
}

void pb_shards_close(pb_trainer *t)
{
    pb_shards *s = &t->shards;
    if (s->arena.ctx) pb_arena_free(&s->arena);
    free(s->m);
    free(s->v);
    free(s->slot);
    free(s->group);
}

/* ---- moments, weights and masters ------------------------------------------------------------------------ */

void *pb_shards_m(const pb_trainer *t, const pb_piece *x)
{
    return t->shards.moments + t->shards.m[x - t->gradients.slices.piece];
}

void *pb_shards_v(const pb_trainer *t, const pb_piece *x)
{
    return t->shards.moments + t->shards.v[x - t->gradients.slices.piece];
}

void *pb_shards_w(const pb_trainer *t, const pb_piece *x)
{
    if (t->weights.on && !pb_in_no_unit(&t->model, x->p)) return pb_weights_own(t, x);
    return (unsigned char *)x->p->w + x->first * pb_dtype_size(x->p->dtype);
}

float *pb_shards_master(const pb_trainer *t, const pb_piece *x)
{
    return x->p->dtype == PB_F32 || !t->shards.master ? NULL : t->shards.master + x->own;
}

float *pb_shards_grad(const pb_trainer *t, const pb_piece *x)
{
    return t->gradients.shared.on ? t->gradients.shared.own + x->own : x->p->sum + x->first;
}

pb_status pb_trainer_shard(pb_trainer *t)
{
    const pb_slices *all = &t->gradients.slices;
    pb_weights_loaded(t);
    if (!t->shards.on || t->shards.kept) return PB_OK;
    for (int i = 0; i < all->n && !t->ctx->planning; i++) {
        const pb_piece *x = &all->piece[i];
        if (x->p->master) /* with sharded weights they were kept when they were written */
            PB_TRY(pb_copy(t->ctx, pb_shards_master(t, x), x->p->master + x->first, x->n * sizeof(float)));
    }
    PB_TRY(pb_sync(t->ctx));
    pb_model_masters_close(&t->model);
    t->shards.kept = true;
    return PB_OK;
}

/* Gathers bucket b of a vector: `own` is this rank's slice, `to` the whole bucket. */
static pb_status gather(pb_ctx *ctx, const pb_trainer *t, int b, const void *own, void *to, pb_dtype dtype)
{
    const pb_slices *s = &t->gradients.slices;
    return pb_comm_all_gather(ctx, &(pb_comm_all_gather_args){.comm = t->cfg.comm,
                                                              .x = own,
                                                              .y = to,
                                                              .counts = s->count + (size_t)b * (size_t)s->ranks,
                                                              .dtype = dtype,
                                                              .overlap = true});
}

static pb_status wait(pb_ctx *ctx, const pb_trainer *t)
{
    return pb_comm_wait(ctx, &(pb_comm_wait_args){.comm = t->cfg.comm});
}

pb_status pb_trainer_gather_masters(pb_trainer *t, bool on)
{
    const pb_buckets *b = &t->gradients.buckets;
    if (!t->shards.on || t->model.cfg.dtype == PB_F32) return PB_OK;
    if (!on) {
        pb_model_masters_close(&t->model);
        return PB_OK;
    }
    PB_TRY(pb_model_masters_open(&t->model));
    for (int i = 0; i < b->n && b->bucket[i].at < t->model.wide; i++)
        PB_TRY(gather(t->ctx, t, i, t->shards.master + t->gradients.slices.own[i],
                      t->model.masters.base + b->bucket[i].at * sizeof(float), PB_F32));
    PB_TRY(wait(t->ctx, t));
    return pb_sync(t->ctx);
}

pb_status pb_shards_gather(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_model *m = &t->model;
    const pb_buckets *b = &t->gradients.buckets;
    if (!t->shards.kept && !ctx->planning)
        return pb_fail(PB_EINVAL, "a step of sharded weights before pb_trainer_shard was called");
    for (int i = 0; i < b->n; i++) {
        const bool wide = b->bucket[i].at < m->wide;
        if (wide && t->weights.on) continue; /* gathered before their use */
        const pb_dtype dtype = wide ? m->cfg.dtype : PB_F32;
        const size_t e = pb_dtype_size(dtype), at = b->bucket[i].at - (wide ? 0 : m->rest);
        unsigned char *to = (unsigned char *)(wide ? m->wide_w : m->rest_w) + at * e;
        PB_TRY(gather(ctx, t, i, to + pb_slice_at(&t->gradients.slices, i, t->gradients.slices.rank) * e, to, dtype));
    }
    return wait(ctx, t);
}

/* ---- norms ----------------------------------------------------------------------------------------------- */

pb_status pb_shards_sums(pb_ctx *ctx, const pb_trainer *t)
{
    const pb_slices *s = &t->gradients.slices;
    for (int i = 0; i < s->n; i++) {
        const pb_piece *x = &s->piece[i];
        PB_TRY(pb_clip_sqsum(ctx, &(pb_clip_sqsum_args){.x = pb_shards_grad(t, x),
                                                        .partial = t->shards.partial + t->shards.slot[i],
                                                        .n = x->n,
                                                        .run = pb_clip_run(pb_param_n(x->p))}));
    }
    return pb_comm_all_reduce(ctx, &(pb_comm_all_reduce_args){.comm = t->cfg.comm,
                                                              .x = t->shards.partial,
                                                              .y = t->partial,
                                                              .count = (size_t)t->slots,
                                                              .dtype = PB_F32,
                                                              .op = PB_COMM_SUM});
}

pb_status pb_shards_scale(pb_ctx *ctx, const pb_trainer *t, int group)
{
    const pb_slices *s = &t->gradients.slices;
    for (int i = 0; i < s->n; i++) {
        const pb_piece *x = &s->piece[i];
        if (t->shards.group[i] != group) continue;
        PB_TRY(
            pb_clip_scale(ctx, &(pb_clip_scale_args){.x = pb_shards_grad(t, x), .state = t->clip + group, .n = x->n}));
    }
    return PB_OK;
}
