/* rank_check_test.c - tests what the check of several ranks accepts: losses and gradient norms of two steps within
 * their bounds, and nothing else, NaN included. */
#include <math.h>

#include "bench/suites/rank_steps.h"
#include "tests/test.h"

enum { GROUPS = 2 };

/* The difference of two results that are equal but for one number, which is off by this relative amount. */
static double off(pb_dtype dtype, pb_reduce reduce, int step, int group, double by)
{
    float norm[PB_RANK_CHECK_STEPS * GROUPS] = {1, 2, 3, 4}, other[PB_RANK_CHECK_STEPS * GROUPS] = {1, 2, 3, 4};
    const pb_rank_results one = {{5, 4}, norm, GROUPS};
    pb_rank_results ranks = {{5, 4}, other, GROUPS};
    pb_train_config cfg = {.reduce = reduce};
    char note[256];
    cfg.model.dtype = dtype;
    if (group < 0) ranks.loss[step] *= 1 + by;
    else other[step * GROUPS + group] = (float)((double)other[step * GROUPS + group] * (1 + by));
    return pb_rank_difference(&cfg, &one, &ranks, note, sizeof note);
}

/* Both sides of a bound. */
static void bounded(pb_dtype dtype, pb_reduce reduce, int step, int group, double bound)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        assert_true(off(dtype, reduce, step, group, sign * 0.9 * bound) <= 1);
        assert_true(off(dtype, reduce, step, group, sign * 1.1 * bound) > 1);
    }
}

static void differences_up_to_the_bound_are_accepted(void **state)
{
    (void)state;
    assert_true(off(PB_F32, PB_REDUCE_F32, 0, -1, 0) == 0);
    bounded(PB_F32, PB_REDUCE_F32, 0, -1, 1e-6);
    bounded(PB_F32, PB_REDUCE_F32, 1, -1, 1e-5);
    bounded(PB_BF16, PB_REDUCE_F32, 0, -1, 1e-5);
    bounded(PB_F32, PB_REDUCE_BF16, 1, -1, 1e-3);
    for (int group = 0; group < GROUPS; group++) {
        bounded(PB_F32, PB_REDUCE_F32, 0, group, 1e-5);
        bounded(PB_F32, PB_REDUCE_F32, 1, group, 1e-3);
        bounded(PB_F32, PB_REDUCE_BF16, 0, group, 1e-2);
        bounded(PB_BF16, PB_REDUCE_F32, 1, group, 2e-2);
    }
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    for (int step = 0; step < PB_RANK_CHECK_STEPS; step++)
        for (int group = -1; group < GROUPS; group++) {
            assert_false(off(PB_F32, PB_REDUCE_F32, step, group, (double)NAN) <= 1);
            assert_false(off(PB_F32, PB_REDUCE_F32, step, group, (double)INFINITY) <= 1);
        }
}

/* Without a norm nothing shows that the ranks have added their gradients. */
static void results_without_norms_are_refused(void **state)
{
    (void)state;
    const pb_train_config cfg = {.reduce = PB_REDUCE_F32};
    const pb_rank_results none = {{5, 4}, NULL, 0};
    char note[256];
    assert_false(pb_rank_difference(&cfg, &none, &none, note, sizeof note) <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_up_to_the_bound_are_accepted),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(results_without_norms_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
