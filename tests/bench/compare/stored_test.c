/* stored_test.c - comparisons with the stored sessions of tests/fixtures/compare/cases.txt (nine and ten sessions,
 * ceilings that change, detectable changes, extreme statistics), and how often the rule is wrong on seeded noise. */
#include <math.h>

#include "bench/compare/stored_rule.h"
#include "bench/compare/verdict.h"
#include "kernels/engine/bind.h"
#include "tests/bench/compare/compare_cases.h"

static void stored_sessions_follow_the_rule(void **state)
{
    (void)state;
    assert_true(check_comparisons(true) >= 44);
}

/* ---- error rates on simulated sessions --------------------------------------------------------- */

enum { ROWS = 20, SESSIONS = 12, TRIALS = 2000, FEW_TRIALS = 200 };

/* Standard deviations of the logarithm of a value: `session` is common to all rows of a session, `row` is drawn
 * for each row. */
typedef struct spread {
    double session, row;
} spread;

static double noise(uint64_t seed, uint64_t *at) /* Box-Muller */
{
    const double radius = sqrt(-2 * log(1 - pb_uniform(seed, *at))), turn = pb_uniform(seed, *at + 1);
    *at += 2;
    return radius * cos(6.283185307179586 * turn);
}

/* `since_oldest` is the candidate minus the oldest session; the sessions in between do not matter. */
static void slow_drift_counts_from_the_oldest_session(void **state)
{
    double x[] = {0.1, 0.4, 0.2};
    pb_evidence e = {0};
    (void)state;
    pb_stored_weigh(x, 3, 0.5, &e);
    CHECK_NEAR(e.since_oldest, 0.4, 1e-12);
    CHECK_NEAR(e.change, 0.3, 1e-12); /* from the median */
}

/* Judges one comparison of 20 rows against k sessions; the candidate's last row is slower by `slower`. */
static void compare_noise(uint64_t seed, int k, spread sd, double slower, int count[PB_NVERDICTS], double *detects)
{
    static char key[ROWS][32];
    static pb_session of_base[ROWS][SESSIONS], of_cand[ROWS];
    static pb_series base[ROWS], cand[ROWS];
    static const char *const run[SESSIONS] = {"00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11"};
    static const pb_gates gates = {1, {{"s", "step_time", "", 0.15, true}}};
    pb_verdicts vs = {0};
    uint64_t at = 0;
    double shared[SESSIONS + 1]; /* the last one is the candidate's */
    for (int i = 0; i <= k; i++) shared[i] = sd.session * noise(seed, &at);
    for (int r = 0; r < ROWS; r++) {
        snprintf(key[r], sizeof key[r], "s/step?batch=%02d", r);
        for (int i = 0; i < k; i++) of_base[r][i] = (pb_session){run[i], exp(shared[i] + sd.row * noise(seed, &at))};
        of_cand[r] = (pb_session){"99", exp(shared[k] + sd.row * noise(seed, &at) + (r == ROWS - 1 ? slower : 0))};
        base[r] = (pb_series){.key = key[r],
                              .metric = "step_time",
                              .unit = "s",
                              .better = "lower",
                              .machine_id = "m",
                              .bench_version = PB_BENCH_VERSION,
                              .run_id = "00",
                              .status = PB_ROW_OK,
                              .note = "",
                              .processes = 3,
                              .sessions = k,
                              .session = of_base[r],
                              .median = 1};
        cand[r] = base[r];
        cand[r].sessions = 1;
        cand[r].session = &of_cand[r];
    }
    CHECK_OK(pb_judge(&(pb_series_set){base, ROWS, NULL}, &(pb_series_set){cand, ROWS, NULL}, &gates, NULL,
                      &(pb_judge_opts){false, false}, &vs));
    CHECK_OK(pb_verdicts_decide(&vs));
    memcpy(count, vs.count, sizeof vs.count);
    *detects = vs.v[ROWS - 1].evidence.detects;
    pb_verdicts_free(&vs);
}

/* At most 1 % of comparisons call any of 20 unchanged rows REGRESSED. At exactly 1 %, 36 or more of 2000 trials have
 * a probability of 0.001. A change far beyond the bound is always found. */
static void false_alarms_are_rare_and_slow_code_is_found(void **state)
{
    int alarms = 0, found = 0, count[PB_NVERDICTS];
    double detects;
    (void)state;
    for (uint64_t t = 0; t < TRIALS; t++) {
        compare_noise(t, SESSIONS, (spread){0, 0.005}, 0, count, &detects);
        alarms += count[PB_VERDICT_REGRESSED] > 0;
        if (t % 20) continue;
        compare_noise(t, SESSIONS, (spread){0, 0.005}, 0.06, count, &detects);
        found += count[PB_VERDICT_REGRESSED] > 0;
    }
    print_message(
        "%d alarms in %d comparisons of %d rows; %d of %d changes of 6 %% found; the last could show %.2f %%\n", alarms,
        TRIALS, ROWS, found, TRIALS / 20, 100 * expm1(detects));
    assert_true(alarms < 36);
    assert_true(alarms > 2); /* some alarms must occur; without any, the bound would be wider than alpha needs */
    assert_true(found >= TRIALS / 20 - 2);
}

/* One to nine sessions with the noise of a virtual machine (5 % common to a session's rows): a time never fails the
 * comparison, whether nothing changed or one row doubled, and nothing is called IMPROVED. */
static void fewer_than_ten_sessions_never_fail_a_time(void **state)
{
    const spread virtual_machine = {0.054, 0.079};
    const pb_compare_opts usual = {0}, strict = {.strict = true};
    int count[PB_NVERDICTS], moved = 0, seen = 0, trials = 0;
    double detects;
    (void)state;
    for (int k = 1; k < PB_MIN_SESSIONS; k++)
        for (uint64_t t = 0; t < FEW_TRIALS; t++, trials++) {
            compare_noise(t, k, virtual_machine, 0, count, &detects);
            assert_int_equal(pb_compare_exit(count, &usual), PB_EXIT_OK);
            assert_int_equal(count[PB_VERDICT_REGRESSED] + count[PB_VERDICT_IMPROVED], 0);
            assert_true(isinf(detects));
            moved += count[PB_VERDICT_SUSPECT];
            compare_noise(t, k, (spread){0, 0.005}, log(2), count, &detects);
            assert_int_equal(pb_compare_exit(count, &usual), PB_EXIT_OK);
            seen += pb_compare_exit(count, &strict) == PB_EXIT_INCONCLUSIVE;
        }
    print_message("%d of %d unchanged rows are SUSPECT; %d of %d times that doubled are\n", moved, trials * ROWS, seen,
                  trials);
    assert_true(moved > trials); /* the noise is so large that unchanged rows become SUSPECT */
    assert_int_equal(seen, trials);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_sessions_follow_the_rule),
        cmocka_unit_test(slow_drift_counts_from_the_oldest_session),
        cmocka_unit_test(fewer_than_ten_sessions_never_fail_a_time),
        cmocka_unit_test(false_alarms_are_rare_and_slow_code_is_found),
    };
    return cmocka_run_group_tests(tests, open_runs, close_runs);
}
