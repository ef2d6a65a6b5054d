/* dynmask_bias_test.c - tests the bias of dynamic-mask attention: both forms against the formulas in double precision,
 * the linear end of softplus, A = 0, what adds and what overwrites, and independence of the number of threads. The
 * gradients are compared with finite differences by grad_test. Runs with every implementation. */
#include "kernels/dynmask_bias/dynmask_bias.h"

#include <omp.h>

#include "tests/test.h"

enum { B = 3, S = 50, K = 3, D = 12, N = K * D, LD = N + 5, LDD = N + 2 };

typedef struct problem {
    float v[B * S * LD], w[K * N], dt[K], a[K], dbias[B * K * S], dv[B * S * LDD];
    float u[B * K * S], bias[B * K * S], dw[K * N], ddt[K], da[K];
} problem;

static float draw(uint64_t seed, size_t i, double half) { return (float)(half * (2 * pb_uniform(seed, i) - 1)); }

static problem *make(void)
{
    problem *p = malloc(sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < B * S * LD; i++) p->v[i] = i % LD < N ? draw(1, i, 1) : NAN; /* NaN between the tokens */
    for (size_t i = 0; i < B * S * LDD; i++) p->dv[i] = i % LDD < N ? draw(2, i, 1) : NAN;
    for (size_t i = 0; i < K * N; i++) p->w[i] = draw(3, i, 3), p->dw[i] = NAN;
    for (size_t i = 0; i < B * K * S; i++) p->dbias[i] = draw(4, i, 1), p->u[i] = p->bias[i] = NAN;
    for (size_t k = 0; k < K; k++) p->dt[k] = draw(5, k, 15), p->a[k] = draw(6, k, 0.4), p->da[k] = p->ddt[k] = NAN;
    return p;
}

static void forward(pb_ctx *ctx, problem *p, bool exponential, bool dt)
{
    CHECK_OK(pb_dynmask_bias_fwd(ctx, &(pb_dynmask_bias_fwd_args){.v = p->v,
                                                                  .w = p->w,
                                                                  .dt = dt ? p->dt : NULL,
                                                                  .a = p->a,
                                                                  .u = p->u,
                                                                  .bias = p->bias,
                                                                  .B = B,
                                                                  .S = S,
                                                                  .K = K,
                                                                  .D = D,
                                                                  .ldv = LD,
                                                                  .exponential = exponential}));
}

static void backward(pb_ctx *ctx, problem *p, bool exponential, bool dt, bool accumulate)
{
    CHECK_OK(pb_dynmask_bias_bwd(ctx, &(pb_dynmask_bias_bwd_args){.dbias = p->dbias,
                                                                  .v = p->v,
                                                                  .w = p->w,
                                                                  .a = p->a,
                                                                  .u = p->u,
                                                                  .dv = p->dv,
                                                                  .dw = p->dw,
                                                                  .ddt = dt ? p->ddt : NULL,
                                                                  .da = p->da,
                                                                  .B = B,
                                                                  .S = S,
                                                                  .K = K,
                                                                  .D = D,
                                                                  .ldv = LD,
                                                                  .lddv = LDD,
                                                                  .exponential = exponential,
                                                                  .accumulate = accumulate}));
}

static void check_forward(pb_ctx *ctx, bool exponential, bool dt)
{
    problem *p = make();
    int linear = 0;
    forward(ctx, p, exponential, dt);
    for (int b = 0; b < B; b++)
        for (int k = 0; k < K; k++)
            for (int j = 0; j < S; j++) {
                const int at = (b * K + k) * S + j;
                double u = dt ? (double)p->dt[k] : 0;
                for (int e = 0; e < N; e++) u += (double)p->v[(b * S + j) * LD + e] * (double)p->w[k * N + e];
                const double z = u > 20 ? u : log(1 + exp(u)),
                             want = exponential ? exp((double)p->a[k] * z) : (double)p->a[k] * z;
                CHECK_NEAR(p->u[at], u, 2e-5);
                CHECK_NEAR(p->bias[at], want, 2e-5 * (1 + fabs(want)));
                linear += u > 20;
            }
    if (dt) assert_true(linear > 0 && linear < B * K * S / 2);
    free(p);
}
static void both_forms_equal_their_formula(void **state)
{
    for (int form = 0; form < 4; form++) check_forward(*state, form & 1, form & 2);
}

