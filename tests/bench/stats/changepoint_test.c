/* changepoint_test.c - bench/stats/changepoint against numpy and Apache Otava (tests/fixtures/changepoint.csv), and its
 * rates of false and missed change points by seeded Monte Carlo. */
#include "bench/stats/changepoint.h"
#include "bench/stats/inference.h"
#include "tests/test.h"

enum { MOST = 160 };
static const pb_change_rule rule = {0.01, 0.01};

static int points(const double *x, int n, const pb_change_rule *r, pb_change_point *out)
{
    int count = -1;
    CHECK_OK(pb_change_points(x, n, r, out, &count));
    return count;
}

/* ---- the fixture ------------------------------------------------------------------------------- */

/* A line: kind, number of results, results, values. */
typedef struct entry {
    char kind[32];
    double want[MOST], x[MOST];
    int wants, n;
} entry;

static bool next_entry(FILE *f, entry *e)
{
    static char line[1 << 14];
    if (!fgets(line, sizeof line, f)) return false;
    char *at = strchr(line, ',');
    assert_non_null(at);
    *at = 0;
    snprintf(e->kind, sizeof e->kind, "%.31s", line);
    e->wants = (int)strtol(at + 1, &at, 10);
    for (int i = 0; i < e->wants; i++) e->want[i] = strtod(at + 1, &at);
    for (e->n = 0; *at == ','; e->n++) {
        assert_true(e->n < MOST);
        e->x[e->n] = strtod(at + 1, &at);
    }
    assert_true(*at == '\n');
    return true;
}

/* want: t and Q of the candidate. */
static void check_candidate(const entry *e)
{
    static double work[(MOST + 1) * (MOST + 1)];
    double q;
    assert_int_equal(pb_change_candidate(e->x, 0, e->n, work, &q), (int)e->want[0]);
    CHECK_NEAR(q, e->want[1], 1e-10 * fabs(e->want[1]));
}

/* want: t, and p of the permutation test by enumerating all orders. The test draws 999 of them. */
static void check_permutation(const entry *e)
{
    static pb_change_point out[MOST];
    const pb_change_rule any = {1, 0};
    const double p = e->want[1], error = 4 * sqrt(p * (1 - p) / PB_CHANGE_SHUFFLES) + 2.0 / PB_CHANGE_SHUFFLES;
    const int n = points(e->x, e->n, &any, out);
    int found = 0;
    while (found < n && out[found].at != (int)e->want[0]) found++;
    assert_true(found < n);
    CHECK_NEAR(out[found].p_shuffle, p, error);
}

/* want: for each change point its index, the means on both sides, and p of the t test. */
static void check_series(const entry *e)
{
    static pb_change_point out[MOST];
    const int n = points(e->x, e->n, &rule, out);
    assert_int_equal(4 * n, e->wants);
    for (int i = 0; i < n; i++) {
        const double *want = e->want + 4 * (size_t)i;
        assert_int_equal(out[i].at, (int)want[0]);
        CHECK_NEAR(out[i].before, want[1], 1e-12 * fabs(want[1]));
        CHECK_NEAR(out[i].after, want[2], 1e-12 * fabs(want[2]));
        CHECK_NEAR(out[i].change, want[2] / want[1] - 1, 1e-12);
        CHECK_NEAR(out[i].p_t, want[3], 1e-8 * want[3]);
        assert_true(out[i].p_shuffle <= rule.alpha && out[i].q > 0);
    }
}

static void results_equal_the_reference_table(void **state)
{
    static const struct {
        const char *kind;
        void (*check)(const entry *e);
    } kinds[] = {{"candidate", check_candidate}, {"permutation", check_permutation}, {"series", check_series}};
    int seen[3] = {0};
    static entry e;
    (void)state;
    FILE *f = fopen(PB_SOURCE_DIR "/tests/fixtures/changepoint.csv", "r");
    assert_non_null(f);
    while (next_entry(f, &e)) {
        int k = 0;
        while (k < 3 && strcmp(kinds[k].kind, e.kind) != 0) k++;
        assert_true(k < 3);
        kinds[k].check(&e);
        seen[k]++;
    }
    fclose(f);
    for (int k = 0; k < 3; k++) assert_true(seen[k] >= 5);
}

/* ---- rates ------------------------------------------------------------------------------------- */

static double gauss(uint64_t seed, uint64_t i) /* Box-Muller */
{
    return sqrt(-2 * log(1 - pb_uniform(seed, 2 * i))) * cos(6.283185307179586 * pb_uniform(seed, 2 * i + 1));
}

/* n values of 100 with a standard deviation of 1; from index `at` on, `shift` more. */
static void make_series(double *x, int n, int at, double shift, uint64_t seed)
{
    for (int i = 0; i < n; i++) x[i] = 100 + gauss(seed, (uint64_t)i) + (i >= at ? shift : 0);
}

/* The magnitude rule is off, so only the tests prevent false change points. The limit is the number of successes that
 * a binomial of the nominal rate exceeds with probability 0.001: 1000 trials at 0.01 exceed 20 so rarely. */
static void noise_has_change_points_at_most_at_the_nominal_rate(void **state)
{
    static const int lengths[] = {6, 10, 20, 50};
    const pb_change_rule r = {0.01, 0};
    pb_change_point out[MOST];
    double x[MOST];
    (void)state;
    for (int l = 0; l < 4; l++) {
        int alarms = 0;
        for (int trial = 0; trial < 1000; trial++) {
            make_series(x, lengths[l], 0, 0, (uint64_t)(1000 * l + trial + 1));
            alarms += points(x, lengths[l], &r, out) > 0;
        }
        print_message("%d values: %d false change points in 1000 series\n", lengths[l], alarms);
        assert_true(alarms <= 20);
    }
}

