/* simulate_test.c - tests bench/pairs/simulate.h, which estimates the rule's error rates from recorded pairs. The
 * recordings here are synthetic, so that the true rates are known: from pair_simulation_test, from the closed forms of
 * power.c, or because only one outcome is possible. Seeds are fixed; each limit lies between the correct value and the
 * value of a broken simulation. */
#include "bench/pairs/simulate.h"
#include "kernels/engine/bind.h"
#include "tests/test.h"

enum { MAX_ROWS = 8, MAX_PAIRS = 2400 };

typedef struct recording {
    double d[MAX_ROWS][MAX_PAIRS];
    pb_sim_row row[MAX_ROWS];
    pb_sim_found found[MAX_ROWS];
} recording;

static double gauss(uint64_t seed, uint64_t i)
{
    return sqrt(-2 * log(1 - pb_uniform(seed, 2 * i))) * cos(6.283185307179586 * pb_uniform(seed, 2 * i + 1));
}

/* Records normal differences with mean `level` and standard deviation `sd`. */
static recording *record(int rows, int pairs, double level, double sd, uint64_t seed)
{
    static const char *const metric[MAX_ROWS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    recording *z = calloc(1, sizeof *z);
    assert_non_null(z);
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < pairs; i++) z->d[r][i] = level + sd * gauss(seed, (uint64_t)(r * MAX_PAIRS + i));
        z->row[r] = (pb_sim_row){.key = "s/c", .metric = metric[r], .log_ratio = z->d[r]};
    }
    return z;
}

static pb_sim_opts options(int trials)
{
    return (pb_sim_opts){.rule = PB_PAIR_DEFAULTS, .family = true, .inject = 0.02, .trials = trials};
}

static pb_simulation simulate(recording *z, int rows, const pb_sim_session *s, int n, const pb_sim_opts *o)
{
    pb_simulation out = {0};
    CHECK_OK(pb_simulate(z->row, (size_t)rows, s, n, o, z->found, &out));
    print_message(
        "recorded %d/%d, resampled %d+%d/%d (%d undecided, %d early), found %d/%d (%d early), detectable %g\n",
        out.recorded.alarms, out.recorded.comparisons, out.resampled.alarms, out.resampled.improvements,
        out.resampled.comparisons, out.resampled.undecided, out.resampled.early, out.found, out.injected, out.early,
        out.detectable);
    return out;
}

/* The recording is so noisy that the minimum effect prevents no false alarms; only alpha does. According to
 * pair_simulation_test just below 1 % of comparisons have a false alarm in each direction. Without the joint test of
 * the family about 4 % would have one; without dividing alpha between the looks, twice the allowed rate. */
static void false_alarms_stay_below_alpha(void **state)
{
    (void)state;
    recording *z = record(4, 2400, 0, 0.08, 11);
    const pb_sim_session s[] = {{1200, false}, {1200, true}};
    pb_sim_opts o = options(1000);
    o.same_code = true;
    pb_simulation r = simulate(z, 4, s, 2, &o);
    assert_int_equal(r.resampled.comparisons, 1000);
    assert_in_range(r.resampled.alarms, 4, 20);
    assert_in_range(r.resampled.improvements, 4, 20);
    assert_int_equal(r.recorded.comparisons, 100);
    assert_in_range(r.recorded.alarms, 0, 4);
    assert_int_equal(r.pairs, 2400);
    assert_true(r.found < r.injected / 25); /* 2 % is not visible in this noise */
    o.family = false;                       /* each of the 4 rows is tested by itself, as one comparison */
    o.trials = 600;
    r = simulate(z, 4, s, 2, &o);
    assert_int_equal(r.resampled.comparisons, 2400);
    assert_int_equal(r.recorded.comparisons, 400);
    assert_in_range(r.resampled.alarms, 8, 45);
    free(z);
}

/* The pairs of a recorded session are divided into comparisons of full length. The remaining pairs are one more
 * comparison if there are enough for a first look. No pair is used twice. */
static void recorded_pairs_are_used_once(void **state)
{
    (void)state;
    recording *z = record(1, 47 + 35 + 12 + 11, 0, 0.004, 12);
    const pb_sim_session s[] = {{47, true}, {35, true}, {12, true}, {11, true}};
    const pb_sim_opts o = options(100);
    pb_simulation r = simulate(z, 1, s, 4, &o);
    assert_int_equal(r.recorded.comparisons, 2 + 1 + 1);
    assert_int_equal(r.pairs, 105);
    free(z);
    /* the first 24 of 48 pairs are slower: one comparison is REGRESSED, the other is not */
    z = record(1, 48, 0, 0.002, 13);
    for (int i = 0; i < 24; i++) z->d[0][i] += 0.05;
    pb_sim_opts same = options(100);
    same.same_code = true;
    r = simulate(z, 1, &(pb_sim_session){48, true}, 1, &same);
    assert_int_equal(r.recorded.comparisons, 2);
    assert_int_equal(r.recorded.alarms, 1);
    free(z);
}

