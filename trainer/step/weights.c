/* weights.c - weights of which each rank keeps its slices only: memory, gathering, loading and reading. */
#include "trainer/step/weights.h"

#include <stdlib.h>

/* ---- memory ------------------------------------------------------------------------------------------------ */

/* Layers first, first+2, ... take turns in one buffer. Layer l is unit L - l. */
static void carve_layers(pb_trainer *t, int first)
{
    pb_weights *w = &t->weights;
    const int L = t->model.g.L;
    size_t most = 0;
    for (int layer = first; layer < L; layer += 2)
        if (w->units.unit[L - layer].size > most) most = w->units.unit[L - layer].size;
    unsigned char *buffer = pb_carve(&w->arena, most);
    for (int layer = first; layer < L; layer += 2) w->at[L - layer] = buffer;
}

static void carve(pb_trainer *t)
{
    pb_weights *w = &t->weights;
    const pb_units *u = &w->units;
    const bool tied = t->model.g.tied;
    const size_t head = u->unit[0].size, embed = u->unit[u->n - 1].size;
    w->own = pb_carve(&w->arena, u->trained * pb_dtype_size(t->model.cfg.dtype));
    w->frozen = pb_carve(&w->arena, u->own);
    w->request = pb_carve(&w->arena, sizeof *w->request);
    for (int first = 0; first < 2; first++) carve_layers(t, first);
    unsigned char *outer = pb_carve(&w->arena, tied ? embed + head : embed > head ? embed : head);
    w->at[u->n - 1] = outer;
    w->at[0] = outer && tied ? outer + embed : outer;
}

/* Sets the addresses of all parameters that are in units. */
static void place(pb_trainer *t)
{
    const pb_weights *w = &t->weights;
    for (int i = 0; i < t->model.n; i++) {
        pb_param *p = &t->model.params[i];
        if (pb_in_no_unit(&t->model, p)) continue;
        unsigned char *at = w->at[p->stage] + w->units.place[i];
        if (!pb_param_quantised(&t->model, p)) {
            p->w = at;
            continue;
        }
        p->q = at;
        p->scales = pb_nf4_scales_at(&t->model, p, at + pb_nf4_codes(p));
    }
}

/* While a bf16 model is loaded, every trained tensor has its f32 master in the same memory. */
static pb_status open_masters(pb_trainer *t)
{
    pb_weights *w = &t->weights;
    const pb_model *m = &t->model;
    size_t most = 0;
    if (m->cfg.dtype == PB_F32) return PB_OK;
    for (int i = 0; i < m->ordered; i++)
        if (m->order[i]->at < m->wide && pb_param_n(m->order[i]) > most) most = pb_param_n(m->order[i]);
    pb_arena_begin(&w->masters, t->ctx);
    (void)pb_carve(&w->masters, most * sizeof(float));
    PB_TRY(pb_arena_commit(&w->masters));
    float *master = pb_carve(&w->masters, most * sizeof *master);
    for (int i = 0; i < m->ordered; i++)
        if (m->order[i]->at < m->wide) m->order[i]->master = master;
    return PB_OK;
}

void pb_weights_loaded(pb_trainer *t)
{
    pb_weights *w = &t->weights;
    if (!w->masters.ctx) return;
    pb_arena_free(&w->masters);
    w->masters.ctx = NULL;
    for (int i = 0; i < t->model.ordered; i++) t->model.order[i]->master = NULL;
}

/* ---- gathering --------------------------------------------------------------------------------------------- */

static pb_status all_gather(pb_ctx *ctx, const pb_trainer *t, const void *own, void *to, const size_t *counts,
                            pb_dtype dtype)
{
    return pb_comm_all_gather(
        ctx, &(pb_comm_all_gather_args){
                 .comm = t->cfg.comm, .x = own, .y = to, .counts = counts, .dtype = dtype, .overlap = true});
}

