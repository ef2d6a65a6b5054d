/* copy_test.c - what comparison with the reference cannot show: known values, bits of NaN, gaps, errors. */
#include <math.h>
#include <string.h>

#include "kernels/copy/copy.h"
#include "tests/test.h"

static void blocks_are_reversed(void **state)
{
    const float x[12] = {1, 2, 0, 3, 4, 0, 5, 6, 0, 7, 8, 0}, want[8] = {5, 6, 7, 8, 1, 2, 3, 4};
    float y[8];
    CHECK_OK(pb_copy_rows(
        *state,
        &(pb_copy_rows_args){.x = x, .y = y, .T = 4, .D = 2, .block = 2, .ldx = 3, .ldy = 2, .reversed = true}));
    assert_memory_equal(y, want, sizeof y);
}

/* Columns that are not written keep their values; NaN and -0 keep their bits. */
static void gaps_are_kept(void **state)
{
    const uint32_t x[4] = {0x7fc12345, 0x80000000, 0xff800000, 0x00000001};
    uint32_t y[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    const uint32_t want[8] = {9, 0x7fc12345, 0x80000000, 9, 9, 0xff800000, 0x00000001, 9};
    const uint32_t zeros[8] = {9, 0, 0, 9, 9, 0, 0, 9};
    CHECK_OK(pb_copy_rows(*state, &(pb_copy_rows_args){.x = x, .y = y + 1, .T = 2, .D = 2, .ldx = 2, .ldy = 4}));
    assert_memory_equal(y, want, sizeof y);
    CHECK_OK(pb_copy_rows(*state, &(pb_copy_rows_args){.y = y + 1, .T = 2, .D = 2, .ldy = 4}));
    assert_memory_equal(y, zeros, sizeof y);
    CHECK_OK(pb_copy_rows(*state, &(pb_copy_rows_args){.x = x, .D = 2, .ldx = 2, .ldy = 4}));
}

static void bad_arguments_are_named(void **state)
{
    float y[4];
    pb_copy_rows_args a = {.x = y, .y = y, .T = 2, .D = 2, .ldx = 1, .ldy = 2};
    CHECK_FAILS(pb_copy_rows(*state, &a), PB_EINVAL, "1 and 2 elements apart, need at least D=2");
    a.ldx = 2, a.ldy = 1;
    CHECK_FAILS(pb_copy_rows(*state, &a), PB_EINVAL, "2 and 1 elements apart");
    a.ldy = 2, a.block = 3;
    CHECK_FAILS(pb_copy_rows(*state, &a), PB_EINVAL, "block=3, need 0 or a divisor of T=2");
    a.block = 0, a.y = NULL;
    CHECK_FAILS(pb_copy_rows(*state, &a), PB_EINVAL, "y is NULL");
    a.D = 0;
    CHECK_FAILS(pb_copy_rows(*state, &a), PB_EINVAL, "D=0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_reversed),
        cmocka_unit_test(gaps_are_kept),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_copy_rows, tests, sizeof tests / sizeof *tests);
}