/* Below, u is the bias dt alone: v = 0. softplus(120) is 120 with slope 1, where exp(u) overflows; softplus(0) is log 2
 * with slope 1/2. */
static void softplus_is_linear_above_20(void **state)
{
    problem *p = make();
    for (int form = 0; form < 2; form++) {
        memset(p->v, 0, sizeof p->v);
        p->dt[0] = 120, p->dt[1] = 0, p->dt[2] = -30;
        p->a[0] = -0.03125f, p->a[1] = 2, p->a[2] = 1;
        for (int i = 0; i < B * K * S; i++) p->dbias[i] = 1;
        forward(*state, p, form, true);
        backward(*state, p, form, true, false);
        const double x = -0.03125 * 120, y = 2 * log(2), n = B * S;
        CHECK_NEAR(p->bias[0], form ? exp(x) : x, 1e-7);
        CHECK_NEAR(p->bias[S], form ? 4 : y, 1e-6);
        CHECK_NEAR(p->bias[2 * S], form ? 1 : 0, 1e-12);
        CHECK_NEAR(p->ddt[0], n * -0.03125 * (form ? exp(x) : 1), 1e-5);
        CHECK_NEAR(p->ddt[1], n * 2 * 0.5 * (form ? 4 : 1), 1e-3);
        CHECK_NEAR(p->da[0], n * 120 * (form ? exp(x) : 1), 1e-2);
        CHECK_NEAR(p->da[1], n * log(2) * (form ? 4 : 1), 1e-3);
    }
    free(p);
}

/* With A = 0, transformers' initial value, every bias is equal; A has a gradient, but the inputs of the projection have
 * none. */
static void with_a_0_only_a_has_a_gradient(void **state)
{
    problem *p = make(), *old = make();
    memset(p->a, 0, sizeof p->a);
    for (int form = 0; form < 2; form++) {
        forward(*state, p, form, true);
        backward(*state, p, form, true, false);
        for (int i = 0; i < B * K * S; i++) assert_true(p->bias[i] == (form ? 1 : 0));
        for (int i = 0; i < K * N; i++) assert_true(p->dw[i] == 0);
        for (int k = 0; k < K; k++) assert_true(p->ddt[k] == 0 && fabsf(p->da[k]) > 0.01f);
        assert_memory_equal(p->dv, old->dv, sizeof p->dv);
    }
    free(p), free(old);
}

/* dv always adds; dw, ddt and da add only with `accumulate`. Gaps between tokens stay as they were. */
static void what_adds_and_what_overwrites(void **state)
{
    problem *once = make(), *twice = make();
    forward(*state, once, true, true);
    memcpy(twice->u, once->u, sizeof once->u);
    backward(*state, once, true, true, false);
    backward(*state, twice, true, true, false);
    backward(*state, twice, true, true, true);
    problem *start = make();
    for (int i = 0; i < K * N; i++) CHECK_NEAR(twice->dw[i], 2 * once->dw[i], 1e-6 * (1 + fabs((double)once->dw[i])));
    for (int k = 0; k < K; k++) {
        CHECK_NEAR(twice->da[k], 2 * once->da[k], 1e-6 * (1 + fabs((double)once->da[k])));
        CHECK_NEAR(twice->ddt[k], 2 * once->ddt[k], 1e-6 * (1 + fabs((double)once->ddt[k])));
    }
    for (int i = 0; i < B * S * LDD; i++) {
        const float added = once->dv[i] - start->dv[i];
        if (i % LDD >= N) assert_true(isnan(twice->dv[i]));
        else CHECK_NEAR(twice->dv[i] - start->dv[i], 2 * added, 1e-6 * (1 + fabs((double)added)));
    }
    free(once), free(twice), free(start);
}

static void a_projection_without_bias_has_no_ddt(void **state)
{
    problem *p = make();
    forward(*state, p, true, false);
    backward(*state, p, true, false, false);
    for (int k = 0; k < K; k++) assert_true(isnan(p->ddt[k]) && isfinite(p->da[k]));
    free(p);
}