/* Recordings of different programs, with a different mean in each session, give the same rates as recordings without
 * difference. */
static void differences_are_centred(void **state)
{
    (void)state;
    recording *z = record(2, 48, 0.05, 0.004, 14);
    for (int i = 24; i < 48; i++) z->d[0][i] -= 0.12, z->d[1][i] += 0.3;
    const pb_sim_session s[] = {{24, true}, {24, true}};
    const pb_sim_opts o = options(500);
    pb_simulation r = simulate(z, 2, s, 2, &o);
    assert_int_equal(r.recorded.alarms + r.recorded.improvements, 0);
    assert_int_equal(r.resampled.alarms + r.resampled.improvements + r.resampled.undecided, 0);
    assert_int_equal(r.found, r.injected);
    free(z);
    /* Subtracting the session's mean makes the standard deviation too small. The simulation corrects this: it
     * multiplies by sqrt(n / (n-1)). */
    z = record(1, 12, 0.05, 0.004, 15);
    simulate(z, 1, &(pb_sim_session){12, true}, 1, &o);
    CHECK_NEAR(z->found[0].sd, pb_sample_of(z->d[0], 12).sd * sqrt(12.0 / 11), 1e-12);
    free(z);
}

/* The machine drifts by 1.5 % per process. Drawing the order of each pair at random turns the drift into noise; with
 * the recorded order it is a regression. */
static void the_order_of_neighbours_is_drawn(void **state)
{
    (void)state;
    recording *z = record(1, 240, 0.015, 0.001, 16);
    pb_sim_opts o = options(1000);
    pb_simulation r = simulate(z, 1, &(pb_sim_session){240, false}, 1, &o);
    assert_int_equal(r.recorded.comparisons, 10);
    assert_int_equal(r.recorded.alarms + r.recorded.improvements, 0);
    assert_in_range(r.resampled.alarms + r.resampled.improvements, 0, 20);
    assert_in_range(r.resampled.early, 0, 100); /* few comparisons are decided at the first look */
    /* same_code keeps the recorded signs, and drift then looks like a change: all 10 comparisons are alarms. */
    o.same_code = true;
    r = simulate(z, 1, &(pb_sim_session){240, true}, 1, &o);
    assert_int_equal(r.recorded.alarms, 10);
    free(z);
}

/* With this noise 12 pairs sometimes find 2 % and 24 pairs usually do; both rates must agree with power.c. */
static void detection_rates_agree_with_power(void **state)
{
    (void)state;
    const double sd = 0.018, delta = log(1.01);
    recording *z = record(2, 2400, 0, sd, 17);
    const pb_sim_session s = {2400, false};
    pb_sim_opts o = options(1000);
    pb_simulation r = simulate(z, 2, &s, 1, &o);
    const pb_detector first = {12, sd, 0.01 / 2 / 2, delta}, second = {24, sd, 0.01 / 2 / 2, delta};
    double early = pb_power(&first, log(1.02)), late = pb_power(&second, log(1.02));
    print_message("power %g and %g\n", early, late);
    CHECK_NEAR((double)r.early / r.injected, early, 0.04);
    CHECK_NEAR((double)r.found / r.injected, late, 0.04);
    assert_true(early < late - 0.2);
    o.rule.look[0] = 24; /* with one look and one row the detectable change has a closed form */
    o.family = false;
    o.trials = 300;
    r = simulate(z, 2, &s, 1, &o);
    const pb_detector alone = {24, sd, 0.01, delta};
    CHECK_NEAR(r.detectable / pb_detectable(&alone, 0.95), 1, 0.1);
    assert_int_equal(r.early, r.found);
    free(z);
}

/* Noise that lasts for several processes must last in resampled data as well. Here half of the recording is 60 times
 * as noisy. Resampling single pairs would mix both kinds evenly; resampling blocks gives comparisons with more or
 * fewer noisy pairs. */
