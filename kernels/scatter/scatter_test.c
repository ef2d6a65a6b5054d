/* scatter_test.c - tests of scatter_add that the comparison with the reference does not cover: rows listed several
 * times or never, no additions, errors. */
#include "kernels/scatter/scatter.h"

#include "tests/test.h"

enum { S = 7, R = 3, D = 5 };

/* idx has row 0 once, row 2 three times and row 1 never; its other entries are outside [0,R) and are skipped. */
static void rows_are_added_as_often_as_they_are_listed(void **state)
{
    const float x[D] = {1, 2, 3, 4, 0.5f};
    const int32_t idx[S] = {2, -1, 2, R, 0, 2, INT32_MIN};
    float y[R * D];
    for (int i = 0; i < R * D; i++) y[i] = 10;
    CHECK_OK(pb_scatter_add(*state, &(pb_scatter_add_args){x, idx, y, S, R, D}));
    for (int d = 0; d < D; d++) {
        CHECK_NEAR(y[d], 10 + x[d], 0);
        CHECK_NEAR(y[D + d], 10, 0);
        CHECK_NEAR(y[2 * D + d], 10 + 3 * x[d], 0);
    }
}

static void no_additions_change_nothing(void **state)
{
    const float x[D] = {1, 1, 1, 1, 1};
    float y[D] = {3, 3, 3, 3, 3};
    CHECK_OK(pb_scatter_add(*state, &(pb_scatter_add_args){x, NULL, y, 0, 1, D}));
    CHECK_NEAR(y[0], 3, 0);
    CHECK_OK(pb_scatter_add(*state, &(pb_scatter_add_args){x, (const int32_t[]){0}, NULL, 1, 0, D}));
}

static void bad_arguments_are_refused(void **state)
{
    const float x[D] = {0};
    const int32_t idx[1] = {0};
    float y[D];
    CHECK_FAILS(pb_scatter_add(*state, &(pb_scatter_add_args){x, idx, y, -1, 1, D}), PB_EINVAL, "S=-1");
    CHECK_FAILS(pb_scatter_add(*state, &(pb_scatter_add_args){x, idx, y, 1, 1, 0}), PB_EINVAL, "D=0");
    CHECK_FAILS(pb_scatter_add(*state, &(pb_scatter_add_args){NULL, idx, y, 1, 1, D}), PB_EINVAL, "NULL");
    CHECK_FAILS(pb_scatter_add(*state, &(pb_scatter_add_args){x, NULL, y, 1, 1, D}), PB_EINVAL, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_added_as_often_as_they_are_listed),
        cmocka_unit_test(no_additions_change_nothing),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return test_every_impl(&pb_op_scatter_add, tests, sizeof tests / sizeof *tests);
}
