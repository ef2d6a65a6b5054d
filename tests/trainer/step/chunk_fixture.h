/* chunk_fixture.h - runs of a few steps, and the configurations, with which the tests of computing in chunks of tokens
 * (loss_chunk_test, mlp_chunk_test) compare computing all tokens at once. */
#ifndef PB_CHUNK_FIXTURE_H
#define PB_CHUNK_FIXTURE_H
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/graphs.h"
#include "trainer/step/trainer_impl.h"

enum { STEPS = 3, MICRO = 2, LOSS_TOKENS = 40 };

/* The results of a run. */
typedef struct outcome {
    double loss[STEPS * MICRO];
    float *grads, *state; /* grads: of the last step; state: weights and moments */
    size_t ngrads, nstate;
} outcome;

static inline void free_outcome(outcome *o) { free(o->grads), free(o->state); }

/* Trains STEPS steps of MICRO micro-batches; all divide by the loss tokens of a step. */
static inline outcome train(pb_ctx *ctx, const pb_train_config *c, bool graph)
{
    pb_trainer *t = open_trainer(ctx, c);
    pb_graphs g = {0};
    outcome o = {0};
    for (int i = 0; i < STEPS * MICRO; i++) {
        float sum;
        pb_trainer_accumulate(t, i % MICRO > 0);
        fixture_batch(t, B * i, B, LOSS_TOKENS);
        CHECK_OK(graph ? pb_graphs_run(&g, ctx, t, pb_train_micro) : pb_train_micro(ctx, t));
        o.loss[i] = loss_of(t);
        CHECK_OK(pb_download(ctx, &sum, t->step_loss, sizeof sum));
        CHECK_NEAR((double)sum, o.loss[i] + (i % MICRO ? o.loss[i - 1] : 0), 1e-6 * (double)sum);
        if (i % MICRO == MICRO - 1)
            CHECK_OK(graph ? pb_graphs_run(&g, ctx, t, pb_train_finish) : pb_train_finish(ctx, t));
        if (i == MICRO - 1) o.grads = snapshot(t, true, &o.ngrads);
    }
    if (graph) assert_int_equal(g.recorded, 3);
    o.state = snapshot(t, false, &o.nstate);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(t);
    return o;
}

/* || a - b || / || b ||; NaN if any element is. */
static inline double apart(const float *a, const float *b, size_t n)
{
    double sum = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / norm);
}

static const char *const models[] = {"tiny", "tiny-qwen3", "tiny-llama"}; /* the first has a tied head */

static inline pb_train_config case_of(int i)
{
    pb_train_config c = config(models[i % 3], (pb_tuning)(i / 3 % PB_NTUNINGS));
    c.model.dtype = i >= 3 * PB_NTUNINGS ? PB_BF16 : PB_F32;
    c.clip = PB_CLIP_MULTI;
    return c;
}
enum { CASES = 3 * PB_NTUNINGS * PB_NFLOAT };

/* Checks that the peak of a context that trains is that of the plan, to the byte. */
static inline void check_plan(const pb_ctx *like, const pb_train_config *c)
{
    pb_ctx plan, real;
    CHECK_OK(pb_ctx_open_plan(&plan, like->id));
    pb_trainer *t = open_trainer(&plan, c);
    CHECK_OK(pb_trainer_reserve(t, c->S));
    pb_trainer_close(t);
    CHECK_OK(pb_ctx_open(&real, like->id, 0));
    t = open_fixture(&real, c);
    CHECK_OK(pb_trainer_reserve(t, c->S));
    CHECK_OK(pb_train_step(&real, t));
    assert_int_equal(real.held_peak, pb_plan_peak(&plan));
    pb_trainer_close(t);
    pb_ctx_close(&real);
    pb_ctx_close(&plan);
}

/* Bytes of a piece of an arena. */
static inline size_t piece(size_t bytes) { return (bytes + PB_ARENA_ALIGN - 1) / PB_ARENA_ALIGN * PB_ARENA_ALIGN; }
#endif
