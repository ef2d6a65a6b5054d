/* inputs.c - sets the inputs of a step: the batch, of which this rank takes its tokens, and the learning rate, loss
 * scale and clip variant. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/step/trainer_impl.h"

pb_status pb_check_row(const pb_context *c, int S)
{
    const int unit = pb_context_unit(c);
    return S % unit == 0 ? PB_OK
                         : pb_fail(PB_EINVAL, "rows of %d tokens: %d ranks share a row, so it needs a multiple of %d",
                                   S, c->ranks, unit);
}

/* Uploads this rank's tokens of x [B,S], elements of 4 bytes. */
static pb_status upload_tokens(pb_trainer *t, void *to, const void *x, int S)
{
    const pb_context *c = &t->context;
    const size_t L = (size_t)pb_context_length(c, S), parts = (size_t)pb_context_parts(c), n = (size_t)t->cfg.B * parts;
    if (!t->cfg.context) return pb_upload(t->ctx, to, x, n * L * sizeof(int32_t));
    int32_t *own = malloc(n * L * sizeof *own);
    if (!own) return pb_fail(PB_ENOMEM, "no memory for the tokens of a batch");
    for (size_t i = 0; i < n; i++) {
        const size_t from = i / parts * (size_t)S + (size_t)pb_context_chunk(c, (int)(i % parts)) * L;
        memcpy(own + i * L, (const int32_t *)x + from, L * sizeof *own);
    }
    const pb_status s = pb_upload(t->ctx, to, own, n * L * sizeof *own);
    free(own);
    return s;
}

/* Uploads the positions of this rank's tokens in rows that are not packed. */
static pb_status upload_positions(pb_trainer *t, int S)
{
    const size_t s = (size_t)(S / t->context.ranks), n = (size_t)t->cfg.B * s;
    int32_t *pos = malloc(n * sizeof *pos);
    if (!pos) return pb_fail(PB_ENOMEM, "no memory for the positions of a batch");
    for (size_t i = 0; i < n; i++) pos[i] = pb_context_token(&t->context, S, (int)(i % s));
    const pb_status status = pb_upload(t->ctx, t->pos, pos, n * sizeof *pos);
    free(pos);
    return status;
}

static pb_status set_packing(pb_trainer *t, const pb_batch *b, int S)
{
    const int T = t->cfg.B * S, align = pb_sample_align(&t->model.g);
    if (!b->start != !t->cfg.packed || !b->pos != !t->cfg.packed)
        return pb_fail(PB_EINVAL, "batch: start and pos must %s, because the trainer's batches are %s",
                       t->cfg.packed ? "be given" : "be NULL", t->cfg.packed ? "packed" : "not packed");
    if (!t->cfg.packed) return t->cfg.context ? upload_positions(t, S) : PB_OK;
    for (int i = 0; i < T; i++) {
        if (b->start[i] < 0 || b->start[i] > i % S)
            return pb_fail(PB_EINVAL, "batch: start %d of token %d is outside 0 to %d", b->start[i], i, i % S);
        if (b->start[i] % align && b->start[i] != i % S) /* start == own index: padding, which attends to itself only */
            return pb_fail(PB_EINVAL, "batch: start %d of token %d: samples begin at multiples of %d", b->start[i], i,
                           align);
        if (b->pos[i] < 0 || b->pos[i] >= S)
            return pb_fail(PB_EINVAL, "batch: position %d of token %d is outside 0 to %d", b->pos[i], i, S - 1);
    }
    if (t->block->rows) PB_TRY(t->block->rows(t, b, S));
    PB_TRY(upload_tokens(t, t->start, b->start, S));
    return upload_tokens(t, t->pos, b->pos, S);
}

static pb_status set_index_scale(pb_trainer *t)
{
    const float scale = t->cfg.model.index_loss * t->host_inv_count * t->cfg.loss_scale;
    return t->cfg.model.index_loss > 0 ? pb_upload(t->ctx, t->index_scale, &scale, sizeof scale) : PB_OK;
}

