/* linear_test.c - tests of a dense layer that the comparison with the reference does not cover: known values, T = 0,
 * several weights in one tensor, independence of the number of threads, errors. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/bind.h"
#include "kernels/linear/linear.h"
#include "tests/test.h"

static void known_values(void **state)
{
    float x[4] = {1, 2, 3, 4}, w[6] = {1, 0, 0, 1, 1, -1}, bias[3] = {10, 20, 30}, y[6], dx[4], dw[6], dbias[3];
    const float want_y[6] = {11, 22, 29, 13, 24, 29}, want_dx[4] = {40, -7, 42, -5};
    CHECK_OK(
        pb_linear_fwd(*state, &(pb_linear_fwd_args){.x = x, .w = w, .bias = bias, .y = y, .T = 2, .N = 3, .K = 2}));
    for (int i = 0; i < 6; i++) CHECK_NEAR(y[i], want_y[i], 0);
    CHECK_OK(pb_linear_dx(*state, &(pb_linear_dx_args){.dy = y, .w = w, .dx = dx, .T = 2, .N = 3, .K = 2}));
    for (int i = 0; i < 4; i++) CHECK_NEAR(dx[i], want_dx[i], 0);
    CHECK_OK(
        pb_linear_dw(*state, &(pb_linear_dw_args){.dy = y, .x = x, .dw = dw, .dbias = dbias, .T = 2, .N = 3, .K = 2}));
    CHECK_NEAR(dw[0], 11 * 1 + 13 * 3, 0);
    CHECK_NEAR(dw[5], 29 * 2 + 29 * 4, 0);
    CHECK_NEAR(dbias[1], 22 + 24, 0);
}

/* With T = 0, y and dx have no elements; dw and dbias are set to zero, or keep their values when accumulating. */
static void no_tokens(void **state)
{
    pb_ctx *ctx = *state;
    float dw[6] = {1, 2, 3, 4, 5, 6}, dbias[3] = {7, 8, 9}, w[6] = {0};
    pb_linear_dw_args a = {.dw = dw, .dbias = dbias, .T = 0, .N = 3, .K = 2, .accumulate = true};
    for (const pb_impl *i = pb_linear_dw_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        for (int k = 0; k < 6; k++) dw[k] = 5, dbias[k % 3] = 7;
        a.accumulate = true;
        CHECK_OK(pb_linear_dw(ctx, &a));
        for (int k = 0; k < 6; k++) CHECK_NEAR(dw[k] + dbias[k % 3], 12, 0);
        a.accumulate = false;
        CHECK_OK(pb_linear_dw(ctx, &a));
        for (int k = 0; k < 6; k++) CHECK_NEAR(fabsf(dw[k]) + fabsf(dbias[k % 3]), 0, 0);
        CHECK_OK(pb_linear_fwd(ctx, &(pb_linear_fwd_args){.w = w, .T = 0, .N = 3, .K = 2}));
        CHECK_OK(pb_linear_dx(ctx, &(pb_linear_dx_args){.w = w, .T = 0, .N = 3, .K = 2}));
    }
    ctx->impl = NULL;
}

static void fill(float *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) p[i] = (float)(2 * pb_uniform(seed, i) - 1);
}

/* Two weights stored contiguously and used as one give the same bits as two separate calls. */
static void contiguous_weights_are_one_op(void **state)
{
    enum { T = 9, N = 20, K = 33 };
    float x[T * K], w[2 * N * K], both[T * 2 * N], one[T * N];
    fill(x, T * K, 1), fill(w, sizeof w / 4, 2);
    CHECK_OK(pb_linear_fwd(*state, &(pb_linear_fwd_args){.x = x, .w = w, .y = both, .T = T, .N = 2 * N, .K = K}));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(
            pb_linear_fwd(*state, &(pb_linear_fwd_args){.x = x, .w = w + i * N * K, .y = one, .T = T, .N = N, .K = K}));
        for (int t = 0; t < T; t++) assert_memory_equal(one + t * N, both + (t * 2 + i) * N, N * sizeof *one);
    }
}

/* Every implementation except OpenBLAS must give the same gradients, bit for bit, with one thread and with three. */
static void threads_do_not_change_a_bit(void **state)
{
    enum { T = 300, N = 200, K = 90 };
    pb_ctx *ctx = *state;
    const int threads = omp_get_max_threads();
    float *dy = malloc(T * N * 4), *x = malloc(T * K * 4), *dw = malloc(2 * N * K * 4), dbias[2][N];
    fill(dy, T * N, 3), fill(x, T * K, 4);
    for (const pb_impl *i = pb_linear_dw_cpu; i->name; i++) {
        if ((i->available && !i->available()) || strcmp(i->name, "blas") == 0) continue;
        ctx->impl = i->name;
        for (int n = 0; n < 2; n++) {
            omp_set_num_threads(n ? 3 : 1);
            CHECK_OK(pb_linear_dw(
                ctx, &(pb_linear_dw_args){
                         .dy = dy, .x = x, .dw = dw + n * N * K, .dbias = dbias[n], .T = T, .N = N, .K = K}));
        }
        assert_memory_equal(dw, dw + N * K, N * K * 4);
        assert_memory_equal(dbias[0], dbias[1], sizeof dbias[0]);
    }
    omp_set_num_threads(threads);
    ctx->impl = NULL;
    free(dy), free(x), free(dw);
}

static void bad_arguments_are_named(void **state)
{
    float x[4] = {0};
    CHECK_FAILS(pb_linear_fwd(*state, &(pb_linear_fwd_args){.x = x, .w = x, .y = x, .T = 1, .N = 0, .K = 2}), PB_EINVAL,
                "N=0");
    CHECK_FAILS(pb_linear_fwd(*state, &(pb_linear_fwd_args){.x = x, .y = x, .T = 1, .N = 1, .K = 2}), PB_EINVAL,
                "NULL");
    CHECK_FAILS(pb_linear_dx(*state, &(pb_linear_dx_args){.dy = x, .w = x, .dx = x, .T = -1, .N = 1, .K = 2}),
                PB_EINVAL, "T=-1");
    CHECK_FAILS(pb_linear_dw(*state, &(pb_linear_dw_args){.dy = x, .dw = x, .T = 1, .N = 1, .K = 2}), PB_EINVAL,
                "NULL");
    CHECK_FAILS(pb_linear_dw(*state, &(pb_linear_dw_args){.T = 0, .N = 1, .K = 2}), PB_EINVAL, "NULL");
    CHECK_FAILS(pb_linear_dw(*state, &(pb_linear_dw_args){.dw = x, .N = 1, .K = 2, .dw_dtype = PB_U8}), PB_EINVAL,
                "f32 or bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(no_tokens),
        cmocka_unit_test(contiguous_weights_are_one_op),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
