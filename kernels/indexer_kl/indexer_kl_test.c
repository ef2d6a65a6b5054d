/* indexer_kl_test.c - tests of indexer_kl: PyTorch's results with clipped logarithms, known losses and gradients,
 * masked slots and NaN. indexer_test.c tests the complete chain from scores to gradients. */
#include "kernels/indexer_kl/indexer_kl.h"
#include "tests/kernels/indexer_fixture.h"

static void on_each(pb_ctx *ctx, void (*check)(pb_ctx *))
{
    for (const pb_impl *i = pb_indexer_kl_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check(ctx);
    }
    ctx->impl = NULL;
}

static void check_far(pb_ctx *ctx)
{
    enum { R = 6, N = 7 };
    float *score = draw(7, R * N), *mass = fixture("far.mass", R * N), *picked = fixture("far.picked", R * N);
    float dscore[R * N], loss;
    int32_t pick[R * N];
    for (int i = 0; i < R * N; i++) {
        pick[i] = picked[i] > 0 ? i : -1;
        score[i] = pick[i] < 0 ? NAN : 64 * score[i];
        if (pick[i] < 0) mass[i] = NAN;
    }
    CHECK_OK(pb_indexer_kl_fwd(ctx, &(pb_indexer_kl_fwd_args){score, mass, pick, &loss, R, N}));
    matches("far.loss", &loss, 1, 1e-6);
    CHECK_OK(pb_indexer_kl_bwd(ctx, &(pb_indexer_kl_bwd_args){score, mass, pick, NULL, dscore, R, N}));
    matches("far.dscore", dscore, R * N, 3e-6);
    free(score), free(mass), free(picked);
}
static void clipping_agrees_with_pytorch(void **state) { on_each(*state, check_far); }

static float both(pb_ctx *ctx, const float *score, const float *mass, const int32_t *pick, int R, int K,
                  const float *scale, float *dscore)
{
    float loss = NAN;
    for (int i = 0; i < R * K; i++) dscore[i] = NAN;
    CHECK_OK(pb_indexer_kl_fwd(ctx, &(pb_indexer_kl_fwd_args){score, mass, pick, &loss, R, K}));
    CHECK_OK(pb_indexer_kl_bwd(ctx, &(pb_indexer_kl_bwd_args){score, mass, pick, scale, dscore, R, K}));
    return loss;
}

/* p = (3/4, 1/4) and y = (1/4, 3/4): the loss is ln 3 / 2, the gradient p - y. */
static void check_known(pb_ctx *ctx)
{
    const float score[] = {logf(3) + 5, 5}, mass[] = {2, 6}, scale = 0.5f;
    const int32_t pick[] = {0, 9};
    float ds[2];
    CHECK_NEAR(both(ctx, score, mass, pick, 1, 2, NULL, ds), log(3) / 2, 1e-6);
    CHECK_NEAR(ds[0], 0.5, 1e-6);
    CHECK_NEAR(ds[1], -0.5, 1e-6);
    CHECK_NEAR(both(ctx, score, mass, pick, 1, 2, &scale, ds), log(3) / 2, 1e-6); /* scale does not affect the loss */
    CHECK_NEAR(ds[0], 0.25, 1e-6);
}
static void a_known_loss(void **state) { on_each(*state, check_known); }

static void check_perfect(pb_ctx *ctx)
{
    float score[40], mass[40], ds[40];
    int32_t pick[40];
    for (int j = 0; j < 40; j++) score[j] = (float)j / 9, mass[j] = 3 * expf(score[j]), pick[j] = j;
    CHECK_NEAR(both(ctx, score, mass, pick, 1, 40, NULL, ds), 0, 1e-6);
    for (int j = 0; j < 40; j++) CHECK_NEAR(ds[j], 0, 1e-6);
}
static void an_indexer_that_predicts_all_has_no_loss(void **state) { on_each(*state, check_perfect); }

/* A slot with ln p < -100 adds at most 100 per unit of its mass to the loss, and the clipped logarithm has no
 * gradient. */
