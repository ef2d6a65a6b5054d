/* clip.c - the clip phase: clips the gradients in one of its variants (none, sync, fused, multi). Also writes the lists
 * of trained tensors that multi-tensor kernels read from device memory. */
#include <math.h>
#include <stdlib.h>

#include "trainer/step/gradients.h"
#include "trainer/step/matrices.h"
#include "trainer/step/shards.h"

/* Returns the entry of a trained tensor of clip group g. */
static pb_adamw_entry entry_of(const pb_trainer *t, const pb_param *p, int g)
{
    const pb_clip_variant variant = t->cfg.clip;
    const bool decays = p->kind != PB_KIND_GAIN && p->kind != PB_KIND_BIAS;
    pb_dtype dtype;
    const void *grad = pb_gradient_sum(t, p, &dtype);
    return (pb_adamw_entry){.w = p->w,
                            .master = p->master,
                            .grad = grad,
                            .grad_dtype = dtype,
                            .m = p->m,
                            .v = p->v,
                            .n = pb_param_n(p),
                            .first = (uint32_t)p->at,
                            .dtype = p->dtype,
                            .format = p->moments,
                            .clip = variant == PB_CLIP_NONE    ? -1
                                    : variant == PB_CLIP_MULTI ? 0
                                                               : g,
                            .decay = decays ? t->cfg.weight_decay : 0};
}

/* Returns the entry of piece i of this rank's slices. */
static pb_adamw_entry shard_entry(const pb_trainer *t, int i)
{
    const pb_piece *x = &t->gradients.slices.piece[i];
    pb_adamw_entry e = entry_of(t, x->p, t->shards.group[i]);
    e.w = pb_shards_w(t, x);
    e.master = pb_shards_master(t, x);
    e.grad = pb_shards_grad(t, x), e.grad_dtype = PB_F32;
    e.m = pb_shards_m(t, x);
    e.v = pb_shards_v(t, x);
    e.first += (uint32_t)x->first;
    e.n = x->n;
    return e;
}

int pb_adamw_entries(const pb_trainer *t)
{
    return (t->shards.on ? t->gradients.slices.n : t->ntrained) - t->matrices.parts;
}

/* Fills clip_list and adamw_list: arrays of device pointers in device memory, for the kernels that process all trained
 * tensors in one call. */
pb_status pb_clip_write_lists(pb_trainer *t)
{
    const size_t n = (size_t)t->ntrained, entries = (size_t)pb_adamw_entries(t);
    size_t adamw = 0;
    t->bf16_elements = 0;
    if (!n) return PB_OK;
    pb_clip_entry *c = calloc(n, sizeof *c);
    pb_adamw_entry *a = calloc(n > entries ? n : entries, sizeof *a);
    pb_status s = c && a ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the lists of gradients");
    for (int g = 0; s == PB_OK && g < t->ngroups; g++)
        for (int i = t->groups[g].first; i < t->groups[g].first + t->groups[g].n; i++) {
            pb_dtype dtype;
            void *sum = pb_gradient_sum(t, t->trained[i], &dtype);
            c[i] = pb_clip_buffer(sum, pb_param_n(t->trained[i]), dtype);
            t->bf16_elements += dtype == PB_BF16 ? c[i].n : 0;
            if (!t->shards.on && !pb_matrices_take(t, t->trained[i])) a[adamw++] = entry_of(t, t->trained[i], g);
        }
    for (int i = 0; s == PB_OK && t->shards.on && i < t->gradients.slices.n; i++)
        if (!pb_matrices_take(t, t->gradients.slices.piece[i].p)) a[adamw++] = shard_entry(t, i);
    if (s == PB_OK) s = pb_upload(t->ctx, t->clip_list, c, n * sizeof *c);
    if (s == PB_OK) s = pb_upload(t->ctx, t->adamw_list, a, entries * sizeof *a);
    if (s == PB_OK) s = pb_matrices_write_lists(t);
    free(c);
    free(a);
    return s;
}

/* Computes the partial sums of squares of a group's gradients. If `read` is not NULL, also downloads the sums (one host
 * sync per tensor) and adds them to *read. */
