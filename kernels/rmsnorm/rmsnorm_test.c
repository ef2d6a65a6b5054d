/* rmsnorm_test.c - tests of RMSNorm that the comparison with the reference does not cover: constant rows, eps, outputs
 * in place, no weights, errors. */
#include <string.h>

#include "kernels/rmsnorm/rmsnorm.h"
#include "tests/test.h"

static void constant_row_normalises_to_the_weight(void **state)
{
    float x[4] = {3, 3, 3, 3}, w[4] = {1, 2, 3, 4}, y[4], rstd[1];
    CHECK_OK(pb_rmsnorm_fwd(
        *state, &(pb_rmsnorm_fwd_args){
                    .x = x, .w = w, .y = y, .rstd = rstd, .T = 1, .G = 1, .D = 4, .ldx = 4, .ldy = 4, .eps = 1e-12f}));
    for (int d = 0; d < 4; d++) CHECK_NEAR(y[d], w[d], 1e-6);
    CHECK_NEAR(rstd[0], 1.0 / 3, 1e-7);
}

/* The values are so small that eps dominates: eps 1e-5 instead of 1e-6 changes y by a factor of 2.3. */
static void eps_is_the_argument(void **state)
{
    float x[2] = {1e-3f, -1e-3f}, w[2] = {1, 1}, y[2], rstd[1];
    for (int i = 0; i < 2; i++) {
        float eps = i ? 1e-5f : 1e-6f;
        CHECK_OK(pb_rmsnorm_fwd(
            *state, &(pb_rmsnorm_fwd_args){
                        .x = x, .w = w, .y = y, .rstd = rstd, .T = 1, .G = 1, .D = 2, .ldx = 2, .ldy = 2, .eps = eps}));
        CHECK_NEAR(y[0], 1e-3 / sqrt(1e-6 + (double)eps), 1e-5);
    }
}

static void norm_in_place(void **state)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, w[3] = {1, 1, 1}, y[6], rstd[2];
    pb_rmsnorm_fwd_args a = {
        .x = x, .w = w, .y = y, .rstd = rstd, .T = 2, .G = 1, .D = 3, .ldx = 3, .ldy = 3, .eps = 1e-6f};
    CHECK_OK(pb_rmsnorm_fwd(*state, &a));
    a.y = x;
    CHECK_OK(pb_rmsnorm_fwd(*state, &a));
    assert_memory_equal(x, y, sizeof y);
}

/* Without weights, a row of any size gets mean square 1, and both passes give the same results as with weights of 1. */
static void no_weights_are_ones(void **state)
{
    enum { G = 3, D = 21 };
    pb_ctx *ctx = *state;
    float x[G * D], dy[G * D], w[D], y[2][G * D], dx[2][G * D], rstd[G];
    for (int i = 0; i < G * D; i++) x[i] = (float)(20 * pb_uniform(1, i) - 10), dy[i] = (float)pb_uniform(2, i);
    for (int d = 0; d < D; d++) w[d] = 1;
    for (const pb_impl *i = pb_rmsnorm_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        for (int k = 0; k < 2; k++) {
            const float *weights = k ? w : NULL;
            CHECK_OK(pb_rmsnorm_fwd(ctx, &(pb_rmsnorm_fwd_args){.x = x,
                                                                .w = weights,
                                                                .y = y[k],
                                                                .rstd = rstd,
                                                                .T = 1,
                                                                .G = G,
                                                                .D = D,
                                                                .ldx = G * D,
                                                                .ldy = G * D,
                                                                .eps = 1e-6f}));
            CHECK_OK(pb_rmsnorm_bwd(ctx, &(pb_rmsnorm_bwd_args){.dy = dy,
                                                                .x = x,
                                                                .w = weights,
                                                                .rstd = rstd,
                                                                .dx = dx[k],
                                                                .T = 1,
                                                                .G = G,
                                                                .D = D,
                                                                .lddy = G * D,
                                                                .ldx = G * D,
                                                                .lddx = G * D}));
        }
        for (int e = 0; e < G * D; e++) {
            CHECK_NEAR(y[0][e], y[1][e], 1e-6);
            CHECK_NEAR(dx[0][e], dx[1][e], 1e-6);
        }
        for (int g = 0; g < G; g++) {
            double sum = 0;
            for (int d = 0; d < D; d++) sum += (double)y[0][g * D + d] * (double)y[0][g * D + d];
            CHECK_NEAR(sum / D, 1, 1e-5);
        }
    }
    ctx->impl = NULL;
}

static void bad_arguments_are_named(void **state)
{
    float x[2] = {1, 1};
    pb_rmsnorm_fwd_args a = {.x = x, .w = x, .y = x, .rstd = x, .T = 1, .G = 1, .D = 2, .ldx = 2, .ldy = 2};
    CHECK_FAILS(pb_rmsnorm_fwd(*state, &a), PB_EINVAL, "eps=0");
    a.eps = 1e-6f, a.ldx = 1;
    CHECK_FAILS(pb_rmsnorm_fwd(*state, &a), PB_EINVAL, "need at least G*D = 2");
    pb_rmsnorm_bwd_args g = {.dy = x, .x = x, .rstd = x, .dx = x, .dw = x, .T = 1, .G = 1, .D = 2};
    g.lddy = g.ldx = g.lddx = 2;
    CHECK_FAILS(pb_rmsnorm_bwd(*state, &g), PB_EINVAL, "dw is given, but w is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_row_normalises_to_the_weight),
        cmocka_unit_test(eps_is_the_argument),
        cmocka_unit_test(norm_in_place),
        cmocka_unit_test(no_weights_are_ones),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
