/* model_test.h - makes small models with adapters on every target, and compares parameters of two models, for the tests
 * that write and read models. */
#ifndef PB_MODEL_TEST_H
#define PB_MODEL_TEST_H
#include "tests/trainer/step/trainer_fixture.h"

static const char *const models[] = {"tiny", "tiny-qwen3", "tiny-llama", "doge-tiny"};
enum { MODELS = sizeof models / sizeof *models };

static inline pb_model open_model(pb_ctx *ctx, const pb_geometry *g, pb_tuning tuning, pb_dtype dtype, uint64_t seed)
{
    pb_model m;
    pb_model_config c = pb_train_defaults(g).model;
    c.tuning = tuning;
    c.dtype = dtype;
    c.seed = seed;
    c.rank = 4;
    c.random_b = true;
    c.targets = (1u << PB_NTARGETS) - 1;
    CHECK_OK(pb_model_open(ctx, &c, &m));
    return m;
}

static inline void assert_same_param(const pb_param *x, const pb_param *y)
{
    const size_t n = pb_param_n(x);
    assert_string_equal(x->name, y->name);
    assert_int_equal(n, pb_param_n(y));
    assert_memory_equal(x->w, y->w, n * pb_dtype_size(x->dtype));
    if (x->master) assert_memory_equal(x->master, y->master, n * sizeof(float));
}

/* Changes the trained gains of the norms, so that they differ from their initial values as after training. */
static inline void move_gains(pb_model *m)
{
    for (int i = 0; i < m->n; i++)
        for (size_t k = 0; m->params[i].trained && m->params[i].kind == PB_KIND_GAIN && k < m->params[i].cols; k++)
            ((float *)m->params[i].w)[k] *= 1 + 0.01f * (float)(k % 7);
}
#endif
