/* measured_noise_test.c - scripted times of known distributions go through the measurement loop: the samples equal the
 * script bit for bit, stopping at a time biases the median as theory predicts, and a warm-up that is too short is
 * reported. */
#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"
#include "bench/stats/trend.h"
#include "tests/bench/measure/measured.h"

/* ---- samples of known distributions ------------------------------------------------------------- */

enum { N = 1000, WARM = 3, LENGTH = WARM + N };
static const double unit = SCRIPTED_UNIT;
static const double level = 1.0 / 64;

typedef struct noise {
    uint64_t seed, i;
    double before; /* the previous value, for correlated noise */
} noise;

static double uniform(noise *s) { return pb_uniform(s->seed, s->i++); }
static double gauss(noise *s) { return pb_normal_quantile(1 - (uniform(s) + 0x1p-60)); }

/* Distributions of the scripted times, in units of `level`; k counts the calls, from the first warm-up call. */
static double constant(noise *s, int k) { return (void)s, (void)k, 1; }
static double normal(noise *s, int k) { return (void)k, 1 + 0.1 * gauss(s); }
static double exponential(noise *s, int k) { return (void)k, -log(1 - uniform(s)); }
static double bimodal(noise *s, int k) { return (void)k, (uniform(s) < 0.5 ? 1 : 2) + 0.01 * gauss(s); }
static double correlated(noise *s, int k)
{
    (void)k;
    s->before = 0.9 * s->before + sqrt(1 - 0.81) * gauss(s);
    return 1 + 0.05 * s->before;
}
static double warming(noise *s, int k) { return 1 + 0.5 * (LENGTH - k) / LENGTH + 0.01 * gauss(s); }
static double spiked(noise *s, int k) { return (void)k, 1 + 0.01 * gauss(s) + (uniform(s) < 0.01 ? 1000 : 0); }

typedef double (*draw)(noise *s, int k);

static void write_script(draw d, uint64_t seed, double *script, int n)
{
    noise s = {.seed = seed};
    for (int k = 0; k < n; k++) {
        const double x = floor(d(&s, k) * level / unit) * unit;
        script[k] = x >= unit ? x : unit;
    }
}

static const struct {
    const char *name;
    draw draw;
    double mean, sd, median; /* in units of `level`; sd 0: not known in closed form */
} known[] = {
    {"constant", constant, 1, 0, 1},
    {"normal", normal, 1, 0.1, 1},
    {"exponential", exponential, 1, 1, 0.693147},
    {"bimodal", bimodal, 1.5, 0.5001, 1.5},
    {"correlated", correlated, 1, 0.05, 1},
    {"warming", warming, 1.25, 0.1447, 1.25},
    {"spiked", spiked, 11, 99.5, 1},
};
enum { KNOWN = sizeof known / sizeof *known };

static void what_is_scripted_is_measured(void **state)
{
    (void)state;
    for (int k = 0; k < KNOWN; k++) {
        double script[LENGTH];
        write_script(known[k].draw, 7 + (uint64_t)k, script, LENGTH);
        for (int odd = 0; odd < 2; odd++) {
            pb_measure_opts o = {.warmup = WARM, .min_samples = N - odd, .max_samples = N - odd};
            scripted cpu = {.script = script},
                     gpu = {.script = script, .async = true, .enqueue = 8 * unit, .marking = 2 * unit};
            pb_timing t = measure(&cpu, &o);
            same_to_the_bit(known[k].name, &t, script + WARM, N - odd);
            CHECK_NEAR(t.host_median, t.median, 0); /* on a CPU the host does the work */
            o.flush = o.queued = true;
            t = measure(&gpu, &o);
            same_to_the_bit(known[k].name, &t, script + WARM, N - odd);
            /* the host's time for one call and two event records does not depend on the work */
            CHECK_NEAR(t.host_median, 12 * unit, 0);
        }
    }
}

/* Checks the scripts themselves: mean and sd within 4 standard errors (for the correlated ones the variance of the
 * mean is (1+0.9)/(1-0.9) = 19 times larger). The median is checked where the density has no gap. */
static void the_distributions_are_the_known_ones(void **state)
{
    (void)state;
    for (int k = 0; k < KNOWN; k++) {
        double script[LENGTH];
        write_script(known[k].draw, 7 + (uint64_t)k, script, LENGTH);
        scripted s = {.script = script};
        pb_timing t = measure(&s, &(pb_measure_opts){.warmup = WARM, .min_samples = N, .max_samples = N});
        const pb_sample got = pb_sample_of(t.seconds, t.n);
        const double sd = known[k].sd * level, wide = known[k].draw == correlated ? 19 : 1;
        CHECK_NEAR(got.mean, known[k].mean * level, 4 * sd * sqrt(wide / N) + unit);
        CHECK_NEAR(got.sd, sd, (known[k].draw == spiked ? 0.6 : 0.15 * sqrt(wide)) * sd + unit);
        if (known[k].draw != bimodal)
            CHECK_NEAR(t.median, known[k].median * level,
                       (known[k].draw == spiked ? 0.01 : 5 * known[k].sd * sqrt(wide / N)) * level + unit);
    }
}