/* With frozen weights, dv has the same bits as otherwise. */
static void frozen_weights_have_no_gradients(void **state)
{
    problem *trained = make(), *frozen = make();
    forward(*state, trained, true, true), forward(*state, frozen, true, true);
    backward(*state, trained, true, true, false);
    pb_dynmask_bias_bwd_args a = {.dbias = frozen->dbias, .v = frozen->v, .w = frozen->w, .a = frozen->a};
    a.u = frozen->u, a.dv = frozen->dv;
    a.B = B, a.S = S, a.K = K, a.D = D, a.ldv = LD, a.lddv = LDD, a.exponential = true;
    CHECK_OK(pb_dynmask_bias_bwd(*state, &a));
    assert_memory_equal(trained->dv, frozen->dv, sizeof trained->dv);
    a.da = frozen->da;
    CHECK_FAILS(pb_dynmask_bias_bwd(*state, &a), PB_EINVAL, "some are NULL");
    a.da = NULL, a.ddt = frozen->ddt;
    CHECK_FAILS(pb_dynmask_bias_bwd(*state, &a), PB_EINVAL, "some are NULL");
    free(trained), free(frozen);
}

static void threads_do_not_change_the_result(void **state)
{
    const int most = omp_get_max_threads();
    problem *one = make(), *four = make();
    omp_set_num_threads(1);
    forward(*state, one, true, true), backward(*state, one, true, true, false);
    omp_set_num_threads(4);
    forward(*state, four, true, true), backward(*state, four, true, true, false);
    omp_set_num_threads(most);
    assert_memory_equal(one->bias, four->bias, sizeof one->bias);
    assert_memory_equal(one->dv, four->dv, sizeof one->dv);
    assert_memory_equal(one->dw, four->dw, sizeof one->dw);
    assert_memory_equal(one->da, four->da, sizeof one->da);
    free(one), free(four);
}

/* Values that earlier ops left in the scratch memory must not enter the sums. */
static void old_scratch_leaves_no_trace(void **state)
{
    pb_ctx *ctx = *state;
    problem *clean = make(), *dirty = make();
    forward(ctx, clean, false, true), forward(ctx, dirty, false, true);
    backward(ctx, clean, false, true, false);
    memset(ctx->scratch, 0xff, ctx->scratch_bytes); /* NaN */
    backward(ctx, dirty, false, true, false);
    assert_memory_equal(clean->dw, dirty->dw, sizeof clean->dw);
    assert_memory_equal(clean->ddt, dirty->ddt, sizeof clean->ddt);
    assert_memory_equal(clean->da, dirty->da, sizeof clean->da);
    free(clean), free(dirty);
}

static void test_errors(void **state)
{
    problem *p = make();
    pb_dynmask_bias_fwd_args f = {
        .v = p->v, .w = p->w, .a = p->a, .u = p->u, .bias = p->bias, .B = B, .S = S, .K = K, .D = D, .ldv = LD};
    pb_dynmask_bias_bwd_args g = {.dbias = p->dbias,
                                  .v = p->v,
                                  .w = p->w,
                                  .a = p->a,
                                  .u = p->u,
                                  .dv = p->dv,
                                  .dw = p->dw,
                                  .da = p->da,
                                  .B = B,
                                  .S = S,
                                  .K = K,
                                  .D = D,
                                  .ldv = LD,
                                  .lddv = N - 1};
    CHECK_FAILS(pb_dynmask_bias_bwd(*state, &g), PB_EINVAL, "need at least 36");
    g.lddv = LDD, g.dbias = NULL;
    CHECK_FAILS(pb_dynmask_bias_bwd(*state, &g), PB_EINVAL, "NULL");
    f.ldv = N - 1;
    CHECK_FAILS(pb_dynmask_bias_fwd(*state, &f), PB_EINVAL, "need at least 36");
    f.ldv = LD, f.K = 0;
    CHECK_FAILS(pb_dynmask_bias_fwd(*state, &f), PB_EINVAL, "K=0");
    f.K = K, f.a = NULL;
    CHECK_FAILS(pb_dynmask_bias_fwd(*state, &f), PB_EINVAL, "NULL");
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_equal_their_formula),
        cmocka_unit_test(softplus_is_linear_above_20),
        cmocka_unit_test(with_a_0_only_a_has_a_gradient),
        cmocka_unit_test(what_adds_and_what_overwrites),
        cmocka_unit_test(a_projection_without_bias_has_no_ddt),
        cmocka_unit_test(frozen_weights_have_no_gradients),
        cmocka_unit_test(threads_do_not_change_the_result),
        cmocka_unit_test(old_scratch_leaves_no_trace),
        cmocka_unit_test(test_errors),
    };
    return test_every_impl(&pb_op_dynmask_bias_fwd, tests, sizeof tests / sizeof *tests);
}