static pb_status gather(pb_ctx *ctx, const pb_trainer *t, int unit)
{
    const pb_weights *w = &t->weights;
    const pb_slices *s = &t->gradients.slices;
    const pb_unit *u = &w->units.unit[unit];
    const size_t ranks = (size_t)s->ranks, e = pb_dtype_size(t->model.cfg.dtype);
    if (u->frozen)
        PB_TRY(all_gather(ctx, t, w->frozen + u->own, w->at[unit], w->units.count + (size_t)unit * ranks, PB_I32));
    if (u->bucket < 0) return PB_OK;
    return all_gather(ctx, t, (const unsigned char *)w->own + s->own[u->bucket] * e, w->at[unit] + u->frozen,
                      s->count + (size_t)u->bucket * ranks, t->model.cfg.dtype);
}

pb_status pb_weights_fetch(pb_ctx *ctx, const pb_trainer *t, int place)
{
    const int unit = t->model.g.L + 1 - place;
    return t->weights.on && unit >= 0 && unit < t->weights.units.n ? gather(ctx, t, unit) : PB_OK;
}

pb_status pb_weights_ready(pb_ctx *ctx, const pb_trainer *t)
{
    return t->weights.on ? pb_comm_wait(ctx, &(pb_comm_wait_args){.comm = t->cfg.comm}) : PB_OK;
}

void *pb_weights_own(const pb_trainer *t, const pb_piece *x)
{
    return (unsigned char *)t->weights.own + x->own * pb_dtype_size(x->p->dtype);
}

/* ---- filling and loading: from the buffers to this rank's slices ----------------------------------------------- */

/* Copies what this rank keeps of bytes at .. at+n-1 of a unit's frozen tensors. */
static pb_status keep_frozen(const pb_trainer *t, int unit, size_t at, size_t n)
{
    const pb_weights *w = &t->weights;
    const pb_units *u = &w->units;
    const size_t words = u->count[(size_t)unit * (size_t)u->ranks + (size_t)u->rank];
    const size_t first = pb_unit_slice_at(u, unit, u->rank), end = first + words * PB_UNIT_WORD;
    const size_t from = at > first ? at : first, to = at + n < end ? at + n : end;
    if (from >= to) return PB_OK;
    return pb_copy(t->ctx, w->frozen + u->unit[unit].own + (from - first), w->at[unit] + from, to - from);
}

/* Copies what this rank keeps of elements first .. first+n-1 of a trained tensor, and of its master. */
static pb_status keep_trained(const pb_trainer *t, const pb_param *p, size_t first, size_t n)
{
    const size_t e = pb_dtype_size(p->dtype);
    for (int i = 0; i < t->gradients.slices.n; i++) {
        const pb_piece *x = &t->gradients.slices.piece[i];
        const size_t from = first > x->first ? first : x->first;
        const size_t to = first + n < x->first + x->n ? first + n : x->first + x->n;
        if (x->p != p || from >= to) continue;
        PB_TRY(pb_copy(t->ctx, (unsigned char *)pb_weights_own(t, x) + (from - x->first) * e,
                       (const unsigned char *)p->w + from * e, (to - from) * e));
        if (p->master)
            PB_TRY(pb_copy(t->ctx, t->shards.master + x->own + (from - x->first), p->master + from,
                           (to - from) * sizeof(float)));
    }
    return PB_OK;
}

static pb_status keep(void *self, const pb_param *p, size_t first, size_t n)
{
    const pb_trainer *t = self;
    if (pb_in_no_unit(&t->model, p)) return PB_OK;
    if (p->trained) return keep_trained(t, p, first, n);
    const size_t at = t->weights.units.place[p - t->model.params], e = pb_dtype_size(p->dtype);
    if (!p->q) return keep_frozen(t, p->stage, at + first * e, n * e);
    const size_t block = (size_t)p->scales.block, scales = at + pb_nf4_codes(p);
    PB_TRY(keep_frozen(t, p->stage, at + first / 2, (n + 1) / 2));
    if (!t->model.cfg.nf4_double)
        return keep_frozen(t, p->stage, scales + first / block * sizeof(float),
                           (n + block - 1) / block * sizeof(float));
    /* 8-bit scales depend on the whole tensor: they are valid once its last elements are loaded. */
    const bool complete = first + n == pb_param_n(p);
    return complete ? keep_frozen(t, p->stage, scales, pb_frozen_bytes(&t->model, p) - pb_nf4_codes(p)) : PB_OK;
}

