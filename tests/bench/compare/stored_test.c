/* stored_test.c - comparisons with the stored sessions of tests/fixtures/compare/cases.txt (few and many sessions, other
 * hosts, pools, confirmations, ceilings that change, extreme statistics), and the functions of the rule by hand. */
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

/* ---- the pure functions ---------------------------------------------------------------------------- */

static pb_evidence weigh(const pb_stored_row *row, const pb_stored_noise *noise, int averaged)
{
    pb_evidence e = {.again = (double)NAN};
    pb_stored_weigh(row, noise, averaged, &e);
    return e;
}

/* Two processes per side are left out; of the others, 3 and 6 processes, the mean of kappa_L times the variance. */
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
    CHECK_NEAR(e.prior, sqrt(0.0425), 1e-12); /* the larger of both, and what a session shares */
    CHECK_NEAR(e.sd, e.prior, 1e-12);
    CHECK_NEAR(e.se, sqrt(2 * 0.0425), 1e-12);
    CHECK_NEAR(e.change, 0.4, 1e-12);
    assert_true(e.nu == 6 && e.sessions == 1 && e.hosts == 1 && !e.pool);
    CHECK_NEAR(e.p, pb_t_tail(0.4 / e.se, 6), 1e-12);
    e = weigh(&three, &noise, 1);
    CHECK_NEAR(e.centre, 0.7 / 3, 1e-12);
    CHECK_NEAR(e.since_oldest, 0.4, 1e-12);
    CHECK_NEAR(e.spread * e.spread, 0.07 / 3, 1e-12);
    CHECK_NEAR(e.prior, 0.3, 1e-12); /* of the group's sessions */
    CHECK_NEAR(e.sd * e.sd, (6 * 0.09 + 2 * 0.07 / 3) / 8, 1e-12);
    CHECK_NEAR(e.se, e.sd * sqrt(4 / 3.0), 1e-12);
    assert_true(e.nu == 8);
    e = weigh(&three, &noise, 4);                   /* the mean of four rows */
    CHECK_NEAR(e.prior * e.prior, 0.07 / 3, 1e-12); /* more than 0.0025 + 0.04/4 */
}

/* The candidate's host is a new one, so the variance between hosts counts twice: its own, and that of the mean. */
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
    e = weigh(&alone, &noise, 1); /* one host, which is not the candidate's: the prior alone */
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

/* A slower row is REGRESSED only if measuring it again agrees: it is slower again, by 2 % at least, at 0.05. */
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

/* SAME needs both bounds of the 90 % interval within the limit. */
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

static int placebos(const char *machine, const char *without, double *difference)
{
    pb_series s[] = {
        timed("s/step?batch=1&control=first", machine, 2), timed("s/step?batch=1&control=second", machine, 1),
        timed("s/step?batch=1&mode=eager", machine, 3),    timed("s/step?batch=1&mode=graph", machine, 1),
        timed("s/step?batch=2&mode=eager", machine, 3), /* no graph */
        timed("t/step?batch=1&mode=eager", machine, 3),    timed("t/step?batch=1&mode=graph", machine, 1),
    };
    pb_placebo pair[8];
    const pb_series_set set = {s, sizeof s / sizeof *s, NULL};
    return pb_placebo_differences(pair, pb_placebo_pairs(&set, "s/step", "step_time", pair, 8), without, difference);
}

static void placebo_pairs_are_found(void **state)
{
    double d[8];
    (void)state;
    assert_int_equal(placebos("cpu-x", "", d), 2);
    CHECK_NEAR(d[0], log(2), 1e-12);
    CHECK_NEAR(d[1], log(3), 1e-12);
    assert_int_equal(placebos("cuda-x", "", d), 1); /* on a GPU a graph is other work */
    assert_int_equal(placebos("cpu-x", "s/step?batch=1&mode=graph", d), 1);
    CHECK_NEAR(d[0], log(2), 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_sessions_follow_the_rule), cmocka_unit_test(noise_of_processes_and_placebos),
        cmocka_unit_test(one_host_follows_the_formulas),   cmocka_unit_test(a_pool_adds_the_variance_between_hosts),
        cmocka_unit_test(degrees_of_freedom_are_capped),   cmocka_unit_test(a_regression_needs_its_confirmation),
        cmocka_unit_test(equality_is_shown_not_assumed),   cmocka_unit_test(placebo_pairs_are_found),
    };
    return cmocka_run_group_tests(tests, open_runs, close_runs);
}
