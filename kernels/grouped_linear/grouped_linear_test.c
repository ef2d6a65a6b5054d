/* grouped_linear_test.c - tests of grouped_linear: each group equals a separate linear layer, known values, errors. */
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/linear.h"
#include "tests/kernels/v4_fixture.h"

enum { T = 5, G = 3, N = 4, K = 6 };

/* The tensors of one problem, computed by grouped_linear or, as the expected result, by linear group by group. */
typedef struct tensors {
    float x[T][G][K], w[G][N][K], dy[T][G][N], y[T][G][N], dx[T][G][K], dw[G][N][K];
} tensors;

static void seed(tensors *a)
{
    memset(a, 0, sizeof *a);
    for (int i = 0; i < T * G * K; i++) (&a->x[0][0][0])[i] = (float)(4 * pb_uniform(7, i) - 2);
    for (int i = 0; i < G * N * K; i++) (&a->w[0][0][0])[i] = (float)(4 * pb_uniform(8, i) - 2);
    for (int i = 0; i < T * G * N; i++) (&a->dy[0][0][0])[i] = (float)(4 * pb_uniform(9, i) - 2);
}

static void all(pb_ctx *ctx, tensors *a)
{
    CHECK_OK(pb_grouped_linear_fwd(
        ctx, &(pb_grouped_linear_fwd_args){.x = a->x, .w = a->w, .y = a->y, .T = T, .G = G, .N = N, .K = K}));
    CHECK_OK(pb_grouped_linear_dx(
        ctx, &(pb_grouped_linear_dx_args){.dy = a->dy, .w = a->w, .dx = a->dx, .T = T, .G = G, .N = N, .K = K}));
    CHECK_OK(pb_grouped_linear_dw(
        ctx, &(pb_grouped_linear_dw_args){.dy = a->dy, .x = a->x, .dw = a->dw[0][0], .T = T, .G = G, .N = N, .K = K}));
}

/* Computes group g with linear, on contiguous copies of the group's columns. */
static void alone(pb_ctx *ctx, tensors *a, int g)
{
    float x[T][K], dy[T][N], y[T][N], dx[T][K];
    for (int t = 0; t < T; t++) memcpy(x[t], a->x[t][g], sizeof *x), memcpy(dy[t], a->dy[t][g], sizeof *dy);
    CHECK_OK(pb_linear_fwd(ctx, &(pb_linear_fwd_args){.x = x, .w = a->w[g], .y = y, .T = T, .N = N, .K = K}));
    CHECK_OK(pb_linear_dx(ctx, &(pb_linear_dx_args){.dy = dy, .w = a->w[g], .dx = dx, .T = T, .N = N, .K = K}));
    CHECK_OK(pb_linear_dw(ctx, &(pb_linear_dw_args){.dy = dy, .x = x, .dw = a->dw[g][0], .T = T, .N = N, .K = K}));
    for (int t = 0; t < T; t++) memcpy(a->y[t][g], y[t], sizeof *y), memcpy(a->dx[t][g], dx[t], sizeof *dx);
}

static void near_all(const tensors *a, const tensors *b)
{
    for (int i = 0; i < T * G * N; i++) CHECK_NEAR((&a->y[0][0][0])[i], (&b->y[0][0][0])[i], 4e-6);
    for (int i = 0; i < T * G * K; i++) CHECK_NEAR((&a->dx[0][0][0])[i], (&b->dx[0][0][0])[i], 4e-6);
    for (int i = 0; i < G * N * K; i++) CHECK_NEAR((&a->dw[0][0][0])[i], (&b->dw[0][0][0])[i], 4e-6);
}

static void groups_equal_separate_layers(void **state)
{
    pb_ctx *ctx = *state;
    tensors a, b;
    seed(&b);
    for (int g = 0; g < G; g++) alone(ctx, &b, g);
    for (const pb_impl *i = pb_grouped_linear_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        seed(&a);
        ctx->impl = i->name;
        all(ctx, &a);
        near_all(&a, &b);
        v4_matches("grouped", "y", a.y[0][0], T * G * N, 1e-6);
        v4_matches("grouped", "dx", a.dx[0][0], T * G * K, 1e-6);
        v4_matches("grouped", "dw", a.dw[0][0], G * N * K, 1e-6);
    }
    ctx->impl = NULL;
}

/* A NaN in the input or the weights of one group must reach the outputs of that group only. */
static void groups_are_independent(void **state)
{
    tensors a;
    seed(&a);
    a.x[2][1][3] = NAN, a.w[2][0][0] = NAN;
    all(*state, &a);
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++)
            for (int n = 0; n < N; n++)
                assert_int_equal(isnan(a.y[t][g][n]) != 0, (t == 2 && g == 1) || (g == 2 && n == 0));
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) assert_int_equal(isnan(a.dx[t][g][0]) != 0, g == 2);
    for (int g = 0; g < G; g++) assert_int_equal(isnan(a.dw[g][0][3]) != 0, g == 1);
}

/* The layout of DeepSeek-V4's output projection: consecutive heads form a group, and y has one projection per group. */
static void consecutive_heads_form_a_group(void **state)
{
    enum { H = 4, D = 2, GROUPS = 2 };
    float o[H][D], w[GROUPS][1][H / GROUPS * D], y[GROUPS];
    for (int i = 0; i < H * D; i++) (&o[0][0])[i] = (float)(1 << i), (&w[0][0][0])[i] = i % 2 ? 100 : 1;
    CHECK_OK(pb_grouped_linear_fwd(
        *state,
        &(pb_grouped_linear_fwd_args){.x = o, .w = w, .y = y, .T = 1, .G = GROUPS, .N = 1, .K = H / GROUPS * D}));
    CHECK_NEAR(y[0], 1 + 200 + 4 + 800, 0);
    CHECK_NEAR(y[1], 16 + 3200 + 64 + 12800, 0);
}

static void bad_arguments_are_named(void **state)
{
    float x[4] = {0};
    pb_grouped_linear_fwd_args a = {.x = x, .w = x, .y = x, .T = 1, .G = 0, .N = 1, .K = 1};
    CHECK_FAILS(pb_grouped_linear_fwd(*state, &a), PB_EINVAL, "G=0");
    pb_grouped_linear_dx_args b = {.dy = x, .w = x, .dx = x, .T = -1, .G = 1, .N = 1, .K = 1};
    CHECK_FAILS(pb_grouped_linear_dx(*state, &b), PB_EINVAL, "T=-1");
    pb_grouped_linear_dw_args c = {.dy = x, .x = x, .T = 1, .G = 1, .N = 1, .K = 1};
    CHECK_FAILS(pb_grouped_linear_dw(*state, &c), PB_EINVAL, "a tensor is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_equal_separate_layers),
        cmocka_unit_test(groups_are_independent),
        cmocka_unit_test(consecutive_heads_form_a_group),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
