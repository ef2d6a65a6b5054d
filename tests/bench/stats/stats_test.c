/* stats_test.c - bench/stats against tables made with scipy and mpmath, and its results for degenerate input. */
#include "bench/stats/median.h"
#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"
#include "bench/stats/variance.h"
#include "tests/test.h"

#define RELATIVE 1e-12

/* ---- comparison with the table ----------------------------------------------------------------- */

enum { MAX_ARGUMENTS = 64 };
typedef struct entry {
    char function[32];
    double want, a[MAX_ARGUMENTS];
    int n;
} entry;

typedef double (*function)(const entry *e);

static double t_test(const entry *e)
{
    const pb_sample s = pb_sample_of(e->a + 1, e->n - 1);
    return pb_t_test(&s, e->a[0]);
}

static pb_interval t_interval(const entry *e)
{
    const pb_sample s = pb_sample_of(e->a + 1, e->n - 1);
    return pb_t_interval(&s, e->a[0]);
}

static double tost(const entry *e)
{
    const pb_sample s = pb_sample_of(e->a + 1, e->n - 1);
    return pb_tost(&s, e->a[0]);
}

static double holm(const entry *e)
{
    double adjusted[MAX_ARGUMENTS];
    CHECK_OK(pb_holm(e->a + 2, (size_t)(e->n - 2), (size_t)e->a[1], adjusted));
    return adjusted[(int)e->a[0]];
}

static double joint_flip(const entry *e)
{
    const int m = (int)e->a[1], n = (int)e->a[2];
    pb_differences rows[MAX_ARGUMENTS];
    double adjusted[MAX_ARGUMENTS], t;
    for (int r = 0; r < m; r++) rows[r] = (pb_differences){e->a + 3 + r * n, n};
    CHECK_OK(pb_joint_flip(rows, (size_t)m, 0.01, adjusted, &t));
    assert_false(isnan(t));
    return adjusted[(int)e->a[0]];
}

static double flip_detectable(const entry *e) { return pb_flip_detectable((int)e->a[0], e->a[1], e->a[2], e->a[3]); }

static double power(const entry *e)
{
    return pb_power(&(pb_detector){(int)e->a[0], e->a[1], e->a[2], e->a[3]}, e->a[4]);
}

static double detectable(const entry *e)
{
    return pb_detectable(&(pb_detector){(int)e->a[0], e->a[1], e->a[2], e->a[3]}, e->a[4]);
}

static double mean(double *x, int n) { return pb_sample_of(x, n).mean; }

static pb_interval bootstrap(const entry *e, pb_statistic f)
{
    pb_interval i = {0, 0};
    CHECK_OK(pb_bootstrap(e->a + 2, e->n - 2, f, (int)e->a[0], e->a[1], &i));
    return i;
}

static double interval_lo(const entry *e) { return t_interval(e).lo; }
static double interval_hi(const entry *e) { return t_interval(e).hi; }
static double bootstrap_lo(const entry *e) { return bootstrap(e, pb_median).lo; }
static double bootstrap_hi(const entry *e) { return bootstrap(e, pb_median).hi; }
static double bootstrap_mean_lo(const entry *e) { return bootstrap(e, mean).lo; }
static double bootstrap_mean_hi(const entry *e) { return bootstrap(e, mean).hi; }
static double sign_flip(const entry *e) { return pb_sign_flip(e->a + 1, e->n - 1, e->a[0]); }
static double median_variance(const entry *e) { return pb_median_variance((int)e->a[0]); }
static double rate_bound(const entry *e) { return pb_rate_bound((int)e->a[0], (int)e->a[1], e->a[2]); }
static double normal_tail(const entry *e) { return pb_normal_tail(e->a[0]); }
static double normal_quantile(const entry *e) { return pb_normal_quantile(e->a[0]); }
static double t_tail(const entry *e) { return pb_t_tail(e->a[0], e->a[1]); }
static double t_quantile(const entry *e) { return pb_t_quantile(e->a[0], e->a[1]); }
static double beta_cdf(const entry *e) { return pb_beta_cdf(e->a[0], e->a[1], e->a[2]); }