static void resampling_keeps_blocks_together(void **state)
{
    (void)state;
    recording *z = record(1, 240, 0, 0.001, 18);
    for (int i = 0; i < 240; i++)
        if (i / 60 % 2) z->d[0][i] *= 60; /* alternating: 60 pairs of little noise, 60 of much */
    pb_sim_opts o = options(2000);
    o.rule.look[0] = 4; /* the first look is one block */
    o.rule.look[1] = 12;
    o.rule.alpha = 0.2; /* 4 pairs can be significant: the smallest p-value is 2^-4 */
    o.rule.alpha_same = 0.2;
    pb_simulation r = simulate(z, 1, &(pb_sim_session){240, false}, 1, &o);
    /* Half of the recorded pairs have little noise. Blocks of four pairs are resampled, so nearly half of the 2000
     * comparisons begin with four pairs of little noise and decide early. If single pairs were resampled, only 1
     * comparison in 16 would. */
    assert_in_range(r.early, 700, 1200);
    free(z);
}

static void higher_is_better_negates_the_change(void **state)
{
    (void)state;
    recording *z = record(2, 24, 0, 0.004, 19);
    z->row[1].higher = true;
    const pb_sim_opts o = options(200);
    pb_simulation r = simulate(z, 2, &(pb_sim_session){24, true}, 1, &o);
    assert_int_equal(r.found, 400);
    assert_int_equal(z->found[1].found, 200);
    free(z);
}

static void the_same_data_give_the_same_rates(void **state)
{
    (void)state;
    recording *z = record(3, 60, 0, 0.02, 20), *y = record(3, 60, 0, 0.02, 21);
    const pb_sim_opts o = options(40);
    const pb_sim_session s = {60, true};
    pb_simulation a = simulate(z, 3, &s, 1, &o), b = simulate(z, 3, &s, 1, &o), c = simulate(y, 3, &s, 1, &o);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.found != c.found);
    free(z);
    free(y);
}

static void invalid_input_is_refused(void **state)
{
    (void)state;
    recording *z = record(1, 24, 0, 0.004, 22);
    pb_simulation out = {.pairs = -7};
    pb_sim_opts o = options(100);
    const pb_sim_session few = {11, true}, s = {24, true}, single[] = {{1, true}, {23, true}};
    CHECK_FAILS(pb_simulate(z->row, 1, &few, 1, &o, z->found, &out), PB_EINVAL, "11 pairs were recorded");
    CHECK_FAILS(pb_simulate(z->row, 1, single, 2, &o, z->found, &out), PB_EINVAL, "a session has only 1 pairs");
    CHECK_FAILS(pb_simulate(z->row, 0, &s, 1, &o, z->found, &out), PB_EINVAL, "no rows");
    o.trials = 0;
    CHECK_FAILS(pb_simulate(z->row, 1, &s, 1, &o, z->found, &out), PB_EINVAL, "0 trials");
    o.trials = 100;
    o.inject = (double)NAN;
    CHECK_FAILS(pb_simulate(z->row, 1, &s, 1, &o, z->found, &out), PB_EINVAL, "inject=");
    o.inject = 0.02;
    o.rule.look[1] = 11;
    CHECK_FAILS(pb_simulate(z->row, 1, &s, 1, &o, z->found, &out), PB_EINVAL, "looks after 12 and 11");
    o = options(100);
    z->d[0][5] = (double)NAN;
    CHECK_FAILS(pb_simulate(z->row, 1, &s, 1, &o, z->found, &out), PB_EINVAL, "no finite ratio in pair 5");
    assert_int_equal(out.pairs, -7);
    free(z);
}

/* Without noise there are no alarms and every change is found. With unbounded noise no change is detectable and
 * nothing fails. */
static void degenerate_noise(void **state)
{
    (void)state;
    recording *z = record(1, 24, 0, 0, 23);
    const pb_sim_opts o = options(100);
    const pb_sim_session s = {24, true};
    pb_simulation r = simulate(z, 1, &s, 1, &o);
    assert_int_equal(r.resampled.alarms + r.resampled.undecided, 0);
    assert_int_equal(r.found, 100);
    CHECK_NEAR(expm1(r.detectable), 0.01, 0.0005);
    for (int i = 0; i < 24; i++) z->d[0][i] = i % 2 ? 1e6 : -1e6;
    r = simulate(z, 1, &s, 1, &o);
    assert_in_range(r.found, 0, 5); /* false alarms */
    assert_true(isinf(r.detectable));
    free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(false_alarms_stay_below_alpha),
        cmocka_unit_test(recorded_pairs_are_used_once),
        cmocka_unit_test(differences_are_centred),
        cmocka_unit_test(the_order_of_neighbours_is_drawn),
        cmocka_unit_test(detection_rates_agree_with_power),
        cmocka_unit_test(resampling_keeps_blocks_together),
        cmocka_unit_test(higher_is_better_negates_the_change),
        cmocka_unit_test(the_same_data_give_the_same_rates),
        cmocka_unit_test(invalid_input_is_refused),
        cmocka_unit_test(degenerate_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
