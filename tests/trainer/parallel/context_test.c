/* context_test.c - tests how rows are divided over ranks: each token is on one rank, in the order of its chunks, and the
 * scores of the ranks are those that counting gives. */
#include "tests/test.h"
#include "trainer/parallel/context.h"

enum { ROW = 48 };

static double scores(const pb_context *c)
{
    double sum = 0;
    for (int i = 0; i < ROW / c->ranks; i++) sum += pb_context_token(c, ROW, i) + 1;
    return sum;
}

static void every_token_is_on_one_rank(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        const int ranks = 1 + k / 2;
        const bool zigzag = ranks > 1 && k % 2;
        int seen[ROW] = {0};
        double load = 0;
        for (int r = 0; r < ranks; r++) {
            const pb_context c = {.ranks = ranks, .rank = r, .zigzag = zigzag};
            assert_int_equal(pb_context_unit(&c) * pb_context_length(&c, ROW), ROW);
            for (int i = 0; i < ROW / ranks; i++) {
                const int token = pb_context_token(&c, ROW, i), length = pb_context_length(&c, ROW);
                seen[token]++;
                if (i % length) assert_int_equal(token, pb_context_token(&c, ROW, i - 1) + 1);
            }
            CHECK_NEAR(pb_context_load(&c, ROW), scores(&c) * ranks / (0.5 * ROW * (ROW + 1)), 1e-12);
            load += pb_context_load(&c, ROW);
        }
        for (int i = 0; i < ROW; i++) assert_int_equal(seen[i], 1);
        CHECK_NEAR(load, ranks, 1e-12);
    }
}

static void the_last_of_two_contiguous_slices_has_three_times_the_scores(void **state)
{
    const pb_context first = {.ranks = 2}, last = {.ranks = 2, .rank = 1}, zigzag = {.ranks = 2, .zigzag = true};
    (void)state;
    CHECK_NEAR(pb_context_load(&last, 1 << 20) / pb_context_load(&first, 1 << 20), 3, 1e-5);
    CHECK_NEAR(pb_context_load(&zigzag, ROW), 1, 1e-12);
    assert_int_equal(pb_context_token(&zigzag, ROW, 0), 0);
    assert_int_equal(pb_context_token(&zigzag, ROW, 12), 36);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_is_on_one_rank),
        cmocka_unit_test(the_last_of_two_contiguous_slices_has_three_times_the_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