static const struct {
    const char *name;
    function f;
} functions[] = {
#define X(name)                                                                                                        \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
    X(normal_tail),
    X(normal_quantile),
    X(t_tail),
    X(t_quantile),
    X(beta_cdf),
    X(t_test),
    X(interval_lo),
    X(interval_hi),
    X(tost),
    X(sign_flip),
    X(holm),
    X(power),
    X(detectable),
    X(rate_bound),
    X(median_variance),
    X(bootstrap_lo),
    X(bootstrap_hi),
    X(bootstrap_mean_lo),
    X(bootstrap_mean_hi),
    X(joint_flip),
    X(flip_detectable),
#undef X
};
enum { FUNCTIONS_N = sizeof functions / sizeof *functions };

static bool next_entry(FILE *f, entry *e)
{
    char line[4096];
    if (!fgets(line, sizeof line, f)) return false;
    char *at = strchr(line, ',');
    assert_non_null(at);
    *at = 0;
    snprintf(e->function, sizeof e->function, "%.31s", line);
    e->want = strtod(at + 1, &at);
    for (e->n = 0; *at == ','; e->n++) {
        assert_true(e->n < MAX_ARGUMENTS);
        e->a[e->n] = strtod(at + 1, &at);
    }
    assert_true(*at == '\n');
    return true;
}

static void results_equal_the_reference_table(void **state)
{
    (void)state;
    FILE *f = fopen(PB_SOURCE_DIR "/tests/fixtures/stats.csv", "r");
    int seen[FUNCTIONS_N] = {0}, wrong = 0;
    entry e;
    assert_non_null(f);
    while (next_entry(f, &e)) {
        int i = 0;
        while (i < FUNCTIONS_N && strcmp(functions[i].name, e.function) != 0) i++;
        if (i >= FUNCTIONS_N) {
            fail_msg("no function %s", e.function);
            break;
        }
        double got = functions[i].f(&e);
        seen[i]++;
        if (fabs(got - e.want) <= RELATIVE * fabs(e.want)) continue;
        wrong++;
        print_error("%s(%.17g, %.17g, ...) of %d = %.17g, want %.17g: %.2g off\n", e.function, e.a[0], e.a[1], e.n, got,
                    e.want, got / e.want - 1);
    }
    fclose(f);
    for (int i = 0; i < FUNCTIONS_N; i++)
        if (!seen[i]) fail_msg("the table has no %s", functions[i].name);
    assert_int_equal(wrong, 0);
}

/* ---- results for degenerate input -------------------------------------------------------------- */

static void one_value_has_unknown_spread(void **state)
{
    (void)state;
    const double one[] = {0.05};
    const pb_sample s = pb_sample_of(one, 1), none = pb_sample_of(one, 0);
    assert_true(s.mean == 0.05 && s.sd == HUGE_VAL);
    assert_true(none.mean == 0 && none.sd == HUGE_VAL);
    assert_true(pb_t_test(&s, 0) == 1 && pb_t_test(&none, 0) == 1 && pb_tost(&s, 1) == 1);
    assert_true(pb_t_interval(&s, 0.01).lo == -HUGE_VAL && pb_t_interval(&s, 0.01).hi == HUGE_VAL);
    assert_true(pb_sign_flip(one, 1, 0) == 0.5 && pb_sign_flip(one, 0, 0) == 1);
    pb_interval i = {0, 0};
    CHECK_OK(pb_bootstrap(one, 1, pb_median, 100, 0.05, &i));
    assert_true(i.lo == -HUGE_VAL && i.hi == HUGE_VAL);
}

static void zero_spread_gives_a_point_interval(void **state)
{
    (void)state;
    const double same[] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    const pb_sample s = pb_sample_of(same, 7);
    assert_true(s.mean == 0.1 && s.sd == 0);
    assert_true(pb_t_test(&s, 0) == 0 && pb_t_test(&s, 0.1) == 0.5 && pb_t_test(&s, 0.2) == 1);
    assert_true(pb_tost(&s, 0.2) == 0 && pb_tost(&s, 0.05) == 1);
    assert_true(pb_t_interval(&s, 0.01).lo == 0.1 && pb_t_interval(&s, 0.01).hi == 0.1);
    assert_true(pb_sign_flip(same, 7, 0) == 1.0 / 128 && pb_sign_flip(same, 2, 0) == 0.25);
    assert_true(pb_sign_flip(same, 7, 0.1) == 1); /* no value has a sign to flip */
    pb_interval i = {0, 0};
    CHECK_OK(pb_bootstrap(same, 7, pb_median, 100, 0.05, &i));
    assert_true(i.lo == 0.1 && i.hi == 0.1);
    const pb_detector d = {12, 0, 0.005, 0.01};
    assert_true(pb_detectable(&d, 0.95) == 0.01 && pb_power(&d, 0.02) == 1 && pb_power(&d, 0.005) == 0);
}

