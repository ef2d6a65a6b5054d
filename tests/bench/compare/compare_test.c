/* compare_test.c - `bench compare` on the runs of tests/fixtures/compare/cases.txt: every verdict, every exit code, and
 * which inputs are refused. */
#include "bench/suites/self_compare.h"
#include "tests/bench/compare/compare_cases.h"

static void every_verdict_and_exit_code(void **state)
{
    (void)state;
    assert_true(check_comparisons(false) >= 80);
}

static void the_more_severe_exit_code_wins(void **state)
{
    static const pb_exit order[] = {0, 3, 1, 4, 2, 125};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) assert_int_equal(pb_worse_exit(order[i], order[j]), order[i > j ? i : j]);
}

/* The suite `self` generates two files and compares them. Here the files have a tenth of their usual size, and the time
 * is not checked. */
static void suite_self_generates_its_files(void **state)
{
    pb_self_files *files;
    pb_self_figures figures = {0};
    (void)state;
    CHECK_FAILS(pb_self_files_make(99, &files), PB_EINVAL, "need 100 to");
    CHECK_OK(pb_self_files_make(10000, &files));
    for (int i = 0; i < 2; i++) CHECK_OK(pb_self_compare(files, &figures));
    assert_true(figures.seconds > 0 && figures.peak_bytes > 1e6);
    pb_self_files_free(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verdict_and_exit_code),
        cmocka_unit_test(the_more_severe_exit_code_wins),
        cmocka_unit_test(suite_self_generates_its_files),
    };
    return cmocka_run_group_tests(tests, open_runs, close_runs);
}
