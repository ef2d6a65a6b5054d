/* xent_test.c - tests of the masked cross-entropy that the comparison with the reference does not cover: known values,
 * extreme logits, masks, invalid targets, NaN, outputs in place, the loss scale, errors. */
#include <stdlib.h>
#include <string.h>

#include "kernels/xent/xent.h"
#include "tests/test.h"

enum { T = 4, V = 2100, N = T * V }; /* V: several chunks and a tail */

typedef struct problem {
    float logits[N], d[N], mask[T], inv[1], nll[T], loss[1];
    int32_t target[T];
} problem;

static problem *make(void)
{
    problem *p = malloc(sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < N; i++) p->logits[i] = (float)(16 * pb_uniform(1, i) - 8);
    for (int t = 0; t < T; t++) p->mask[t] = 1, p->target[t] = t * 500 + 7;
    p->inv[0] = 1.0f / T;
    return p;
}

static pb_xent_bwd_args args(problem *p)
{
    return (pb_xent_bwd_args){.logits = p->logits,
                              .target = p->target,
                              .mask = p->mask,
                              .inv_count = p->inv,
                              .dlogits = p->d,
                              .nll = p->nll,
                              .loss = p->loss,
                              .T = T,
                              .V = V};
}

static pb_status forward(pb_ctx *ctx, problem *p)
{
    return pb_xent_fwd(ctx, &(pb_xent_fwd_args){.logits = p->logits,
                                                .target = p->target,
                                                .mask = p->mask,
                                                .inv_count = p->inv,
                                                .nll = p->nll,
                                                .loss = p->loss,
                                                .T = T,
                                                .V = V});
}

/* Equal logits of any size give nll = ln V and the gradient (1/V - [target]) / T. */
static void flat_logits_give_the_logarithm_of_V(void **state)
{
    problem *p = make();
    for (size_t i = 0; i < N; i++) p->logits[i] = i / V % 2 ? -3e4f : 3e4f;
    pb_xent_bwd_args a = args(p);
    CHECK_OK(pb_xent_bwd(*state, &a));
    CHECK_NEAR(p->loss[0], log(V), 1e-6 * log(V));
    for (int t = 0; t < T; t++) {
        CHECK_NEAR(p->nll[t], log(V), 5e-3); /* loose: in f32, numbers near 3e4 are 2e-3 apart */
        CHECK_NEAR(p->d[t * V], 1.0 / V / T, 1e-9);
        CHECK_NEAR(p->d[t * V + V - 1], 1.0 / V / T, 1e-9);
        CHECK_NEAR(p->d[t * V + p->target[t]], (1.0 / V - 1) / T, 1e-7);
    }
    CHECK_OK(forward(*state, p));
    CHECK_NEAR(p->loss[0], log(V), 1e-6 * log(V));
    free(p);
}

/* Logits near the largest f32, and whole chunks of -Inf, cause no overflow and no NaN. */
static void extreme_logits_stay_finite(void **state)
{
    problem *p = make();
    for (size_t i = 0; i < N; i++) p->logits[i] = -INFINITY;
    for (int t = 0; t < T; t++) p->logits[t * V + p->target[t]] = t % 2 ? 3e38f : -3e38f;
    p->logits[3 * V + V - 1] = 3e38f;
    pb_xent_bwd_args a = args(p);
    CHECK_OK(pb_xent_bwd(*state, &a));
    for (int t = 0; t < T; t++) CHECK_NEAR(p->nll[t], t == 3 ? log(2) : 0, 1e-6);
    CHECK_NEAR(p->d[3 * V + V - 1], 0.5 / T, 1e-7);
    for (size_t i = 0; i < N; i++) assert_true(isfinite(p->d[i]));
    free(p);
}

static void gradient_rows_sum_to_zero_and_in_place_is_equal(void **state)
{
    problem *p = make();
    pb_xent_bwd_args a = args(p);
    CHECK_OK(pb_xent_bwd(*state, &a));
    for (size_t t = 0; t < T; t++) {
        double sum = 0;
        for (size_t v = 0; v < V; v++) sum += (double)p->d[t * V + v];
        CHECK_NEAR(sum, 0, 1e-7);
    }
    a.dlogits = p->logits;
    CHECK_OK(pb_xent_bwd(*state, &a));
    assert_memory_equal(p->logits, p->d, sizeof p->d);
    free(p);
}

static void masked_tokens_are_not_read(void **state)
{
    problem *p = make();
    pb_xent_bwd_args a = args(p);
    p->mask[1] = 0, p->target[1] = -1;
    for (int v = 0; v < V; v++) p->logits[V + v] = NAN;
    CHECK_OK(pb_xent_bwd(*state, &a));
    assert_true(p->nll[1] == 0 && isfinite(p->loss[0]));
    for (int v = 0; v < V; v++) assert_true(p->d[V + v] == 0);
    CHECK_NEAR(p->loss[0], (p->nll[0] + p->nll[2] + p->nll[3]) / T, 1e-6);
    const float loss = p->loss[0];
    CHECK_OK(forward(*state, p));
    CHECK_NEAR(p->loss[0], loss, 1e-6);
    memset(p->mask, 0, sizeof p->mask);
    p->inv[0] = 0;
    CHECK_OK(forward(*state, p));
    assert_true(p->loss[0] == 0);
    free(p);
}