/* Replaces one value by NaN, +inf or -inf. */
static void values_not_finite_give_no_evidence(void **state)
{
    (void)state;
    const double odd[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
    for (int k = 0; k < 3; k++) {
        double d[12] = {0.02, 0.03, odd[k], 0.021, 0.022, 0.023, 0.024, 0.019, 0.018, 0.02, 0.021, 0.03};
        const pb_sample s = pb_sample_of(d, 12);
        assert_true(s.mean == 0 && s.sd == HUGE_VAL);
        assert_true(pb_t_test(&s, 0) == 1 && pb_tost(&s, 1) == 1 && pb_sign_flip(d, 12, 0) == 1);
        assert_true(pb_t_interval(&s, 0.01).lo == -HUGE_VAL && pb_t_interval(&s, 0.01).hi == HUGE_VAL);
        pb_interval i = {0, 0};
        CHECK_OK(pb_bootstrap(d, 12, pb_median, 100, 0.05, &i));
        assert_true(i.lo == -HUGE_VAL && i.hi == HUGE_VAL);
        double work[3], out = -7;
        CHECK_FAILS(pb_log_median(d, 3, 1, work, &out), PB_EINVAL, "iteration 2 took");
        assert_true(out == -7);
    }
    const double huge[] = {1e308, -1e308, 1.7e308, 1.7e308}; /* the sum overflows */
    const pb_sample s = pb_sample_of(huge, 4);
    assert_true(isfinite(s.mean) && !isnan(s.sd));
    assert_false(isnan(pb_t_test(&s, 0)) || isnan(pb_tost(&s, 1)) || pb_sign_flip(huge, 4, 0) < 1);
    const double holed[] = {0.1, (double)NAN, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, even[] = {1, 1, 1, 1, 1, 1, 1, 1};
    double joint[2], t;
    CHECK_OK(pb_joint_flip((pb_differences[]){{holed, 8}, {even, 8}}, 2, 0.01, joint, &t));
    assert_true(joint[0] == 1 && joint[1] == 1.0 / 256 && t > 0 && isfinite(t));
    CHECK_OK(pb_joint_flip((pb_differences[]){{even, 6}}, 1, 0.01, joint, &t));
    assert_true(joint[0] == 1.0 / 64 && t == HUGE_VAL); /* 2^-6 is above 0.01 */
    CHECK_OK(pb_joint_flip(NULL, 0, 0.01, joint, &t));
    CHECK_FAILS(pb_joint_flip((pb_differences[]){{even, 25}}, 1, 0.01, joint, &t), PB_EINVAL,
                "25 pairs, need at most 24");
    assert_true(pb_flip_detectable(6, 0.02, 0.01, 0.95) == HUGE_VAL &&
                pb_flip_detectable(12, HUGE_VAL, 0.01, 0.95) == HUGE_VAL);
    double p[] = {(double)NAN, 0.001}, adjusted[2];
    CHECK_OK(pb_holm(p, 2, 2, adjusted));
    assert_true(adjusted[0] == 1 && adjusted[1] == 0.002);
}

static void arguments_out_of_range_give_no_evidence(void **state)
{
    (void)state;
    assert_true(pb_t_tail(NAN, 3) == 1 && pb_t_tail(1, 0) == 1 && pb_t_tail(1, NAN) == 1 &&
                pb_t_tail(HUGE_VAL, 3) == 0);
    assert_true(pb_t_tail(-HUGE_VAL, 3) == 1 && pb_normal_tail(NAN) == 1 && pb_normal_tail(HUGE_VAL) == 0);
    assert_true(pb_t_quantile(0, 3) == HUGE_VAL && pb_t_quantile(NAN, 3) == HUGE_VAL &&
                pb_t_quantile(1, 3) == -HUGE_VAL);
    assert_true(pb_t_quantile(0.5, 3) == 0 && pb_normal_quantile(0) == HUGE_VAL && pb_t_quantile(0.1, -1) == HUGE_VAL);
    assert_true(pb_t_quantile(0.025, HUGE_VAL) == pb_normal_quantile(0.025));
    assert_true(pb_beta_cdf(NAN, 1, 1) == 1 && pb_beta_quantile(NAN, 1, 1) == 1 && pb_beta_quantile(0, 2, 2) == 0);
    assert_true(pb_rate_bound(0, 0, 0.95) == 1 && pb_rate_bound(7, 7, 0.95) == 1 && pb_rate_bound(8, 7, 0.95) == 1);
    const pb_detector none = {1, 0.01, 0.005, 0.01}, noise = {12, HUGE_VAL, 0.005, 0.01}, odd = {12, NAN, 0.005, 0.01};
    assert_true(pb_detectable(&none, 0.9) == HUGE_VAL && pb_power(&none, 1) == 0);
    assert_true(pb_detectable(&noise, 0.9) == HUGE_VAL && pb_power(&noise, 1) == 0);
    assert_true(pb_detectable(&odd, 0.9) == HUGE_VAL && pb_power(&odd, NAN) == 0);
    pb_interval i;
    const double d[] = {1, 2, 3};
    CHECK_FAILS(pb_bootstrap(d, 3, pb_median, 99, 0.05, &i), PB_EINVAL, "need 100 or more");
    CHECK_FAILS(pb_bootstrap(d, 3, pb_median, 100, 1, &i), PB_EINVAL, "need 0 < alpha < 1");
    assert_true(pb_sign_flip(d, 25, 0) == 1); /* reading past the third value would be caught by ASan */
}

/* ---- results that the table does not contain --------------------------------------------------- */

static void log_median_takes_the_slowest_rank(void **state)
{
    (void)state;
    /* 4 iterations of 2 ranks; the slower rank of each iteration takes 4, 2, 3 and 10 */
    const double t[] = {1, 2, 3, 10, 4, 2, 2, 2};
    double work[4], out;
    CHECK_OK(pb_log_median(t, 4, 2, work, &out));
    CHECK_NEAR(out, (log(3) + log(4)) / 2, 1e-15);
    CHECK_OK(pb_log_median(t, 3, 1, work, &out));
    CHECK_NEAR(out, log(2), 1e-15);
    const double zero[] = {1, 0};
    CHECK_FAILS(pb_log_median(zero, 2, 1, work, &out), PB_EINVAL, "iteration 1 took 0 s");
    CHECK_FAILS(pb_log_median(t, 0, 1, work, &out), PB_EINVAL, "0 iterations");
}

/* Tests the exact test at its largest size, 24 values: against a count if all values have equal size, else against the
 * normal approximation. */
static void sign_flip_of_24(void **state)
{
    (void)state;
    double d[24];
    /* the p-value counts sign patterns with 6 or fewer minus signs */
    for (int i = 0; i < 24; i++) d[i] = i < 18 ? 0.1 : -0.1;
    CHECK_NEAR(pb_sign_flip(d, 24, 0) * 16777216, 1 + 24 + 276 + 2024 + 10626 + 42504 + 134596, 0);
    for (int i = 0; i < 24; i++) d[i] = 0.1 + 0.001 * i;
    assert_true(pb_sign_flip(d, 24, 0) == 0x1p-24);
    for (int i = 0; i < 24; i++) d[i] = -d[i];
    assert_true(pb_sign_flip(d, 24, 0) == 1);
}

/* Two sessions of one host, three of another, worked out by hand. */
static void groups_are_separated_from_what_is_inside_them(void **state)
{
    const double x[] = {1, 2, 3, 5, 7};
    const int host[] = {0, 1, 0, 1, 1};
    (void)state;
    const pb_groups g = pb_groups_of(x, host, 5); /* 1, 3 and 2, 5, 7 */
    assert_int_equal(g.groups, 2);
    assert_int_equal(g.within_df, 3);
    CHECK_NEAR(g.mean, (2 + 14 / 3.0) / 2, 1e-12);
    CHECK_NEAR(g.within, (2 + 38 / 3.0) / 3, 1e-12);
    CHECK_NEAR(g.inverse, (1 / 2.0 + 1 / 3.0) / 2, 1e-12);
    CHECK_NEAR(g.spread, (8 / 3.0) * (8 / 3.0) / 2, 1e-12);
    CHECK_NEAR(pb_between_variance(&g, 1.2), g.spread - 0.5, 1e-12);
    assert_true(pb_between_variance(&g, 100) == 0);
    const pb_groups one = pb_groups_of(x, NULL, 5);
    assert_true(one.groups == 1 && one.within_df == 4 && one.spread == 0 && pb_between_variance(&one, 0) == 0);
    CHECK_NEAR(one.within, pow(pb_sample_of(x, 5).sd, 2), 1e-12);
    const pb_groups single = pb_groups_of(x, NULL, 1);
    assert_true(single.within_df == 0 && single.within == 0 && single.mean == 1);
    CHECK_NEAR(pb_shrunk_variance(4, 6, 1, 2), 26 / 8.0, 1e-12);
    assert_true(pb_shrunk_variance(4, 6, 1, 0) == 4);
}

static void pairs_needed_is_the_least(void **state)
{
    (void)state;
    pb_detector d = {0, 0.014, 0.000125, log(1.01)};
    int n = pb_pairs_needed(&d, log(1.02), 0.95, 1000);
    assert_true(n > 12 && n < 24);
    d.n = n;
    assert_true(pb_power(&d, log(1.02)) >= 0.95 && pb_detectable(&d, 0.95) <= log(1.02));
    d.n = n - 1;
    assert_true(pb_power(&d, log(1.02)) < 0.95 && pb_detectable(&d, 0.95) > log(1.02));
    assert_int_equal(pb_pairs_needed(&d, log(1.02), 0.95, n - 1), 0);
    assert_int_equal(pb_pairs_needed(&d, log(1.01), 0.95, 1000),
                     0); /* a true change equal to min_effect is found with probability 1/2 */
}

/* The same data give the same interval, other data another one: the seed is derived from the data. */
static void bootstrap_is_deterministic(void **state)
{
    (void)state;
    double x[] = {1, 4, 2, 8, 5, 7, 3, 6, 9, 11}, y[] = {1, 4, 2, 8, 5, 7, 3, 6, 9, 12};
    pb_interval a, b, c;
    CHECK_OK(pb_bootstrap(x, 10, pb_median, 400, 0.05, &a));
    CHECK_OK(pb_bootstrap(x, 10, pb_median, 400, 0.05, &b));
    CHECK_OK(pb_bootstrap(y, 10, pb_median, 400, 0.05, &c));
    assert_true(a.lo == b.lo && a.hi == b.hi && a.lo < 5.5 && a.hi > 5.5);
    assert_true(x[0] == 1 && x[9] == 11); /* the input is not modified */
    assert_true(c.lo != a.lo || c.hi != a.hi);
}

static void a_maximum_keeps_nan(void **state)
{
    (void)state;
    assert_true(pb_max_or_nan(1, 2) == 2 && pb_max_or_nan(2, 1) == 2);
    assert_true(isnan(pb_max_or_nan((double)NAN, 1)) && isnan(pb_max_or_nan(1, (double)NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_equal_the_reference_table),
        cmocka_unit_test(one_value_has_unknown_spread),
        cmocka_unit_test(zero_spread_gives_a_point_interval),
        cmocka_unit_test(values_not_finite_give_no_evidence),
        cmocka_unit_test(arguments_out_of_range_give_no_evidence),
        cmocka_unit_test(log_median_takes_the_slowest_rank),
        cmocka_unit_test(sign_flip_of_24),
        cmocka_unit_test(groups_are_separated_from_what_is_inside_them),
        cmocka_unit_test(pairs_needed_is_the_least),
        cmocka_unit_test(bootstrap_is_deterministic),
        cmocka_unit_test(a_maximum_keeps_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
