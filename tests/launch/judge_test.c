/* judge_test.c - which rank the monitor calls hung or slow. */
#include "launch/judge.h"

#include "tests/test.h"

enum { N = 4 };
typedef struct job {
    pb_launch_message said[N];
    pb_rank_view v[N];
} job;

/* Every rank waits in collective `all_reduce 9` for 100 s. */
static void all_wait(job *j)
{
    memset(j, 0, sizeof *j);
    for (int i = 0; i < N; i++) {
        snprintf(j->said[i].collective, sizeof j->said[i].collective, "all_reduce");
        j->said[i].sequence = 9;
        j->v[i] = (pb_rank_view){&j->said[i], 100, false};
    }
}

static void leaves_a_collective(job *j, int r, uint64_t sequence)
{
    j->said[r].collective[0] = 0;
    j->said[r].sequence = sequence;
}

static void the_rank_behind_is_hung(void **state)
{
    job j;
    bool all;
    (void)state;
    all_wait(&j), leaves_a_collective(&j, 2, 8);
    assert_int_equal(pb_judge_hung(j.v, N, 60, &all), 2);
    assert_false(all);
    all_wait(&j), j.said[3].sequence = 8; /* it waits in an earlier collective */
    assert_int_equal(pb_judge_hung(j.v, N, 60, &all), 3);
    all_wait(&j), j.v[1].left = true;
    assert_int_equal(pb_judge_hung(j.v, N, 60, &all), 1);
    all_wait(&j);
    assert_int_equal(pb_judge_hung(j.v, N, 60, &all), 0);
    assert_true(all);
}

static void a_rank_that_works_is_not_hung(void **state)
{
    job j;
    bool all;
    (void)state;
    all_wait(&j), leaves_a_collective(&j, 2, 8), j.v[2].still = 1; /* the others wait for a rank that makes progress */
    assert_int_equal(pb_judge_hung(j.v, N, 60, &all), -1);
    all_wait(&j);
    assert_int_equal(pb_judge_hung(j.v, N, 101, &all), -1);
    for (int i = 0; i < N; i++) leaves_a_collective(&j, i, 9); /* a long phase, for which no rank waits */
    assert_int_equal(pb_judge_hung(j.v, N, 60, &all), -1);
}

static void takes(job *j, int r, double least, double middle)
{
    snprintf(j->said[r].phases[1].name, sizeof j->said[r].phases[1].name, "forward");
    j->said[r].phases[1].least = least, j->said[r].phases[1].middle = middle;
}

static void a_phase_over_twice_the_median_lags(void **state)
{
    job j;
    double median = 0;
    (void)state;
    all_wait(&j);
    for (int i = 0; i < N; i++) takes(&j, i, 0.1, 0.1);
    takes(&j, 3, 0.19, 0.3);
    assert_int_equal(pb_judge_lag(j.v, N, 3, &median), -1); /* one of its three steps was not slow */
    takes(&j, 3, 0.21, 0.3);
    assert_int_equal(pb_judge_lag(j.v, N, 3, &median), 1);
    CHECK_NEAR(median, 0.1, 1e-12);
    assert_int_equal(pb_judge_lag(j.v, N, 0, &median), -1);
    j.said[1].step = -1; /* in no training step */
    assert_int_equal(pb_judge_lag(j.v, N, 3, &median), -1);
    j.said[1].step = 0;
    takes(&j, 1, 0, 0); /* fewer than three steps are known */
    assert_int_equal(pb_judge_lag(j.v, N, 3, &median), -1);
    for (int i = 0; i < N; i++) takes(&j, i, 1e-4, 1e-4);
    takes(&j, 3, 5e-4, 5e-4);
    assert_int_equal(pb_judge_lag(j.v, N, 3, &median), -1); /* less than 1 ms */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_behind_is_hung),
        cmocka_unit_test(a_rank_that_works_is_not_hung),
        cmocka_unit_test(a_phase_over_twice_the_median_lags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
