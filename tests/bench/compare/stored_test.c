/* stored_test.c - tests of comparisons with stored sessions: those of tests/fixtures/compare/cases.txt (few and many
 * sessions, other hosts, pools, confirmations, ceilings that change, extreme statistics), and the functions of
 * stored_rule.h, compared with results worked out by hand. */
#include <math.h>

#include "bench/compare/placebo.h"
#include "bench/compare/stored_rule.h"
#include "bench/stats/distributions.h"
#include "tests/bench/compare/compare_cases.h"

static void stored_sessions_follow_the_rule(void **state)
{
    (void)state;
    assert_true(check_comparisons(true) >= 70);
}

/* ---- the functions of stored_rule.h ------------------------------------------------------------------ */

static pb_evidence weigh(const pb_stored_row *row, const pb_stored_noise *noise, int averaged)
{
    pb_evidence e = {.again = (double)NAN};
    pb_stored_weigh(row, noise, averaged, &e);
    return e;
}

/* w2 is the mean of kappa_L * variance over the rows with 3 and with 6 processes (0.449 and 0.215 are kappa_3 and
 * kappa_6). A row with only 2 processes does not count. */
static void noise_of_processes_and_placebos(void **state)
{
    const pb_stored_processes p[] = {{3, 0.01}, {2, 9}, {6, 0.04}, {0, (double)NAN}};
    const double difference[] = {0.1, -0.3};
    (void)state;
    CHECK_NEAR(pb_stored_w2(p, 4), (0.448671104578208 * 0.01 + 0.214742666581513 * 0.04) / 2, 1e-12);
    assert_true(pb_stored_w2(p + 1, 1) == 0);
    CHECK_NEAR(pb_stored_p2(difference, 2), 0.025, 1e-12);
    assert_true(pb_stored_p2(difference, 0) == 0);
}

/* Each line of the table in stored_rule.h, worked out by hand. */
static void one_host_follows_the_formulas(void **state)
{
    const double x[] = {0.1, 0.4, 0.2};
    const pb_stored_noise noise = {.processes = 0.01, .placebos = 0.04, .shared = 0.0025, .sessions = 0.09};
    const pb_stored_row one = {.x = x, .k = 1, .y = 0.5}, three = {.x = x, .k = 3, .y = 0.5};
    (void)state;
    pb_evidence e = weigh(&one, &noise, 1);
    CHECK_NEAR(e.prior, sqrt(0.0425), 1e-12); /* variance: the larger of 0.01 and 0.04, plus the shared 0.0025 */
    CHECK_NEAR(e.sd, e.prior, 1e-12);
    CHECK_NEAR(e.se, sqrt(2 * 0.0425), 1e-12);
    CHECK_NEAR(e.change, 0.4, 1e-12);
    assert_true(e.nu == 6 && e.sessions == 1 && e.hosts == 1 && !e.pool);
    CHECK_NEAR(e.p, pb_t_tail(0.4 / e.se, 6), 1e-12);
    e = weigh(&three, &noise, 1);
    CHECK_NEAR(e.centre, 0.7 / 3, 1e-12);
    CHECK_NEAR(e.since_oldest, 0.4, 1e-12);
    CHECK_NEAR(e.spread * e.spread, 0.07 / 3, 1e-12);
    CHECK_NEAR(e.prior, 0.3, 1e-12); /* variance: v_group, 0.09, which is larger than u2, 0.04 */
    CHECK_NEAR(e.sd * e.sd, (6 * 0.09 + 2 * 0.07 / 3) / 8, 1e-12);
    CHECK_NEAR(e.se, e.sd * sqrt(4 / 3.0), 1e-12);
    assert_true(e.nu == 8);
    e = weigh(&three, &noise, 4);                   /* the mean of four rows */
    CHECK_NEAR(e.prior * e.prior, 0.07 / 3, 1e-12); /* more than 0.0025 + 0.04/4 */
}

/* The candidate's host has no stored sessions, so the variance between hosts is in the standard error twice: for the
 * candidate's host, and for the mean of the stored hosts. */