/* Checks the number of tokens before a batch with rows of S tokens. */
static pb_status check_first(const pb_trainer *t, int first, int S)
{
    const int most = t->cfg.cached ? t->cached : 0;
    if (first < 0 || first > most)
        return pb_fail(PB_EINVAL, "batch: %d tokens before it: need 0 to %d, which earlier batches computed", first,
                       most);
    if (first + S > pb_row_most(t))
        return pb_fail(PB_EINVAL, "batch: %d tokens after %d: the row has room for %d", S, first, pb_row_most(t));
    return PB_OK;
}

pb_status pb_trainer_set_batch(pb_trainer *t, const pb_batch *b)
{
    const int V = t->model.g.V, most = pb_row_most(t), S = b->S ? b->S : most;
    const size_t T = (size_t)t->cfg.B * (size_t)(S > 0 ? S : 0);
    double count = 0;
    if (S < 1 || S > most) return pb_fail(PB_EINVAL, "batch: rows of %d tokens: need 1 to %d tokens", S, most);
    PB_TRY(pb_check_row(&t->context, S));
    PB_TRY(check_first(t, b->first, S));
    for (size_t i = 0; i < T; i++) {
        if (b->ids[i] < 0 || b->ids[i] >= V)
            return pb_fail(PB_EINVAL, "batch: id %d of token %zu is outside the vocabulary of %d", b->ids[i], i, V);
        if (b->mask[i] != 0 && (b->targets[i] < 0 || b->targets[i] >= V))
            return pb_fail(PB_EINVAL, "batch: target %d of token %zu is outside the vocabulary of %d", b->targets[i], i,
                           V);
        count += (double)b->mask[i];
    }
    if (b->count > 0) count = b->count;
    const float inv = count > 0 ? (float)(1 / count) : 0;
    PB_TRY(set_packing(t, b, S));
    PB_TRY(upload_tokens(t, t->ids, b->ids, S));
    PB_TRY(upload_tokens(t, t->targets, b->targets, S));
    PB_TRY(upload_tokens(t, t->mask, b->mask, S));
    PB_TRY(pb_upload(t->ctx, t->inv_count, &inv, sizeof inv));
    t->host_inv_count = inv;
    PB_TRY(set_index_scale(t));
    pb_set_shape(t, S);
    t->first = b->first;
    t->cached = b->first + S;
    return PB_OK;
}

pb_status pb_trainer_set_lr(pb_trainer *t, float lr)
{
    if (!(lr >= 0 && isfinite(lr)))
        return pb_fail(PB_EINVAL, "learning rate %g: need a finite number of at least 0", (double)lr);
    t->cfg.lr = lr;
    return pb_upload(t->ctx, &t->state->lr, &lr, sizeof lr);
}

pb_status pb_trainer_set_loss_scale(pb_trainer *t, float scale)
{
    if (!(scale > 0 && isfinite(scale) && isfinite(1 / scale)))
        return pb_fail(PB_EINVAL, "loss scale %g: need a number above 0 that is finite in f32, as is its inverse",
                       (double)scale);
    t->cfg.loss_scale = scale;
    PB_TRY(set_index_scale(t));
    return pb_upload(t->ctx, t->loss_scale, &scale, sizeof scale);
}

pb_status pb_trainer_set_clip(pb_trainer *t, pb_clip_variant clip, float max_norm)
{
    if (!(max_norm > 0)) return pb_fail(PB_EINVAL, "max norm %g: need a number above 0", (double)max_norm);
    if (clip == PB_CLIP_SYNC && t->shards.on)
        return pb_fail(PB_EINVAL, "--clip sync reads norms on the host, which --shard does not support");
    t->cfg.clip = clip;
    t->cfg.max_norm = max_norm;
    return pb_clip_write_lists(t);
}
