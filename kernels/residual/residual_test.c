/* residual_test.c - what comparison with the reference cannot show: known values, permitted aliasing, errors. */
#include <string.h>

#include "kernels/residual/residual.h"
#include "tests/test.h"

static const float x[6] = {1, 2, 3, -4, 5, 0}, s[3] = {2, -1, 0.5f};

static void known_values(void **state)
{
    const float want[6] = {2, -2, 1.5f, -8, -5, 0}, dy[6] = {1, 1, 2, 3, -1, 4}, dx_want[6] = {2, -1, 1, 6, 1, 2};
    const float ds_want[3] = {1 - 12, 2 - 5, 6};
    float y[6], dx[6], ds[3];
    CHECK_OK(pb_residual_fwd(*state, &(pb_residual_fwd_args){.x = x, .s = s, .y = y, .T = 2, .D = 3}));
    assert_memory_equal(y, want, sizeof y);
    CHECK_OK(
        pb_residual_bwd(*state, &(pb_residual_bwd_args){.dy = dy, .x = x, .s = s, .dx = dx, .ds = ds, .T = 2, .D = 3}));
    assert_memory_equal(dx, dx_want, sizeof dx);
    assert_memory_equal(ds, ds_want, sizeof ds);
}

/* y may be x, and dx may be dy; with a frozen s, x is not needed. */
static void aliasing_is_permitted(void **state)
{
    const float want[6] = {2, -2, 1.5f, -8, -5, 0};
    float y[6];
    memcpy(y, x, sizeof y);
    CHECK_OK(pb_residual_fwd(*state, &(pb_residual_fwd_args){.x = y, .s = s, .y = y, .T = 2, .D = 3}));
    assert_memory_equal(y, want, sizeof y);
    float dy[6], ds[3] = {1, 1, 1};
    const float ds_want[3] = {1 + 17, 1 + 29, 1 + 9};
    memcpy(dy, x, sizeof dy);
    CHECK_OK(pb_residual_bwd(
        *state,
        &(pb_residual_bwd_args){.dy = dy, .x = x, .s = s, .dx = dy, .ds = ds, .T = 2, .D = 3, .accumulate = true}));
    assert_memory_equal(dy, want, sizeof dy);
    assert_memory_equal(ds, ds_want, sizeof ds);
    memcpy(dy, x, sizeof dy);
    CHECK_OK(pb_residual_bwd(*state, &(pb_residual_bwd_args){.dy = dy, .s = s, .dx = dy, .T = 2, .D = 3}));
    assert_memory_equal(dy, want, sizeof dy);
}

static void bad_arguments_are_named(void **state)
{
    CHECK_FAILS(pb_residual_fwd(*state, &(pb_residual_fwd_args){.T = 1}), PB_EINVAL, "D=0");
    CHECK_FAILS(pb_residual_bwd(*state, &(pb_residual_bwd_args){.T = -1, .D = 1}), PB_EINVAL, "T=-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(aliasing_is_permitted),
        cmocka_unit_test(bad_arguments_are_named),
    };
    const size_t n = sizeof tests / sizeof *tests;
    return test_every_impl(&pb_op_residual_fwd, tests, n) || test_every_impl(&pb_op_residual_bwd, tests, n);
}