static void a_pool_adds_the_variance_between_hosts(void **state)
{
    const double x[] = {0, 0.1, 0.5, 0.6, 1.0};
    const int host[] = {0, 0, 1, 1, 2};
    const pb_stored_noise noise = {.processes = 0.0001, .sessions = 0.005, .hosts = 0.09};
    pb_stored_row row = {.x = x, .host = host, .k = 5, .y = 1.5, .another_host = true};
    (void)state;
    pb_evidence e = weigh(&row, &noise, 1);
    const double s2 = 0.005, spread = 0.475 * 0.475 / 2 + 0.475 * 0.475 / 2; /* means 0.05, 0.55, 1.0: about 0.533 */
    CHECK_NEAR(e.centre, 1.6 / 3, 1e-12);
    CHECK_NEAR(e.sd * e.sd, s2, 1e-12);
    const double means = (pow(0.05 - 1.6 / 3, 2) + pow(0.55 - 1.6 / 3, 2) + pow(1 - 1.6 / 3, 2)) / 2;
    const double b = means - s2 * (0.5 + 0.5 + 1) / 3, g2 = (6 * 0.09 + 2 * b) / 8;
    assert_true(fabs(means - spread) < 0.01);
    CHECK_NEAR(e.between * e.between, g2, 1e-12);
    CHECK_NEAR(e.se * e.se, s2 + g2 + (g2 + s2 * 2 / 3) / 3, 1e-12);
    assert_true(e.pool && e.hosts == 3 && e.nu == 8 && pb_stored_enough(&e));
    row.k = 4; /* two hosts are too few */
    e = weigh(&row, &noise, 1);
    assert_true(e.hosts == 2 && !pb_stored_enough(&e));
    const pb_stored_row alone = {.x = x, .k = 5, .y = 1.5, .another_host = true};
    e = weigh(&alone, &noise, 1); /* all sessions are of one other host: the variance between hosts is the prior */
    CHECK_NEAR(e.between, 0.3, 1e-12);
    assert_true(e.pool && !pb_stored_enough(&e));
}

static void degrees_of_freedom_are_capped(void **state)
{
    double x[20] = {0};
    const pb_stored_noise noise = {.sessions = 0.01};
    (void)state;
    for (int i = 0; i < 20; i++) x[i] = i % 2 ? 0.1 : -0.1;
    for (int k = 1; k <= 20; k++) {
        const pb_stored_row row = {.x = x, .k = k, .y = 1};
        assert_true(weigh(&row, &noise, 1).nu == (k < 5 ? 5 + k : 10));
        const pb_evidence e = weigh(&row, &noise, 1);
        assert_true(pb_stored_enough(&e) == (k >= 5));
    }
}

/* A slower row is REGRESSED only if its confirmation is slower too: by at least 2 %, and significant at level 0.05. */
static void a_regression_needs_its_confirmation(void **state)
{
    static const struct {
        int sessions;
        double change, p_adjusted, again, p_again;
        pb_verdict_id want;
    } lines[] = {
        {5, 0.3, 0.01, 0.3, 0.05, PB_VERDICT_REGRESSED},     {5, 0.3, 0.01, 0.3, 0.051, PB_VERDICT_SUSPECT},
        {5, 0.3, 0.01, 0.01, 0.001, PB_VERDICT_SUSPECT},     {5, 0.3, 0.01, -0.3, 0.001, PB_VERDICT_SUSPECT},
        {5, 0.3, 0.01, (double)NAN, 0, PB_VERDICT_SUSPECT},  {4, 0.3, 0.01, 0.3, 0.001, PB_VERDICT_SUSPECT},
        {5, 0.3, 0.011, 0.3, 0.001, PB_VERDICT_SUSPECT},     {5, -0.3, 0.01, (double)NAN, 0, PB_VERDICT_IMPROVED},
        {4, -0.3, 0.01, (double)NAN, 0, PB_VERDICT_SUSPECT}, {5, 0.0197, 0.001, 0.3, 0.001, PB_VERDICT_SAME},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const pb_evidence e = {.sessions = lines[i].sessions,
                               .hosts = 1,
                               .change = lines[i].change,
                               .p = 0.001,
                               .p_adjusted = lines[i].p_adjusted,
                               .again = lines[i].again,
                               .p_again = lines[i].p_again,
                               .se = 0.01,
                               .nu = 10};
        if (pb_stored_verdict(&e, 0.15) != lines[i].want) fail_msg("line %zu", i);
    }
}

/* A row is SAME only if both ends of its 90 % interval are within the limit; else it is not shown to be equal. */
static void equality_is_shown_not_assumed(void **state)
{
    const double t = pb_t_quantile(0.05, 10), limit = log(1.15);
    pb_evidence e = {.sessions = 5, .hosts = 1, .p = 0.4, .p_adjusted = 1, .se = 0.02, .nu = 10};
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        e.change = sign * (limit - t * e.se - 1e-6);
        assert_int_equal(pb_stored_verdict(&e, 0.15), PB_VERDICT_SAME);
        e.change = sign * (limit - t * e.se + 1e-6);
        assert_int_equal(pb_stored_verdict(&e, 0.15), PB_VERDICT_INCONCLUSIVE);
    }
    CHECK_NEAR(pb_stored_bound(&e, pb_t_quantile(0.001, 10)), pb_t_quantile(0.001, 10) * 0.02, 1e-12);
    e.se = 0.001;
    CHECK_NEAR(pb_stored_bound(&e, 3), log(1.02), 1e-12);
}