/* ---- the bias of stopping at a time ------------------------------------------------------------------ */

/* Averages the median and the last sample over 4000 measurements of freshly drawn times. */
static void over_many(draw d, const pb_measure_opts *o, double *median, double *last)
{
    enum { TIMES = 4000, LONGEST = 128 };
    double length[LONGEST];
    *median = *last = 0;
    for (int k = 0; k < TIMES; k++) {
        write_script(d, 1000 + (uint64_t)k, length, o->warmup + o->max_samples);
        scripted s = {.script = length};
        const pb_timing t = measure(&s, o);
        *median += t.median / level / TIMES;
        *last += t.seconds[t.n - 1] / level / TIMES;
    }
}

/* Exponential times with mean 1. With a fixed number of samples there is no bias: the mean median of 5 is
 * 1/5+1/4+1/3, the mean of the last sample is 1. Stopping at a time T is biased: the sample that crosses T has mean
 * 2 - e^-T (inspection paradox; Feller II, I.4), and the median of n samples is too high by about 1/n. With a spread
 * of 10 % the bias vanishes. */
static void stopping_at_a_time_prefers_long_last_samples(void **state)
{
    double five, fixed, median, last;
    (void)state;
    over_many(exponential, &(pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 5}, &five, &last);
    CHECK_NEAR(five, 1.0 / 5 + 1.0 / 4 + 1.0 / 3, 0.03);
    CHECK_NEAR(last, 1, 0.06);
    pb_measure_opts timed = {.warmup = 1, .min_samples = 1, .max_samples = 24, .min_time = 4 * level};
    over_many(exponential, &timed, &median, &last);
    CHECK_NEAR(last, 2 - exp(-4), 0.08);
    assert_true(median > 1.2 * five);
    over_many(normal, &timed, &median, &last);
    CHECK_NEAR(median, 1, 0.005);
    over_many(exponential, &(pb_measure_opts){.warmup = 1, .min_samples = 69, .max_samples = 69}, &fixed, &last);
    timed.max_samples = 120, timed.min_time = 68 * level;
    over_many(exponential, &timed, &median, &last);
    CHECK_NEAR(median / fixed, 1 + 1.0 / 69, 0.007);
}

/* ---- a warm-up that was too short ------------------------------------------------------------------ */

static double trend_of(draw d, uint64_t seed, int n)
{
    double times[LENGTH];
    write_script(d, seed, times, WARM + n);
    return pb_trend(times + WARM, n);
}

static double cooling(noise *s, int k) { return 2 - warming(s, k); }
static double hardly_warming(noise *s, int k) { return 1 + 0.003 * (LENGTH - k) / LENGTH + 1e-4 * gauss(s); }

static void a_trend_is_found_and_noise_is_none(void **state)
{
    static const draw still[] = {constant, normal, exponential, bimodal, spiked};
    (void)state;
    /* The first and last third of the samples have the medians 1.5 - 1/12 and 1 + 1/12, the values at their middles. */
    CHECK_NEAR(trend_of(warming, 1, N), (1.5 - 0.5 / 6) / (1 + 0.5 / 6) - 1, 0.01);
    assert_true(trend_of(cooling, 1, N) == 0);
    assert_true(trend_of(hardly_warming, 1, N) == 0);
    for (int d = 0; d < 5; d++) { /* a false trend is allowed in about 1 % of processes */
        int found = 0;
        for (uint64_t seed = 0; seed < 1000; seed++) found += trend_of(still[d], seed, 60) > 0;
        if (found > 20) fail_msg("distribution %d: a trend in %d of 1000", d, found);
    }
    const double steep[15] = {3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1};
    CHECK_NEAR(pb_trend(steep, 15), 2, 0);
    /* fewer than 15 samples are too few to tell a trend from chance */
    assert_true(pb_trend(steep, 14) == 0);
    assert_true(pb_trend(steep, 0) == 0);
}

static void the_note_carries_the_trend(void **state)
{
    char text[128];
    (void)state;
    pb_trend_note("", 0.0125, text, sizeof text);
    assert_string_equal(text, "warm-up suspect: first third 1.2 % slower than the last");
    CHECK_NEAR(pb_trend_of_note(text), 0.012, 1e-12);
    pb_trend_note("cold", 2, text, sizeof text);
    assert_string_equal(text, "cold; warm-up suspect: first third 2e+02 % slower than the last");
    CHECK_NEAR(pb_trend_of_note(text), 2, 1e-12);
    static const char *const none[] = {"", "cold", "warm-up suspect: first third ",
                                       "warm-up suspect: first third nan % slower than the last",
                                       "warm-up suspect: first third -3 % slower than the last"};
    for (int i = 0; i < 5; i++) assert_true(pb_trend_of_note(none[i]) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_scripted_is_measured),
        cmocka_unit_test(the_distributions_are_the_known_ones),
        cmocka_unit_test(stopping_at_a_time_prefers_long_last_samples),
        cmocka_unit_test(a_trend_is_found_and_noise_is_none),
        cmocka_unit_test(the_note_carries_the_trend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