/* 100 values are three windows, each with the nominal rate; 300 trials at 0.03 exceed 19 with probability 0.001. */
static void long_noise_has_the_rate_of_its_windows(void **state)
{
    const pb_change_rule r = {0.01, 0};
    pb_change_point out[MOST];
    double x[MOST];
    int alarms = 0;
    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        make_series(x, 100, 0, 0, (uint64_t)(9000 + trial));
        alarms += points(x, 100, &r, out) > 0;
    }
    print_message("100 values: %d false change points in 300 series\n", alarms);
    assert_true(alarms <= 19);
}

static void a_shift_of_three_deviations_is_found_in_twenty_values(void **state)
{
    pb_change_point out[MOST];
    double x[MOST];
    (void)state;
    for (int at = 5; at <= 15; at += 5) {
        const int least = at == 10 ? 190 : 165; /* a short side is weaker evidence */
        int found = 0, close = 0;
        for (int trial = 0; trial < 200; trial++) {
            make_series(x, 20, at, 3, (uint64_t)(50000 + 1000 * at + trial));
            const int n = points(x, 20, &rule, out);
            found += n > 0;
            for (int i = 0; i < n; i++) close += abs(out[i].at - at) <= 1;
        }
        print_message("a shift at %d of 20: found in %d of 200, within one value in %d\n", at, found, close);
        assert_true(found >= least && close >= least - 10);
    }
}

/* ---- the rules --------------------------------------------------------------------------------- */

static void a_change_below_the_smallest_is_left_out(void **state)
{
    pb_change_point out[MOST];
    double x[MOST];
    (void)state;
    make_series(x, 20, 10, 5, 7);
    for (int i = 0; i < 20; i++) x[i] = 1000 + x[i]; /* 5 of 1100 is less than 1 % */
    assert_int_equal(points(x, 20, &rule, out), 0);
    assert_int_equal(points(x, 20, &(pb_change_rule){0.01, 0.004}, out), 1);
    assert_int_equal(out[0].at, 10);
    const double halved[] = {2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1}; /* 1/2 - 1 is -50 %, 2/1 - 1 is 100 % */
    assert_int_equal(points(halved, 12, &(pb_change_rule){0.01, 0.99}, out), 1);
    assert_int_equal(points(halved, 12, &(pb_change_rule){0.01, 1.01}, out), 0);
}

/* The energy statistic also finds a change of the spread; the t test then removes the point. */
static void a_change_of_the_spread_alone_is_left_out(void **state)
{
    const pb_change_rule any = {0.01, 0};
    pb_change_point out[MOST];
    double x[MOST], work[41 * 41], q;
    (void)state;
    for (int i = 0; i < 40; i++) x[i] = 100 + (i < 20 ? 0.1 : 10) * (i % 2 ? 1 : -1) * (1 + 0.01 * i);
    assert_int_equal(pb_change_candidate(x, 0, 40, work, &q), 20);
    assert_int_equal(points(x, 40, &any, out), 0);
}

static void degenerate_series_have_no_change_points(void **state)
{
    pb_change_point out[MOST];
    double x[MOST];
    int count = -1;
    (void)state;
    for (int i = 0; i < MOST; i++) x[i] = 42;
    for (int n = 0; n <= MOST; n += 40) assert_int_equal(points(x, n, &rule, out), 0);
    assert_int_equal(points(x, 1, &rule, out), 0);
    x[1] = 43;
    for (int n = 2; n < 6; n++) assert_int_equal(points(x, n, &rule, out), 0); /* too few orders for p <= 0.01 */
    x[3] = (double)NAN;
    CHECK_FAILS(pb_change_points(x, 5, &rule, out, &count), PB_EINVAL, "value 3 is not finite");
    assert_int_equal(count, 0);
}

/* From zero and from below zero. */
static void a_mean_of_zero_has_an_infinite_change(void **state)
{
    pb_change_point out[MOST];
    const double from_zero[] = {0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3};
    const double to_zero[] = {3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0};
    (void)state;
    assert_int_equal(points(from_zero, 14, &rule, out), 1);
    assert_true(out[0].at == 7 && out[0].change == HUGE_VAL && out[0].p_t == 0);
    assert_int_equal(points(to_zero, 14, &rule, out), 1);
    assert_true(out[0].at == 7 && out[0].change == -1);
}

static void the_same_data_give_the_same_points(void **state)
{
    pb_change_point a[MOST], b[MOST];
    double x[MOST];
    (void)state;
    make_series(x, 120, 70, 2, 11);
    const int n = points(x, 120, &rule, a);
    assert_int_equal(points(x, 120, &rule, b), n);
    for (int i = 0; i < n; i++)
        assert_true(a[i].at == b[i].at && a[i].p_shuffle == b[i].p_shuffle && a[i].p_t == b[i].p_t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_equal_the_reference_table),
        cmocka_unit_test(noise_has_change_points_at_most_at_the_nominal_rate),
        cmocka_unit_test(long_noise_has_the_rate_of_its_windows),
        cmocka_unit_test(a_shift_of_three_deviations_is_found_in_twenty_values),
        cmocka_unit_test(a_change_below_the_smallest_is_left_out),
        cmocka_unit_test(a_change_of_the_spread_alone_is_left_out),
        cmocka_unit_test(degenerate_series_have_no_change_points),
        cmocka_unit_test(a_mean_of_zero_has_an_infinite_change),
        cmocka_unit_test(the_same_data_give_the_same_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
