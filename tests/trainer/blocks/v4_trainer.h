/* v4_trainer.h - trainers of the model v4-tiny, and seeded batches of any shape, shared by the tests of DeepSeek-V4. */
#ifndef PB_V4_TRAINER_H
#define PB_V4_TRAINER_H
#include "tests/trainer/step/trainer_fixture.h"

/* A test variant in addition to auto, dense and sparse of pb_attention_variant: sparse attention with index_loss, which
 * trains the indexer. */
enum { WITH_INDEX_LOSS = PB_ATTENTION_SPARSE + 1 };

static inline pb_train_config v4_config(int rows, int length, int variant)
{
    pb_train_config c = config("v4-tiny", PB_FULL);
    c.B = rows;
    c.S = length;
    c.attention = variant == WITH_INDEX_LOSS ? PB_ATTENTION_SPARSE : (pb_attention_variant)variant;
    c.model.index_loss = variant == WITH_INDEX_LOSS ? 0.5f : 0;
    c.clip = PB_CLIP_MULTI;
    return c;
}

/* A batch in host memory. */
typedef struct text {
    int32_t *ids, *targets, *start, *pos;
    float *mask;
} text;

static inline text open_text(const pb_trainer *t)
{
    const size_t n = (size_t)pb_trainer_config(t)->B * (size_t)pb_trainer_config(t)->S;
    text x = {.ids = calloc(4 * n, sizeof(int32_t)), .mask = calloc(n, sizeof(float))};
    if (!x.ids || !x.mask) abort();
    x.targets = x.ids + n;
    x.start = x.targets + n;
    x.pos = x.start + n;
    return x;
}

static inline void close_text(text *x) { free(x->ids), free(x->mask); }

/* Copies tokens at..at+n-1 of the seeded batch in scripts/fixtures/model_fixtures.py to positions to..to+n-1 of x. */
static inline void seeded(const text *x, size_t to, uint64_t at, size_t n, int V)
{
    for (size_t i = 0; i < n; i++) {
        x->ids[to + i] = (int32_t)(pb_uniform(1, at + i) * V);
        x->targets[to + i] = (int32_t)(pb_uniform(2, at + i) * V);
        x->mask[to + i] = pb_uniform(3, at + i) < 0.7;
    }
}

/* Sets the trainer's batch to the first B*length tokens of the seeded batch, as B rows of `length` tokens; length 0:
 * the trainer's S. */
static inline void set_seeded(pb_trainer *t, int length)
{
    const pb_train_config *c = pb_trainer_config(t);
    const int S_ = length ? length : c->S;
    text x = open_text(t);
    seeded(&x, 0, 0, (size_t)c->B * (size_t)S_, pb_trainer_model(t)->g.V);
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = x.ids, .targets = x.targets, .mask = x.mask, .S = S_}));
    close_text(&x);
}

static inline pb_trainer *open_seeded(pb_ctx *ctx, const pb_train_config *c)
{
    pb_trainer *t = open_trainer(ctx, c);
    set_seeded(t, 0);
    return t;
}

static inline void assert_close(float *a, float *b, size_t n, double tol, const char *what)
{
    const pb_diff d = pb_diff_arrays(a, b, n, PB_F32);
    if (!pb_diff_ok(&d, tol)) fail_msg("%s: differ by %g (max %g)", what, d.rel, d.max);
    free(a), free(b);
}
#endif