static void check_clipped(pb_ctx *ctx)
{
    const float score[] = {0, -500}, mass[] = {1, 1};
    const int32_t pick[] = {4, 7};
    float ds[2];
    CHECK_NEAR(both(ctx, score, mass, pick, 1, 2, NULL, ds), log(0.5) + 50, 1e-4);
    CHECK_NEAR(ds[0], 0, 1e-6); /* p (1/2) - 1/2 */
    assert_true(ds[1] == 0);
}
static void logarithms_are_clipped(void **state) { on_each(*state, check_clipped); }

/* Query 0 has no group, query 1 has no mass; the loss and gradient of query 2 are known. Masked scores and masses are
 * NaN. */
static void check_nothing(pb_ctx *ctx)
{
    const float score[] = {NAN, NAN, NAN, 1, 2, NAN, NAN, 5, 5 + logf(3)};
    const float mass[] = {NAN, NAN, NAN, 0, 0, NAN, NAN, 3, 1};
    const int32_t pick[] = {-1, -1, -7, 0, 1, -1, -1, 3, 4};
    float ds[9];
    CHECK_NEAR(both(ctx, score, mass, pick, 3, 3, NULL, ds), log(3) / 2, 1e-6);
    for (int j = 0; j < 7; j++) assert_true(ds[j] == 0);
    CHECK_NEAR(ds[7], -0.5, 1e-6);
}
static void queries_without_groups_or_mass_have_no_loss(void **state) { on_each(*state, check_nothing); }

static void check_nan(pb_ctx *ctx)
{
    for (int j = 0; j < 40; j++) { /* slot j holds a NaN; over the iterations, j covers every lane of a vector */
        float score[80] = {0}, mass[80], ds[80];
        int32_t pick[80];
        for (int i = 0; i < 80; i++) mass[i] = 1, pick[i] = i % 40 == 0 ? -1 : i;
        if (j == 0) continue;
        score[j] = NAN;
        assert_true(isnan(both(ctx, score, mass, pick, 2, 40, NULL, ds)));
        for (int i = 0; i < 80; i++) assert_int_equal(isnan(ds[i]) != 0, i > 0 && i < 40);
        score[j] = 0, mass[j] = NAN;
        assert_true(isnan(both(ctx, score, mass, pick, 2, 40, NULL, ds)));
        assert_true(isnan(ds[1]) && ds[0] == 0 && isfinite(ds[41]));
    }
}
static void a_nan_makes_the_loss_nan(void **state) { on_each(*state, check_nan); }

static void in_place(void **state)
{
    float score[] = {0.25f, 1, -2}, ds[3];
    const float mass[] = {1, 2, 3};
    const int32_t pick[] = {0, 1, 2};
    both(*state, score, mass, pick, 1, 3, NULL, ds);
    CHECK_OK(pb_indexer_kl_bwd(*state, &(pb_indexer_kl_bwd_args){score, mass, pick, NULL, score, 1, 3}));
    assert_memory_equal(score, ds, sizeof ds);
}

static void bad_arguments_are_named(void **state)
{
    float x[1] = {0}, loss;
    int32_t pick[1] = {0};
    pb_indexer_kl_fwd_args f = {x, x, pick, &loss, 1, -1};
    CHECK_FAILS(pb_indexer_kl_fwd(*state, &f), PB_EINVAL, "K=-1");
    f.K = 1, f.mass = NULL;
    CHECK_FAILS(pb_indexer_kl_fwd(*state, &f), PB_EINVAL, "mass or pick is NULL");
    f.mass = x, f.loss = NULL;
    CHECK_FAILS(pb_indexer_kl_fwd(*state, &f), PB_EINVAL, "loss is NULL");
    pb_indexer_kl_bwd_args b = {x, x, pick, NULL, NULL, 1, 1};
    CHECK_FAILS(pb_indexer_kl_bwd(*state, &b), PB_EINVAL, "dscore is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipping_agrees_with_pytorch),
        cmocka_unit_test(a_known_loss),
        cmocka_unit_test(an_indexer_that_predicts_all_has_no_loss),
        cmocka_unit_test(logarithms_are_clipped),
        cmocka_unit_test(queries_without_groups_or_mass_have_no_loss),
        cmocka_unit_test(a_nan_makes_the_loss_nan),
        cmocka_unit_test(in_place),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