/* ---- placebo pairs ----------------------------------------------------------------------------------- */

static pb_series timed(const char *key, const char *machine, double seconds)
{
    return (pb_series){.key = key, .metric = "step_time", .machine_id = machine, .median = seconds};
}

/* The differences of the placebo pairs of suite s that a change of case `judged` does not widen. The set is sorted, and
 * its controls follow the cases, as pb_series_make() leaves them. twice: the control case has two copies. */
static int placebos(const char *machine, bool twice, const char *judged, double *difference)
{
    pb_series s[] = {
        timed("s/step?batch=1&mode=eager", machine, 3),
        timed("s/step?batch=1&mode=graph", machine, 1),
        timed("s/step?batch=2&mode=eager", machine, 3), /* no graph */
        timed("t/step?batch=1&mode=eager", machine, 3),
        timed("t/step?batch=1&mode=graph", machine, 1),
        timed("s/step?batch=1&control=first&mode=eager", machine, 2), /* left out unless twice */
        timed("s/step?batch=1&control=second&mode=eager", machine, 4),
        timed("s/step?batch=1&control=second&mode=graph", machine, 8),
    };
    enum { CASES = 5 };
    const size_t controls = sizeof s / sizeof *s - CASES;
    if (!twice) memmove(&s[CASES], &s[CASES + 1], (controls - 1) * sizeof *s);
    pb_placebo pair[8];
    const pb_series_set set = {.s = s, .n = CASES, .controls = controls - !twice};
    return pb_placebo_differences(pair, pb_placebo_pairs(&set, "s/step", "step_time", pair, 8), judged, difference);
}

/* How many of the n differences are ln(ratio). */
static int having(const double *d, int n, double ratio)
{
    int found = 0;
    for (int i = 0; i < n; i++) found += fabs(d[i] - log(ratio)) < 1e-12;
    return found;
}

/* A case and its one copy, two copies, and on a CPU eager and graph. Copies are compared only with their own case. */
static void placebo_pairs_are_found(void **state)
{
    double d[8];
    (void)state;
    int n = placebos("cpu-x", false, "", d);
    assert_int_equal(n, 3);
    assert_int_equal(having(d, n, 3.0 / 4), 1); /* the eager case and its copy */
    assert_int_equal(having(d, n, 1.0 / 8), 1); /* the graph and its copy */
    assert_int_equal(having(d, n, 3), 1);       /* eager and graph */
    n = placebos("cuda-x", false, "", d);       /* on a GPU a graph is other work */
    assert_int_equal(n, 2);
    assert_int_equal(having(d, n, 3), 0);
    n = placebos("cpu-x", true, "", d);
    assert_int_equal(n, 3);
    assert_int_equal(having(d, n, 2.0 / 4), 1); /* the two copies of the eager case, and not the case itself */
    assert_int_equal(having(d, n, 3.0 / 4), 0);
}

/* A slower case is as slow in its copies: their difference stays. It is further away from its graph: that pair does
 * not count for the two. */
static void a_change_of_a_case_does_not_widen_its_bound(void **state)
{
    static const char *const judged[] = {"s/step?batch=1&mode=eager", "s/step?batch=1&mode=graph"};
    double d[8];
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int n = placebos("cpu-x", false, judged[i], d);
        assert_int_equal(n, 2);
        assert_int_equal(having(d, n, 3.0 / 4) + having(d, n, 1.0 / 8), 2);
    }
    assert_int_equal(placebos("cpu-x", false, "s/step?batch=2&mode=eager", d), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_sessions_follow_the_rule),
        cmocka_unit_test(noise_of_processes_and_placebos),
        cmocka_unit_test(one_host_follows_the_formulas),
        cmocka_unit_test(a_pool_adds_the_variance_between_hosts),
        cmocka_unit_test(degrees_of_freedom_are_capped),
        cmocka_unit_test(a_regression_needs_its_confirmation),
        cmocka_unit_test(equality_is_shown_not_assumed),
        cmocka_unit_test(placebo_pairs_are_found),
        cmocka_unit_test(a_change_of_a_case_does_not_widen_its_bound),
    };
    return cmocka_run_group_tests(tests, open_runs, close_runs);
}
