/* blas_choice_test.c - which algorithm of cuBLASLt is taken, with offers that it made on an H200. */
#include "kernels/cuda/blas_choice.h"

#include "tests/test.h"

enum { SMS = 132, T = 2048, HIDDEN = 1536, GATE_UP = 17920 };
static const pb_blas_offer cooperative = {128, 320, false, false}, ping_pong = {128, 168, true, false};

static void a_ping_pong_kernel_is_taken_for_a_short_sum(void **state)
{
    const pb_blas_offer offers[] = {cooperative, {0, 0, true, false}, {128, 96, true, false}, ping_pong};
    (void)state;
    assert_int_equal(pb_blas_choice(offers, 4, T, GATE_UP, HIDDEN, SMS), 3);
}

static void a_long_sum_is_left_to_the_heuristic(void **state)
{
    const pb_blas_offer offers[] = {cooperative, ping_pong};
    (void)state;
    assert_int_equal(pb_blas_choice(offers, 2, T, GATE_UP, PB_BLAS_SHORT_SUM, SMS), 1);
    assert_int_equal(pb_blas_choice(offers, 2, T, GATE_UP, PB_BLAS_SHORT_SUM + 1, SMS), 0);
}

static void a_small_product_is_left_to_the_heuristic(void **state)
{
    const pb_blas_offer offers[] = {cooperative, {128, 128, true, false}};
    (void)state;
    assert_int_equal(pb_blas_choice(offers, 2, 11 * 128, 12 * 128, 512, SMS), 1); /* 2.2 GFLOP, every SM one tile */
    assert_int_equal(pb_blas_choice(offers, 2, 11 * 128, 12 * 128, 448, SMS), 0); /* 1.9 GFLOP */
}

/* 2048 x 1536 has 256 tiles of 128 x 96, and 132 SMs need two waves for them: 3 % of their time is lost, and tiles of
 * this size are 5 % slower. */
static void a_kernel_that_leaves_sms_idle_is_not_taken(void **state)
{
    const pb_blas_offer offers[] = {cooperative, {128, 96, true, false}},
                        one_more[] = {cooperative, {128, 128, true, false}};
    (void)state;
    CHECK_NEAR(pb_blas_busy(T, HIDDEN, 128, 96, SMS), 256.0 / 264, 1e-12);
    assert_int_equal(pb_blas_choice(offers, 2, T, HIDDEN, HIDDEN, SMS), 0);
    assert_int_equal(pb_blas_choice(one_more, 2, 12 * 128, 11 * 128, HIDDEN, SMS), 1);     /* 132 tiles: one wave */
    assert_int_equal(pb_blas_choice(one_more, 2, 12 * 128, 11 * 128 + 1, HIDDEN, SMS), 0); /* 144: two waves */
    assert_int_equal(pb_blas_choice(one_more, 2, 12 * 128, 11 * 128, HIDDEN, 131), 0);
}

/* With split-K the sums are added in another order, so it is neither replaced nor taken. */
static void split_k_stays_with_the_heuristic(void **state)
{
    const pb_blas_offer split = {128, 168, true, true};
    const pb_blas_offer first[] = {split, ping_pong}, second[] = {cooperative, split};
    (void)state;
    assert_int_equal(pb_blas_choice(first, 2, T, GATE_UP, HIDDEN, SMS), 0);
    assert_int_equal(pb_blas_choice(second, 2, T, GATE_UP, HIDDEN, SMS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ping_pong_kernel_is_taken_for_a_short_sum),
        cmocka_unit_test(a_long_sum_is_left_to_the_heuristic),
        cmocka_unit_test(a_small_product_is_left_to_the_heuristic),
        cmocka_unit_test(a_kernel_that_leaves_sms_idle_is_not_taken),
        cmocka_unit_test(split_k_stays_with_the_heuristic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
