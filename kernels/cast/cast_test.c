/* cast_test.c - tests of the casts that the comparison with the reference does not cover: exact widening of bf16,
 * casting back, errors. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cast/cast.h"
#include "tests/test.h"

static void bf16_is_widened_exactly(void **state)
{
    enum { T = 5, D = 21, LD = 40 };
    uint16_t x[T * LD];
    float y[T * D];
    for (int i = 0; i < T * LD; i++)
        x[i] = pb_f32_to_bf16(ldexpf((float)pb_uniform(3, (uint64_t)i) - 0.5f, i % 60 - 30));
    CHECK_OK(pb_cast_fwd(*state,
                         &(pb_cast_fwd_args){.x = x, .y = y, .T = T, .D = D, .ldx = LD, .scale = 1, .dtype = PB_BF16}));
    for (int i = 0; i < T * D; i++) assert_true(y[i] == pb_bf16_to_f32(x[i / D * LD + i % D]));
}

static void casting_back_restores_the_values(void **state)
{
    enum { T = 3, D = 19, LD = 30 };
    uint16_t x[T * LD], back[T * LD];
    float y[T * D];
    for (int i = 0; i < T * LD; i++) x[i] = pb_f32_to_bf16((float)pb_uniform(4, (uint64_t)i) - 0.5f), back[i] = 0x1234;
    CHECK_OK(pb_cast_fwd(*state,
                         &(pb_cast_fwd_args){.x = x, .y = y, .T = T, .D = D, .ldx = LD, .scale = 8, .dtype = PB_BF16}));
    CHECK_OK(pb_cast_bwd(
        *state,
        &(pb_cast_bwd_args){.dy = y, .dx = back, .T = T, .D = D, .lddx = LD, .scale = 0.125f, .dtype = PB_BF16}));
    for (int i = 0; i < T * LD; i++) assert_int_equal(back[i], i % LD < D ? x[i] : 0x1234);
}

static void bad_arguments_are_named(void **state)
{
    float v[4] = {0};
    CHECK_OK(pb_cast_fwd(*state, &(pb_cast_fwd_args){.D = 1, .ldx = 1, .scale = 1}));
    CHECK_FAILS(pb_cast_fwd(*state, &(pb_cast_fwd_args){.T = 1, .D = 2, .ldx = 2, .scale = 1}), PB_EINVAL, "NULL");
    CHECK_FAILS(pb_cast_fwd(*state, &(pb_cast_fwd_args){.x = v, .y = v, .T = 1, .D = 2, .ldx = 1, .scale = 1}),
                PB_EINVAL, "rows 1 apart");
    CHECK_FAILS(pb_cast_fwd(*state, &(pb_cast_fwd_args){.x = v, .y = v, .T = 1, .D = 1, .ldx = 1, .scale = NAN}),
                PB_EINVAL, "scale=nan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_is_widened_exactly),
        cmocka_unit_test(casting_back_restores_the_values),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_cast_fwd, tests, sizeof tests / sizeof *tests);
}
