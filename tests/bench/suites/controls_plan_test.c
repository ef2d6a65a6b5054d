/* controls_plan_test.c - which control cases the plan of a run has, and what the run says about them. */
#include <math.h>
#include <stdlib.h>

#include "bench/suites/suites.h"
#include "tests/test.h"

static pb_plan plan_of(const char *suite, const pb_plan_request *r)
{
    pb_ctx ctx;
    pb_plan plan;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    CHECK_OK(pb_plan_make(&ctx, pb_suite_find(suite), r, &plan));
    pb_ctx_close(&ctx);
    return plan;
}

/* The number of copies of the plan with control=`value`. Each must be a copy of a case of the plan. */
static int copies(const pb_plan *p, const char *value)
{
    int n = 0;
    for (int i = p->n - p->controls; i < p->n; i++) {
        pb_case of = p->cases[i];
        bool found = false;
        if (!pb_case_is(&of, PB_CONTROL_AXIS, value)) continue;
        pb_case_drop(&of, PB_CONTROL_AXIS);
        pb_case_finish(&of);
        for (int k = p->ceilings; k < p->n - p->controls; k++) found |= strcmp(p->cases[k].key, of.key) == 0;
        assert_true(found);
        n++;
    }
    return n;
}

/* Checks the plan of a suite: its own cases, the copies control=first and control=second, and its text. */
static void check(const char *suite, const pb_plan_request *r, int own, int first, int second, const char *text)
{
    char said[240];
    pb_plan p = plan_of(suite, r);
    if (own) assert_int_equal(p.n - p.ceilings - p.controls, own);
    assert_int_equal(p.controls, first + second);
    assert_int_equal(copies(&p, PB_CONTROL_FIRST), first);
    assert_int_equal(copies(&p, PB_CONTROL_SECOND), second);
    for (int i = p.ceilings; i < p.n - p.controls; i++) assert_false(pb_key_is_control(p.cases[i].key));
    pb_controls_text(&p, said, sizeof said);
    if (!*text) assert_string_equal(said, "");
    else if (!strstr(said, text)) fail_msg("%s: '%s' is not in '%s'", suite, text, said);
    pb_plan_free(&p);
}

static pb_plan_request one_tuning(const char *tuning)
{
    pb_plan_request r = {.no_ceilings = true};
    r.axes.v[r.axes.n++] = (pb_axis_values){"tuning", tuning};
    return r;
}

/* Suites of many short cases measure each control twice more; those of few long ones once, however long that takes. */
static void every_run_that_measures_times_has_controls(void **state)
{
    const pb_plan_request usual = {0}, bare = {.no_ceilings = true}, one = one_tuning("full");
    (void)state;
    check("kernels", &usual, 0, 2, 2, "2 control cases are measured twice more in each process");
    check("backward", &usual, 9, 0, 2, "2 control cases are measured once more in each process");
    check("self", &usual, 3, 0, 2, "2 control cases are measured once more in each process");
    check("profile", &usual, 0, 0, 2, "2 control cases are measured once more in each process");
    /* 3 cases of equal length, two of which are measured again */
    check("throughput", &bare, 3, 0, 2, "the run; it takes 67 % longer for that");
    check("load", &bare, 2, 0, 2, "the run; it takes 100 % longer for that");
    check("throughput", &one, 1, 0, 1,
          "1 control case is measured once more in each process, to show the noise of the run; it");
}

/* A run of suite ceiling, one that measures no time, and one that the environment tells so have none. */
static void other_runs_have_none(void **state)
{
    const pb_plan_request usual = {0}, counting = {.counting = true}, uncontrolled = {.uncontrolled = true};
    pb_plan_request parity = {.full_grid = true};
    (void)state;
    check("ceiling", &usual, 0, 0, 0, "");
    check("convergence", &usual, 6, 0, 0, "no control cases: no case of this run measures a time");
    check("backward", &counting, 0, 0, 0, "no control cases");
    check("throughput", &uncontrolled, 3, 0, 0, "no control cases");
    parity.filters[0].v[parity.filters[0].n++] = "backward/parity*"; /* compares losses and logits */
    check("backward", &parity, 1, 0, 0, "no control cases: no case of this run measures a time");
    setenv("PB_CONTROLS", "no", 1);
    check("throughput", &usual, 3, 0, 0, "");
    unsetenv("PB_CONTROLS");
}

/* The two shortest of the cases that measure a time. The case losses of a GPU is short for a model of few layers. */
static void controls_are_the_shortest_timed_cases(void **state)
{
    const pb_plan_request usual = {0};
    (void)state;
    pb_plan p = plan_of("profile", &usual);
    assert_int_equal(p.controls, 2);
    const int own = p.n - p.controls;
    for (int i = own; i < p.n; i++)
        for (int k = p.ceilings; k < own; k++)
            assert_true(pb_plan_expect(&p, &p.cases[i]) <= pb_plan_expect(&p, &p.cases[k]));
    pb_plan_free(&p);
}

/* A case whose key has no room for one more axis is measured, and gets no copy. */
static void a_key_without_room_has_no_copy(void **state)
{
    pb_plan_request r = one_tuning("full");
    (void)state;
    pb_plan p = plan_of("throughput", &r);
    assert_int_equal(p.controls, 1);
    pb_case *c = &p.cases[p.ceilings];
    p.n--, p.controls--;
    for (int i = 0; c->n < PB_CASE_AXES; i++) {
        char axis[16];
        snprintf(axis, sizeof axis, "zz%d", i);
        CHECK_OK(pb_case_set(c, axis, "1"));
    }
    pb_case_finish(c);
    CHECK_OK(pb_controls_add(&p));
    assert_int_equal(p.controls, 0);
    pb_plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_that_measures_times_has_controls),
        cmocka_unit_test(other_runs_have_none),
        cmocka_unit_test(controls_are_the_shortest_timed_cases),
        cmocka_unit_test(a_key_without_room_has_no_copy),
    };
    unsetenv("PB_CONTROLS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