/* ---- reading outside a step ---------------------------------------------------------------------------------- */

enum { END = -1 }; /* in place of the number of a unit: rank 0 has read what it needs */

/* Rank 0 tells the others which unit to gather next; they learn it. */
static pb_status request(const pb_trainer *t, int32_t *unit)
{
    const pb_weights *w = &t->weights;
    PB_TRY(pb_upload(t->ctx, w->request, unit, sizeof *unit));
    PB_TRY(pb_comm_broadcast(
        t->ctx,
        &(pb_comm_broadcast_args){.comm = t->cfg.comm, .x = w->request, .y = w->request, .count = 1, .dtype = PB_I32}));
    return pb_download(t->ctx, unit, w->request, sizeof *unit);
}

static pb_status gather_now(const pb_trainer *t, int unit)
{
    PB_TRY(gather(t->ctx, t, unit));
    PB_TRY(pb_weights_ready(t->ctx, t));
    return pb_sync(t->ctx);
}

static pb_status hold(void *self, const pb_param *p)
{
    pb_trainer *t = self;
    int32_t unit = p->stage;
    if (pb_in_no_unit(&t->model, p)) return PB_OK;
    if (!t->weights.reading)
        return pb_fail(PB_EINVAL, "%s: each rank has a slice of it only; read it inside pb_trainer_read", p->name);
    if (t->weights.held == unit) return PB_OK;
    PB_TRY(request(t, &unit));
    t->weights.held = unit;
    return gather_now(t, unit);
}

/* Takes part in the gathers that rank 0 requests. */
static pb_status serve(const pb_trainer *t)
{
    for (;;) {
        int32_t unit = END;
        PB_TRY(request(t, &unit));
        if (unit == END) return PB_OK;
        PB_TRY(gather_now(t, unit));
    }
}

pb_status pb_trainer_read(pb_trainer *t, pb_status (*read)(void *self), void *self)
{
    pb_weights *w = &t->weights;
    const bool leads = pb_comm_rank(t->cfg.comm) == 0;
    int32_t end = END;
    if (!w->on) return leads ? read(self) : PB_OK;
    if (!leads) return serve(t);
    w->held = END;
    w->reading = true;
    const pb_status s = read(self);
    w->reading = false;
    /* The other ranks wait for this also if reading failed. If the communicator has failed, its error is the first. */
    const pb_status sent = request(t, &end);
    return s != PB_OK ? s : sent;
}

/* ---- opening and closing -------------------------------------------------------------------------------------- */

pb_status pb_weights_open(pb_trainer *t)
{
    pb_weights *w = &t->weights;
    if (!t->model.cfg.no_weights) return PB_OK;
    if (!t->model.ordered) return pb_fail(PB_EINVAL, "--shard parameters needs a model of which something is trained");
    PB_TRY(pb_units_make(&t->model, &t->gradients.buckets, &t->gradients.slices, &w->units));
    w->at = calloc((size_t)w->units.n, sizeof *w->at);
    if (!w->at) return pb_fail(PB_ENOMEM, "no memory for the buffers of the weights");
    w->on = true;
    pb_arena_begin(&w->arena, t->ctx);
    carve(t);
    PB_TRY(pb_arena_commit(&w->arena));
    carve(t);
    place(t);
    t->model.store = (pb_weight_store){.keep = keep, .hold = hold, .self = t};
    return open_masters(t);
}

void pb_weights_close(pb_trainer *t)
{
    pb_weights *w = &t->weights;
    pb_weights_loaded(t);
    if (w->arena.ctx) pb_arena_free(&w->arena);
    pb_units_free(&w->units);
    free(w->at);
}
