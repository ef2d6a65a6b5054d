/* stats_test.c - bench/stats against tables made with scipy and mpmath, and its results for degenerate input. */
#include "bench/stats/median.h"
#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"
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
static double bound_of(const double *x, int n, double alpha)
{
    const pb_sample s = pb_sample_of(x, n);
    return pb_prediction_bound(&s, alpha);
}
static double prediction(const entry *e) { return bound_of(e->a + 1, e->n - 1, e->a[0]); }
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
    X(normal_tail),       X(normal_quantile), X(t_tail),     X(t_quantile),   X(beta_cdf),     X(t_test),
    X(interval_lo),       X(interval_hi),     X(tost),       X(sign_flip),    X(holm),         X(power),
    X(detectable),        X(rate_bound),      X(prediction), X(bootstrap_lo), X(bootstrap_hi), X(bootstrap_mean_lo),
    X(bootstrap_mean_hi),
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
        assert_true(bound_of(d, 12, 0.01) == HUGE_VAL);
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

static void prediction_bound_shrinks_with_more_sessions(void **state)
{
    (void)state;
    double s[20];
    for (int i = 0; i < 20; i++) s[i] = i % 2 ? 1.01 : 0.99;
    assert_true(bound_of(s, PB_MIN_SESSIONS - 1, 0.01) == HUGE_VAL);
    assert_true(bound_of(s, 10, 0.01) < 1.04 && bound_of(s, 10, 0.01) > bound_of(s, 20, 0.01));
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
        cmocka_unit_test(prediction_bound_shrinks_with_more_sessions),
        cmocka_unit_test(pairs_needed_is_the_least),
        cmocka_unit_test(bootstrap_is_deterministic),
        cmocka_unit_test(a_maximum_keeps_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
