/* train_batch.c - opens trainers for the cases of training suites, and loads batches of the shipped text or of the
 * user's data. */
#include <stdlib.h>
#include <string.h>

#include "bench/suites/own_input.h"
#include "bench/suites/rank_steps.h"
#include "bench/suites/train_case.h"
#include "trainer/data/shipped.h"
#include "trainer/hf/hf_load.h"
#include "trainer/input/fit.h"

/* ---- the rows of a case -------------------------------------------------------------------------------- */

static pb_status pack_of(const pb_case *c, pb_pack *out)
{
#define WORD(id, word, ...) word,
    static const char *const words[] = {PB_PACK_MAP(WORD)};
#undef WORD
    const char *v = pb_case_get(c, "pack");
    *out = PB_PACK_STREAM;
    for (int i = 0; v && i <= PB_NPACKS; i++) {
        if (i == PB_NPACKS) return pb_fail(PB_EINVAL, "axis pack: '%s' is not one of on, off, stream", v);
        *out = (pb_pack)i;
        if (strcmp(v, words[i]) == 0) return PB_OK;
    }
    return PB_OK;
}

pb_status pb_train_case_packed(const pb_case *c, bool *out)
{
    pb_pack pack;
    PB_TRY(pack_of(c, &pack));
    *out = pack != PB_PACK_STREAM;
    return PB_OK;
}

/* Where the rows of a case come from. `owned`: `rows` is closed with the text; else it belongs to the plan. */
typedef struct pb_case_text {
    pb_dataset *rows;
    int S; /* positions per row, before rows are shortened */
    bool owned;
    pb_rows batch; /* host memory for the rows of a batch */
} text;

static void close_text(text *x)
{
    if (x->owned) pb_dataset_close(x->rows);
}

/* Opens the shipped conversations as bytes, in rows of whole conversations. */
static pb_status open_shipped(const pb_dataset_config *cfg, pb_dataset **out)
{
    char path[1024];
    pb_dataset_counts counts;
    pb_tokenizer *t;
    PB_TRY(pb_tokenizer_open(NULL, &t));
    const pb_status s = pb_dataset_open(pb_shipped_path(path, sizeof path), t, cfg, &counts, out);
    pb_tokenizer_close(t);
    return s;
}

/* S: tokens of a row. */
static pb_status open_text(const pb_case *c, const pb_train_config *cfg, int S, text *out)
{
    char path[1024];
    long seq;
    pb_dataset_config d = {.chat = {.family = PB_TEMPLATE_BYTES},
                           .mask = PB_MASK_ASSISTANT,
                           .long_ones = PB_LONG_SPLIT,
                           .S = S,
                           .align = 1,
                           .seed = cfg->model.seed};
    PB_TRY(pack_of(c, &d.pack));
    if (d.pack != PB_PACK_STREAM) {
        PB_TRY(pb_case_int(c, "seq", &seq));
        d.S = (int)seq;
        d.align = pb_sample_align(cfg->model.geometry);
    }
    *out = (text){.S = d.S, .owned = !c->own};
    if (c->own) return pb_own_input_rows(c->own, &d, &out->rows);
    if (d.pack != PB_PACK_STREAM) return open_shipped(&d, &out->rows);
    return pb_byte_stream_open(pb_shipped_path(path, sizeof path), d.S, d.seed, &out->rows);
}

/* Host memory for the rows of a batch. */
static pb_status alloc_rows(size_t n, pb_rows *r)
{
    *r = (pb_rows){.ids = malloc(n * 4),
                   .targets = malloc(n * 4),
                   .mask = malloc(n * 4),
                   .start = malloc(n * 4),
                   .pos = malloc(n * 4),
                   .used = malloc(n * 4)};
    if (r->ids && r->targets && r->mask && r->start && r->pos && r->used) return PB_OK;
    return pb_fail(PB_ENOMEM, "no memory for a batch");
}

static void free_rows(pb_rows *r)
{
    free(r->ids), free(r->targets), free(r->mask);
    free(r->start), free(r->pos), free(r->used);
}

/* ---- batches -------------------------------------------------------------------------------------------- */

static pb_status set_rows(pb_trainer *t, const text *x, size_t first, size_t all, size_t index, const pb_rows *r)
{
    const pb_train_config *cfg = pb_trainer_config(t);
    const int S = pb_trainer_row(t);
    const size_t rows = (size_t)cfg->B, n = rows * (size_t)x->S;
    double count = 0;
    for (size_t i = 0; i < all; i++) {
        pb_dataset_batch(x->rows, cfg->B, first + i, r);
        for (size_t k = 0; k < n; k++) count += (double)r->mask[k];
    }
    pb_dataset_batch(x->rows, cfg->B, first + index, r);
    if (pb_rows_length(r, rows, x->S, 1) > S && cfg->packed)
        return pb_fail(PB_EINVAL, "batch %zu has longer rows than the %d positions of the case", first + index, S);
    pb_rows_shorten(r, rows, x->S, S);
    return pb_trainer_set_batch(t, &(pb_batch){.ids = r->ids,
                                               .targets = r->targets,
                                               .mask = r->mask,
                                               .count = count,
                                               .start = cfg->packed ? r->start : NULL,
                                               .pos = cfg->packed ? r->pos : NULL});
}

