/* gradient_test.c - tests of gradient_add that the comparison with the reference does not cover: known values, the
 * first micro-batch replaces what was there, NaN is kept, errors. */
#include "kernels/gradient/gradient.h"

#include "tests/test.h"

enum { N = 37 };

static void sums_are_rounded_once(void **state)
{
    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = 1, y[i] = 16777216; /* 2^24 + 1 is halfway between two floats; ties to even */
    x[3] = 3;
    CHECK_OK(pb_gradient_add(*state, &(pb_gradient_add_args){x, y, N, true}));
    CHECK_NEAR(y[0], 16777216, 0);
    CHECK_NEAR(y[3], 16777220, 0);
    CHECK_NEAR(y[N - 1], 16777216, 0);
}

static void the_first_gradient_replaces_what_was_there(void **state)
{
    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = NAN;
    CHECK_OK(pb_gradient_add(*state, &(pb_gradient_add_args){x, y, N, false}));
    assert_memory_equal(x, y, sizeof x);
    y[5] = NAN;
    CHECK_OK(pb_gradient_add(*state, &(pb_gradient_add_args){x, y, N, true}));
    assert_true(isnan(y[5]));
    CHECK_NEAR(y[N - 1], 2 * (N - 1), 0);
}

static void bad_arguments_are_refused(void **state)
{
    float y[1] = {0};
    CHECK_OK(pb_gradient_add(*state, &(pb_gradient_add_args){NULL, NULL, 0, true}));
    CHECK_FAILS(pb_gradient_add(*state, &(pb_gradient_add_args){NULL, y, 1, true}), PB_EINVAL, "NULL");
    CHECK_FAILS(pb_gradient_add(*state, &(pb_gradient_add_args){y, NULL, 1, false}), PB_EINVAL, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(the_first_gradient_replaces_what_was_there),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return test_every_impl(&pb_op_gradient_add, tests, sizeof tests / sizeof *tests);
}
