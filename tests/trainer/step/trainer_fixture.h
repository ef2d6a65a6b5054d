/* trainer_fixture.h - small trainers, the seeded batch of scripts/fixtures/model_fixtures.py, and snapshots of
 * gradients and weights, shared by the tests of the trainer. */
#ifndef PB_TRAINER_FIXTURE_H
#define PB_TRAINER_FIXTURE_H
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/bind.h"
#include "tests/test.h"
#include "trainer/step/trainer.h"

enum { B = 2, S = 17, T = B * S };

static inline pb_train_config config(const char *model, pb_tuning tuning)
{
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find(model, &g));
    pb_train_config c = pb_train_defaults(g);
    c.model.tuning = tuning;
    c.model.rank = 4;
    c.model.alpha = 8;
    c.model.random_b = true;
    c.model.targets = (1u << PB_NTARGETS) - 1;
    c.B = B;
    c.S = S;
    c.lr = 1e-3f;
    return c;
}

static inline pb_trainer *open_trainer(pb_ctx *ctx, const pb_train_config *c)
{
    pb_trainer *t = NULL;
    CHECK_OK(pb_trainer_open(ctx, c, &t));
    return t;
}

/* Sets the trainer's batch to rows first..first+rows-1 of the seeded batch in scripts/fixtures/model_fixtures.py. */
static inline void fixture_batch(pb_trainer *t, int first, int rows, double count)
{
    const int V = pb_trainer_model(t)->g.V;
    int32_t ids[T], targets[T];
    float mask[T];
    for (int i = 0; i < rows * S; i++) {
        const uint64_t at = (uint64_t)(first * S + i);
        ids[i] = (int32_t)(pb_uniform(1, at) * V);
        targets[i] = (int32_t)(pb_uniform(2, at) * V);
        mask[i] = pb_uniform(3, at) < 0.7;
    }
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){ids, targets, mask, count}));
}

static inline pb_trainer *open_fixture(pb_ctx *ctx, const pb_train_config *c)
{
    pb_trainer *t = open_trainer(ctx, c);
    fixture_batch(t, 0, B, 0);
    return t;
}

static inline void run_phases(pb_ctx *ctx, pb_trainer *t, int first, int last)
{
    for (int i = first; i <= last; i++) CHECK_OK(pb_phases[i](ctx, t));
}

static inline double loss_of(pb_trainer *t)
{
    double loss;
    CHECK_OK(pb_trainer_loss(t, &loss));
    return loss;
}

/* Copies all gradients (`gradients` true) or everything that a step changes, weights and both moments (false), into one
 * array of *n elements. The caller frees it. */
static inline float *snapshot(pb_trainer *t, bool gradients, size_t *n)
{
    const pb_model *m = pb_trainer_model(t);
    float *all = calloc(m->trained * 3, sizeof *all), *at = all;
    assert_non_null(all);
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        const void *const parts[3] = {gradients ? p->grad : p->w, p->m, p->v};
        for (int k = 0; p->trained && k < (gradients ? 1 : 3); k++) {
            const size_t of = k == 2 ? pb_param_v_n(p) : pb_param_n(p);
            CHECK_OK(pb_download(m->ctx, at, parts[k], of * (k ? 4 : gradients ? 4 : pb_dtype_size(p->dtype))));
            at += of;
        }
    }
    *n = (size_t)(at - all);
    return all;
}

static inline void assert_same(float *a, float *b, size_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
    free(a);
    free(b);
}

static inline const pb_param *param_named(const pb_model *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->params[i].name, name) == 0) return &m->params[i];
    fail_msg("the model has no parameter %s", name);
    return NULL;
}

/* Checks a gradient's norm and its dot product with the fixed vector of scripts/fixtures against PyTorch's values. */
static inline void check_gradient(pb_ctx *ctx, const pb_param *p, double norm, double product)
{
    float *grad = test_fetch(ctx, p->grad, pb_param_n(p) * sizeof *grad);
    double sum = 0, dot = 0;
    for (size_t i = 0; i < pb_param_n(p); i++) {
        sum += (double)grad[i] * (double)grad[i];
        dot += (double)grad[i] * (2 * pb_uniform(99, i) - 1);
    }
    free(grad);
    if (!(fabs(sqrt(sum) - norm) <= 2e-5 * norm) || !(fabs(dot - product) <= 2e-5 * norm))
        fail_msg("%s: |grad| %.9g and <grad,fixed> %.9g, PyTorch has %.9g and %.9g", p->name, sqrt(sum), dot, norm,
                 product);
}
#endif
