/* swiglu_test.c - tests of SwiGLU that the comparison with the reference does not cover: known values, saturation of
 * the sigmoid, outputs in place, large outputs, errors. */
#include <string.h>

#include "kernels/swiglu/swiglu.h"
#include "tests/test.h"

enum { T = 3, I = 37, N = T * I };

static void fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(8 * pb_uniform(seed, i) - 4);
}

static void known_values(void **state)
{
    /* silu(0) = 0, silu(1) = 0.731058579, silu(-2) = -0.238405844; for large |z|, silu(z) is 0 or z. */
    const float gu[10] = {0, 1, -2, 200, -200, 3, 2, 10, 1, 1};
    const double want[5] = {0, 2 * 0.7310585786300049, -2.3840584404423515, 200, 0};
    float y[5];
    CHECK_OK(pb_swiglu_fwd(*state, &(pb_swiglu_fwd_args){.gu = gu, .y = y, .T = 1, .I = 5}));
    for (int i = 0; i < 5; i++) CHECK_NEAR(y[i], want[i], 1e-6 * fabs(want[i]));
}

/* Gates for which the sigmoid is 0 or 1 must not give NaN, in whole vectors and in tails. */
static void saturates_without_nan(void **state)
{
    float gu[2 * I], dy[I], dgu[2 * I], y[I];
    for (int i = 0; i < I; i++) gu[i] = i % 2 ? 1e30f : -1e30f, gu[I + i] = 1, dy[i] = 1;
    CHECK_OK(pb_swiglu_bwd(*state, &(pb_swiglu_bwd_args){.dy = dy, .gu = gu, .dgu = dgu, .y = y, .T = 1, .I = I}));
    for (int i = 0; i < I; i++) {
        CHECK_NEAR(dgu[i], i % 2, 0);
        CHECK_NEAR(dgu[I + i], i % 2 ? (double)1e30f : 0, 0);
        CHECK_NEAR(y[i], i % 2 ? (double)1e30f : 0, 0);
    }
}

static void gradient_in_place(void **state)
{
    float dy[N], gu[2 * N], dgu[2 * N], y[N];
    fill(dy, N, 1), fill(gu, 2 * N, 2);
    pb_swiglu_bwd_args a = {.dy = dy, .gu = gu, .dgu = dgu, .y = y, .T = T, .I = I};
    CHECK_OK(pb_swiglu_bwd(*state, &a));
    a.dgu = gu, a.y = dy;
    CHECK_OK(pb_swiglu_bwd(*state, &a));
    assert_memory_equal(gu, dgu, sizeof dgu);
    assert_memory_equal(dy, y, sizeof y);
}

static void backward_gives_the_activation_of_forward(void **state)
{
    float dy[N], gu[2 * N], dgu[2 * N], y[N], again[N];
    fill(dy, N, 1), fill(gu, 2 * N, 2);
    CHECK_OK(pb_swiglu_fwd(*state, &(pb_swiglu_fwd_args){.gu = gu, .y = y, .T = T, .I = I}));
    CHECK_OK(pb_swiglu_bwd(*state, &(pb_swiglu_bwd_args){.dy = dy, .gu = gu, .dgu = dgu, .y = again, .T = T, .I = I}));
    assert_memory_equal(again, y, sizeof y);
}

/* Outputs that are large enough for streaming stores must have the same bits as outputs written in place, which are
 * never streamed. */
static void large_outputs_are_equal(void **state)
{
    const size_t t_ = 4400, i_ = 2048, n = t_ * i_;
    if (strcmp(((pb_ctx *)*state)->impl, "ref") == 0) skip();
    for (int t = 0; t < PB_NFLOAT; t++) {
        const size_t e = pb_dtype_size((pb_dtype)t);
        char *dy = test_values(n, t, 1), *gu = test_values(2 * n, t, 2), *dgu = test_values(2 * n, t, 3),
             *y = test_values(n, t, 4);
        pb_swiglu_bwd_args a = {.dy = dy, .gu = gu, .dgu = dgu, .y = y, .T = (int)t_, .I = (int)i_, .dtype = t};
        CHECK_OK(pb_swiglu_bwd(*state, &a));
        a.dgu = gu, a.y = dy;
        CHECK_OK(pb_swiglu_bwd(*state, &a));
        assert_true(memcmp(dgu, gu, 2 * n * e) == 0 && memcmp(y, dy, n * e) == 0);
        free(dy), free(gu), free(dgu), free(y);
    }
}

static void bad_arguments_are_named(void **state)
{
    CHECK_FAILS(pb_swiglu_fwd(*state, &(pb_swiglu_fwd_args){.T = 1}), PB_EINVAL, "I=0");
    CHECK_FAILS(pb_swiglu_bwd(*state, &(pb_swiglu_bwd_args){.T = -2, .I = 1}), PB_EINVAL, "T=-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(saturates_without_nan),
        cmocka_unit_test(gradient_in_place),
        cmocka_unit_test(backward_gives_the_activation_of_forward),
        cmocka_unit_test(large_outputs_are_equal),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_swiglu_fwd, tests, sizeof tests / sizeof *tests);
}
