/* plan_test.c - which cases and which suite the plan of a run has. */
#include "bench/suites/plan.h"

#include "bench/suites/suites.h"
#include "tests/test.h"

static pb_plan plan_of(const char *suite, bool counting)
{
    pb_ctx ctx;
    pb_plan plan;
    const pb_plan_request request = {.counting = counting, .no_ceilings = counting};
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    CHECK_OK(pb_plan_make(&ctx, pb_suite_find(suite), &request, &plan));
    pb_ctx_close(&ctx);
    return plan;
}

/* The conclusions of suite backward run whole steps: minutes in Valgrind, and none of them is counted. */
static void a_run_that_counts_has_small_cases_and_no_conclusions(void **state)
{
    (void)state;
    for (const pb_suite *const *s = pb_suites; *s; s++) {
        if (!(*s)->counting) continue;
        pb_plan plan = plan_of((*s)->name, true);
        assert_ptr_equal(plan.suite, (*s)->counting);
        assert_null(plan.suite->conclude);
        assert_string_equal(plan.suite->name, (*s)->name);
        assert_int_equal(plan.controls, 0);
        assert_int_equal(plan.ceilings, 0);
        if (strcmp((*s)->name, "backward") == 0)
            for (int i = 0; i < plan.n; i++) {
                assert_string_equal(pb_case_get(&plan.cases[i], "model"), "tiny");
                assert_string_equal(pb_case_get(&plan.cases[i], "seq"), "32");
            }
        pb_plan_free(&plan);
    }
}

static void a_run_that_measures_time_has_conclusions(void **state)
{
    (void)state;
    pb_plan plan = plan_of("backward", false);
    assert_ptr_equal(plan.suite, pb_suite_find("backward"));
    assert_non_null(plan.suite->conclude);
    pb_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_counts_has_small_cases_and_no_conclusions),
        cmocka_unit_test(a_run_that_measures_time_has_conclusions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