pb_status pb_train_case_micro_batch(const pb_case *c, pb_trainer *t, size_t first, size_t all, size_t index)
{
    const pb_train_config *cfg = pb_trainer_config(t);
    pb_rows r;
    text x;
    PB_TRY(open_text(c, cfg, pb_trainer_row(t), &x));
    pb_status s = alloc_rows((size_t)cfg->B * (size_t)x.S, &r);
    if (s == PB_OK) s = set_rows(t, &x, first, all, index, &r);
    free_rows(&r);
    close_text(&x);
    return s;
}

pb_status pb_train_case_batch(const pb_case *c, pb_trainer *t, size_t index)
{
    return pb_train_case_micro_batch(c, t, index, 1, 0);
}

pb_status pb_case_text_open(const pb_case *c, const pb_train_config *cfg, pb_case_text **out)
{
    text *x = calloc(1, sizeof *x);
    if (!x) return pb_fail(PB_ENOMEM, "no memory for a batch");
    pb_status s = open_text(c, cfg, cfg->S, x);
    if (s == PB_OK) {
        s = alloc_rows((size_t)cfg->B * (size_t)x->S, &x->batch);
        if (s == PB_OK) *out = x;
        else free_rows(&x->batch), close_text(x);
    }
    if (s != PB_OK) free(x);
    return s;
}

void pb_case_text_close(pb_case_text *x)
{
    if (!x) return;
    free_rows(&x->batch);
    close_text(x);
    free(x);
}

pb_status pb_case_text_batch(pb_case_text *x, pb_trainer *t, size_t index)
{
    return set_rows(t, x, index, 1, 0, &x->batch);
}

/* How many batches the case reads: all micro-batches of the steps by which several are checked (rank_steps.h). */
static size_t batches_of(const pb_case *c, const pb_train_config *cfg)
{
    long ranks = 1;
    if (pb_case_get(c, "ranks") && pb_case_int(c, "ranks", &ranks) != PB_OK) ranks = 1;
    const size_t each = (size_t)(cfg->micro_batches > 1 ? cfg->micro_batches : 1) * (size_t)ranks;
    return each > 1 ? each * PB_RANK_CHECK_STEPS : 1;
}

pb_status pb_train_case_shape(const pb_case *c, pb_train_config *cfg)
{
    pb_rows r;
    text x;
    int S = 1;
    if (!cfg->packed) return PB_OK;
    PB_TRY(open_text(c, cfg, cfg->S, &x));
    const pb_status s = alloc_rows((size_t)cfg->B * (size_t)x.S, &r);
    for (size_t i = 0; s == PB_OK && i < batches_of(c, cfg); i++) {
        pb_dataset_batch(x.rows, cfg->B, i, &r);
        const int length = pb_rows_length(&r, (size_t)cfg->B, x.S, PB_OWN_BUCKET);
        S = length > S ? length : S;
    }
    free_rows(&r);
    close_text(&x);
    if (s == PB_OK) cfg->S = S;
    return s;
}

/* ---- trainers ------------------------------------------------------------------------------------------- */

pb_status pb_train_case_trainer(pb_ctx *ctx, const pb_case *c, const pb_train_config *cfg, pb_trainer **out)
{
    const char *path = c->own ? c->own->in.path : NULL;
    const int ranks = cfg->comm ? pb_comm_size(cfg->comm) : 1;
    pb_trainer *t;
    PB_TRY(pb_fit_check(&(pb_fit){.cfg = cfg,
                                  .device = ctx->id,
                                  .name = path ? path : cfg->model.geometry->name,
                                  .path = path,
                                  .prefer = ctx->prefer,
                                  .rank = cfg->comm ? pb_comm_rank(cfg->comm) : 0,
                                  .ranks = ranks,
                                  .shares = pb_comm_size(cfg->context),
                                  .share = pb_comm_rank(cfg->context),
                                  .local_size = ranks}));
    PB_TRY(pb_trainer_open(ctx, cfg, &t));
    const pb_status s = path ? pb_model_load_hf(pb_trainer_model(t), path, NULL) : PB_OK;
    if (s == PB_OK) *out = t;
    else pb_trainer_close(t);
    return s;
}

static pb_status open_case(pb_ctx *ctx, const pb_case *c, bool keep_unread, pb_trainer **out)
{
    pb_train_config cfg;
    pb_trainer *t;
    PB_TRY(pb_train_case_config(c, &cfg));
    PB_TRY(pb_train_case_shape(c, &cfg));
    cfg.keep_unread = keep_unread;
    PB_TRY(pb_train_case_trainer(ctx, c, &cfg, &t));
    pb_status s = pb_trainer_reserve(t, cfg.S); /* as `train` does, so that a step has the memory that the plan says */
    if (s == PB_OK) s = pb_train_case_batch(c, t, 0);
    if (s != PB_OK) pb_trainer_close(t);
    else *out = t;
    return s;
}

pb_status pb_train_case_open(pb_ctx *ctx, const pb_case *c, pb_trainer **out) { return open_case(ctx, c, false, out); }
pb_status pb_train_case_open_all(pb_ctx *ctx, const pb_case *c, pb_trainer **out)
{
    return open_case(ctx, c, true, out);
}
