/* context_test.c - tests how rows are divided over ranks: each token is on one rank, in the order of its chunks, and
 * the scores of the ranks are those that counting gives. */
#include "tests/test.h"
#include "trainer/parallel/context.h"

enum { ROW = 48 };

/* With a causal mask, token i has i + 1 scores. */
static double causal(const void *self, int token)
{
    (void)self;
    return token + 1;
}

/* At most *most scores. */
static double bounded(const void *most, int token)
{
    const int n = *(const int *)most;
    return token < n ? token + 1 : n;
}

/* The sum of a rank's scores with a causal mask, chunk by chunk: L queries, which see the chunks before theirs. */
static double scores(const pb_context *c)
{
    const double L = pb_context_length(c, ROW);
    double sum = 0;
    for (int p = 0; p < pb_context_parts(c); p++) sum += L * (pb_context_chunk(c, p) * L) + 0.5 * L * (L + 1);
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
            const double own = pb_context_load(&c, ROW, causal, NULL);
            CHECK_NEAR(own, scores(&c) * ranks / (0.5 * ROW * (ROW + 1)), 1e-12);
            load += own;
        }
        for (int i = 0; i < ROW; i++) assert_int_equal(seen[i], 1);
        CHECK_NEAR(load, ranks, 1e-12);
    }
}

static void the_last_of_two_contiguous_slices_has_three_times_the_scores(void **state)
{
    const pb_context first = {.ranks = 2}, last = {.ranks = 2, .rank = 1}, zigzag = {.ranks = 2, .zigzag = true};
    (void)state;
    const int one = 1, most = 8;
    CHECK_NEAR(pb_context_load(&last, 1 << 20, causal, NULL) / pb_context_load(&first, 1 << 20, causal, NULL), 3, 1e-5);
    CHECK_NEAR(pb_context_load(&zigzag, ROW, causal, NULL), 1, 1e-12);
    CHECK_NEAR(pb_context_load(&last, ROW, bounded, &one), 1, 1e-12);
    /* of 48 tokens the first 8 have 36 scores, the others 8 each: the last rank has 192 of 356 */
    CHECK_NEAR(pb_context_load(&last, ROW, bounded, &most), 2 * 192.0 / 356, 1e-12);
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