static void a_target_outside_the_vocabulary_gives_nan(void **state)
{
    const int32_t bad[2] = {-1, V};
    for (int k = 0; k < 2; k++) {
        problem *p = make();
        pb_xent_bwd_args a = args(p);
        p->target[2] = bad[k];
        CHECK_OK(pb_xent_bwd(*state, &a));
        assert_true(isnan(p->nll[2]) && isnan(p->loss[0]) && isfinite(p->nll[1]));
        for (int v = 0; v < V; v++) assert_true(isnan(p->d[2 * V + v]) && isfinite(p->d[V + v]));
        p->loss[0] = 0;
        CHECK_OK(forward(*state, p));
        assert_true(isnan(p->nll[2]) && isnan(p->loss[0]));
        free(p);
    }
}

/* One NaN logit must make the loss NaN, at any index of the row. */
static void nan_logits_make_the_loss_nan(void **state)
{
    const int at[3] = {0, 1030, V - 1};
    for (int k = 0; k < 3; k++) {
        problem *p = make();
        p->logits[V + at[k]] = NAN;
        pb_xent_bwd_args a = args(p);
        CHECK_OK(pb_xent_bwd(*state, &a));
        assert_true(isnan(p->loss[0]) && isnan(p->nll[1]) && isnan(p->d[V + 5]));
        free(p);
    }
}

/* A gradient that is large enough for streaming stores must have the same bits as one written in place, which is never
 * streamed. */
static void large_gradients_are_equal(void **state)
{
    const size_t t_ = 1100, v_ = 16384;
    int32_t target[1100];
    float mask[1100], inv[1] = {1}, nll[1100], loss[1];
    if (strcmp(((pb_ctx *)*state)->impl, "ref") == 0) skip();
    for (size_t i = 0; i < t_; i++) target[i] = (int32_t)(i * 13), mask[i] = i % 3 != 0;
    for (int t = 0; t < PB_NFLOAT; t++) {
        char *logits = test_values(t_ * v_, t, 1), *d = test_values(t_ * v_, t, 2);
        pb_xent_bwd_args a = {.logits = logits,
                              .target = target,
                              .mask = mask,
                              .inv_count = inv,
                              .dlogits = d,
                              .nll = nll,
                              .loss = loss,
                              .T = (int)t_,
                              .V = (int)v_,
                              .dtype = t};
        CHECK_OK(pb_xent_bwd(*state, &a));
        a.dlogits = logits;
        CHECK_OK(pb_xent_bwd(*state, &a));
        assert_true(memcmp(d, logits, t_ * v_ * pb_dtype_size((pb_dtype)t)) == 0);
        free(logits), free(d);
    }
}

/* The loss scale changes only the gradient. */
static void the_loss_scale_multiplies_the_gradient_only(void **state)
{
    problem *p = make(), *q = make();
    const float scale = 1024;
    p->mask[1] = q->mask[1] = 0, p->mask[2] = q->mask[2] = 0.5f;
    pb_xent_bwd_args a = args(p), b = args(q);
    b.loss_scale = &scale;
    CHECK_OK(pb_xent_bwd(*state, &a));
    CHECK_OK(pb_xent_bwd(*state, &b));
    assert_true(p->loss[0] == q->loss[0]);
    assert_memory_equal(p->nll, q->nll, sizeof p->nll);
    for (size_t i = 0; i < N; i++)
        if (q->d[i] != scale * p->d[i]) fail_msg("element %zu", i);
    free(p), free(q);
}

static void bad_arguments_are_named(void **state)
{
    CHECK_FAILS(pb_xent_fwd(*state, &(pb_xent_fwd_args){.T = 1}), PB_EINVAL, "V=0");
    CHECK_FAILS(pb_xent_bwd(*state, &(pb_xent_bwd_args){.T = 1, .V = 1}), PB_EINVAL, "dlogits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_logits_give_the_logarithm_of_V),
        cmocka_unit_test(extreme_logits_stay_finite),
        cmocka_unit_test(gradient_rows_sum_to_zero_and_in_place_is_equal),
        cmocka_unit_test(masked_tokens_are_not_read),
        cmocka_unit_test(a_target_outside_the_vocabulary_gives_nan),
        cmocka_unit_test(nan_logits_make_the_loss_nan),
        cmocka_unit_test(large_gradients_are_equal),
        cmocka_unit_test(the_loss_scale_multiplies_the_gradient_only),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_xent_fwd, tests, sizeof tests / sizeof *tests);
}