static pb_status sums(pb_ctx *ctx, const pb_trainer *t, const pb_clip_group *g, double *read)
{
    float host[256];
    float *slot = g->partial;
    for (int i = g->first; i < g->first + g->n; i++) {
        const pb_param *p = t->trained[i];
        const int slots = pb_clip_slots(pb_param_n(p));
        if (!slots) continue;
        PB_TRY(pb_clip_sqsum(ctx, &(pb_clip_sqsum_args){.x = p->sum, .partial = slot, .n = pb_param_n(p)}));
        if (read) {
            PB_TRY(pb_download(ctx, host, slot, (size_t)slots * sizeof *host));
            for (int k = 0; k < slots; k++) *read += (double)host[k];
        }
        slot += slots;
    }
    return PB_OK;
}

static pb_status scales(pb_ctx *ctx, const pb_trainer *t, int group)
{
    const pb_clip_group *g = &t->groups[group];
    for (int i = g->first; i < g->first + g->n; i++) {
        const pb_param *p = t->trained[i];
        if (!pb_param_n(p)) continue;
        PB_TRY(pb_clip_scale(ctx, &(pb_clip_scale_args){.x = p->sum, .state = t->clip + group, .n = pb_param_n(p)}));
    }
    return PB_OK;
}

static pb_status reduce(pb_ctx *ctx, const pb_trainer *t, const float *partial, int slots, pb_clip_state *state)
{
    return pb_clip_reduce(ctx, &(pb_clip_reduce_args){.partial = partial,
                                                      .loss_scale = t->loss_scale,
                                                      .state = state,
                                                      .slots = slots,
                                                      .max_norm = t->cfg.max_norm});
}

/* Clips a group of n tensors without a host sync: n kernel launches for the partial sums, one for the norm, and n to
 * scale the gradients. */
static pb_status fused(pb_ctx *ctx, const pb_trainer *t, int group)
{
    const pb_clip_group *g = &t->groups[group];
    PB_TRY(sums(ctx, t, g, NULL));
    PB_TRY(reduce(ctx, t, g->partial, g->slots, t->clip + group));
    return scales(ctx, t, group);
}

/* Host-synchronous clipping: downloads the partial sums and computes the norm and scale on the host. The upload of the
 * scale does not wait, so the downloads are the only host syncs. */
static pb_status synchronous(pb_ctx *ctx, const pb_trainer *t, int group)
{
    double sum = 0;
    PB_TRY(sums(ctx, t, &t->groups[group], &sum));
    const double carried = (double)t->cfg.loss_scale, norm = sqrt(sum) / carried, max = (double)t->cfg.max_norm;
    pb_clip_state state = {.scale = (float)((norm > max ? max / norm : 1) / carried), .norm = (float)norm};
    if (!isfinite(state.norm)) state.scale = 1, state.skip = 1;
    PB_TRY(pb_upload_staged(ctx, t->clip + group, &state, sizeof state));
    return state.scale != 1 ? scales(ctx, t, group) : PB_OK;
}

/* Clips the gradients of this rank's slices by the norms of the whole gradients: fused or multi. */
static pb_status sharded(pb_ctx *ctx, const pb_trainer *t)
{
    PB_TRY(pb_shards_sums(ctx, t));
    if (t->cfg.clip == PB_CLIP_MULTI) return reduce(ctx, t, t->partial, t->slots, t->clip);
    for (int i = 0; i < t->ngroups; i++) {
        PB_TRY(reduce(ctx, t, t->groups[i].partial, t->groups[i].slots, t->clip + i));
        PB_TRY(pb_shards_scale(ctx, t, i));
    }
    return PB_OK;
}

pb_status pb_phase_clip(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    if (t->shards.on && t->cfg.clip != PB_CLIP_NONE) return sharded(ctx, t);
    switch (t->cfg.clip) {
    case PB_CLIP_NONE:
    case PB_NCLIPS: return PB_OK;
    case PB_CLIP_MULTI:
        return pb_clip_multi(ctx, &(pb_clip_multi_args){.list = t->clip_list,
                                                        .state = t->clip,
                                                        .partial = t->partial,
                                                        .loss_scale = t->loss_scale,
                                                        .elements = t->model.trained,
                                                        .bf16_elements = t->bf16_elements,
                                                        .n = t->ntrained,
                                                        .slots = t->slots,
                                                        .max_norm = t->cfg.max_norm});
    case PB_CLIP_SYNC:
    case PB_CLIP_FUSED: break;
    }
    for (int i = 0; i < t->ngroups; i++) PB_TRY((t->cfg.clip == PB_CLIP_SYNC ? synchronous : fused)(ctx, t, i));
    return PB_OK;
}
