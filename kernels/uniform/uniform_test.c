/* uniform_test.c - tests of the seeded values that the comparison with the reference does not cover: the generator is
 * splitmix64, ranges of the sequence, distribution, no values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/uniform/uniform.h"
#include "tests/test.h"

enum { N = 70000 };

static void fill(pb_ctx *ctx, float *w, size_t n, uint64_t first)
{
    CHECK_OK(pb_uniform_fill(
        ctx, &(pb_uniform_fill_args){.w = w, .n = n, .stream = 42, .first = first, .centre = 1, .half = 0.1}));
}

/* The first output of splitmix64 from state 1234567, as its author's test gives it. pb_uniform adds the generator's
 * increment to its counter, so value 1234567 of stream 0 must agree. */
static void the_generator_is_splitmix64(void **state)
{
    (void)state;
    const uint64_t first = 6457827717110365317u, stream0 = 1234567u;
    assert_true(pb_uniform(0, stream0) == (double)(first >> 11) * 0x1p-53);
}

static void a_range_equals_that_range_of_the_whole(void **state)
{
    float *whole = malloc(N * sizeof *whole), *part = malloc(N * sizeof *part);
    assert_true(whole && part);
    fill(*state, whole, N, 0);
    for (size_t from = 1; from < N; from += 9973) {
        fill(*state, part, N - from, from);
        assert_memory_equal(part, whole + from, (N - from) * sizeof *part);
    }
    free(whole), free(part);
}

static void values_are_uniform_within_their_bounds(void **state)
{
    float *w = malloc(N * sizeof *w);
    double sum = 0, square = 0;
    assert_true(w);
    fill(*state, w, N, 0);
    for (size_t i = 0; i < N; i++) {
        assert_true(w[i] >= 0.9f && w[i] <= 1.1f);
        sum += (double)w[i] - 1, square += ((double)w[i] - 1) * ((double)w[i] - 1);
    }
    const double sd = 0.1 / sqrt(3);
    assert_true(fabs(sum / N) <= 5 * sd / sqrt(N));
    assert_true(fabs(square / N / (sd * sd) - 1) <= 0.02);
    free(w);
}

static void no_values_need_no_tensor(void **state)
{
    CHECK_OK(pb_uniform_fill(*state, &(pb_uniform_fill_args){.n = 0}));
    CHECK_FAILS(pb_uniform_fill(*state, &(pb_uniform_fill_args){.n = 1}), PB_EINVAL, "w is NULL");
    float w;
    CHECK_FAILS(pb_uniform_fill(*state, &(pb_uniform_fill_args){.w = &w, .n = 1, .half = (double)INFINITY}), PB_EINVAL,
                "half=inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_is_splitmix64),
        cmocka_unit_test(a_range_equals_that_range_of_the_whole),
        cmocka_unit_test(values_are_uniform_within_their_bounds),
        cmocka_unit_test(no_values_need_no_tensor),
    };
    return test_every_impl(&pb_op_uniform_fill, tests, sizeof tests / sizeof *tests);
}
