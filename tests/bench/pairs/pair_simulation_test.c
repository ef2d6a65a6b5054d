/* pair_simulation_test.c - checks the guarantees of bench/stats and bench/pairs/pair_rule.h by seeded Monte Carlo: how
 * often an interval contains the mean, how often the rule gives a false alarm over both looks, and how often it
 * finds a change of 2 %. Seeds are fixed, so results never vary; each limit is far from both the correct value and
 * the value of a broken rule. */
#include "bench/stats/median.h"
#include "bench/pairs/pair_rule.h"
#include "bench/stats/distributions.h"
#include "tests/test.h"

/* ---- simulated noise of a machine -------------------------------------------------------------- */

typedef struct source {
    uint64_t seed, i;
} source;

static double uniform(source *s) { return pb_uniform(s->seed, s->i++); }

static double gauss(source *s) /* Box-Muller */
{
    double radius = sqrt(-2 * log(1 - uniform(s)));
    return radius * cos(6.283185307179586 * uniform(s));
}

/* Student's t with 3 degrees of freedom, scaled to sd 1. Its fourth moment is infinite. */
static double heavy(source *s)
{
    double z = gauss(s), a = gauss(s), b = gauss(s), c = gauss(s);
    return z / sqrt(a * a + b * b + c * c);
}

/* The noise of a machine, in logarithms of seconds. A process's value is the median of its iterations. */
typedef struct machine {
    const char *name;
    double drift;     /* total change of the level over the first 12 pairs; its sign is random */
    double process;   /* sd between processes; half of the variance is common to all metrics */
    double mode, by;  /* mode: share of processes in the slow mode; by: how much slower they are (logarithm) */
    double wander;    /* correlation of a process with the previous one */
    double iteration; /* sd of an iteration; correlation 0.6 with the previous one */
    double spikes;    /* share of iterations that take about 5 % longer */
    bool heavy_tails;
} machine;

enum { METRICS = 8, ITERATIONS = 12, LOOK1 = 12, LOOK2 = 24 };

static double one_process(const machine *m, double level, source *s)
{
    const double rho = 0.6, fresh = sqrt(1 - rho * rho);
    double x[ITERATIONS], e = m->iteration * gauss(s);
    for (int k = 0; k < ITERATIONS; k++) {
        e = rho * e + fresh * m->iteration * gauss(s);
        x[k] = level + e + (uniform(s) < m->spikes ? -0.05 * log(1 - uniform(s)) : 0);
    }
    return pb_median(x, ITERATIONS);
}

typedef struct session {
    double d[METRICS][LOOK2];
    double level[METRICS]; /* deviation of the previous process, for `wander` */
} session;

/* Draws the values of all metrics for process number t of the session. */
static void process_all(const machine *m, session *z, int t, double ramp, source *s, double *x)
{
    double shared = m->heavy_tails ? heavy(s) : gauss(s), slow = uniform(s) < m->mode ? m->by : 0;
    for (int i = 0; i < METRICS; i++) {
        double own = m->heavy_tails ? heavy(s) : gauss(s), noise = m->process * sqrt(0.5) * (shared + own);
        z->level[i] = t ? m->wander * z->level[i] + sqrt(1 - m->wander * m->wander) * noise : noise;
        x[i] = one_process(m, z->level[i] + slow + ramp * t / (2.0 * LOOK1 - 1), s);
    }
}

/* Draws 24 pairs in random order; metric 0 of the candidate is slower by `effect`. */
static void run_session(const machine *m, double effect, source *s, session *z)
{
    double ramp = uniform(s) < 0.5 ? -m->drift : m->drift, x[2][METRICS];
    for (int n = 0; n < LOOK2; n++) {
        int first = uniform(s) < 0.5;
        for (int k = 0; k < 2; k++) process_all(m, z, 2 * n + k, ramp, s, x[k ^ first]);
        for (int i = 0; i < METRICS; i++) z->d[i][n] = x[1][i] - x[0][i];
        z->d[0][n] += effect;
    }
}

/* ---- verdicts of the rule on simulated sessions -------------------------------------------------- */

typedef struct tally {
    int alarms;       /* sessions with a false REGRESSED */
    int improvements; /* sessions with a false IMPROVED */
    int found;        /* sessions in which metric 0 is REGRESSED */
    int undecided;    /* sessions that end INCONCLUSIVE */
} tally;

/* Applies the rule as bench does: at 12 pairs, and at 24 if the rule asks for more. */
static void judge_session(const session *z, bool slower, tally *t)
{
    static const char *const metric[METRICS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    pb_pair_row row[METRICS];
    pb_pair_result r[METRICS];
    pb_pair_report report = {.more = LOOK1};
    for (int n = LOOK1;; n += report.more) {
        for (int i = 0; i < METRICS; i++)
            row[i] = (pb_pair_row){.key = "s/c", .metric = metric[i], .gating = true, .log_ratio = z->d[i], .n = n};
        CHECK_OK(pb_pair_judge(row, METRICS, &o, r, &report));
        if (!report.more) break;
    }
    t->found += r[0].id == PB_VERDICT_REGRESSED;
    t->improvements += report.count[PB_VERDICT_IMPROVED] > 0;
    t->alarms += report.count[PB_VERDICT_REGRESSED] > (slower && r[0].id == PB_VERDICT_REGRESSED);
    t->undecided += report.count[PB_VERDICT_INCONCLUSIVE] > 0;
}

static tally simulate(const machine *m, double effect, int sessions, uint64_t seed)
{
    tally t = {0};
    source s = {seed, 0};
    for (int k = 0; k < sessions; k++) {
        session z;
        run_session(m, effect, &s, &z);
        judge_session(&z, effect > 0, &t);
    }
    print_message("%-10s %+.1f %%: %d sessions, %d false alarms, %d false improvements, found %d, undecided %d\n",
                  m->name, 100 * expm1(effect), sessions, t.alarms, t.improvements, t.found, t.undecided);
    return t;
}

static const machine locked = {"locked", 0.001, 0.0015, 0, 0, 0, 0.004, 0.01, false};
static const machine unlocked = {"unlocked", 0.010, 0.0030, 0, 0, 0, 0.004, 0.01, false};
static const machine bimodal = {"bimodal", 0.003, 0.0015, 0.3, 0.010, 0, 0.004, 0.01, false};
static const machine noisy = {"noisy", 0.010, 0.0080, 0, 0, 0, 0.010, 0.02, false};
/* Machines so noisy that the minimum effect does not prevent false alarms; only alpha does. */
static const machine wild = {"wild", 0.020, 0.0600, 0, 0, 0, 0.010, 0.02, false};
static const machine wandering = {"wandering", 0.020, 0.0600, 0, 0, 0.7, 0.010, 0.02, false};
static const machine heavy_tailed = {"heavy", 0.020, 0.0600, 0, 0, 0, 0.010, 0.02, true};

/* About 10 of 1000 sessions are expected to have a false alarm; without the joint test of the family about 50, and
 * likewise with alpha 0.05. */
static void false_alarms_stay_below_alpha(void **state)
{
    (void)state;
    const machine *const all[] = {&locked, &unlocked, &bimodal, &noisy, &wild, &wandering, &heavy_tailed};
    int alarms = 0;
    for (int k = 0; k < 7; k++) {
        int sessions = k < 3 ? 200 : 1000;
        tally t = simulate(all[k], 0, sessions, 1000 + (uint64_t)k);
        assert_in_range(t.alarms, 0, k < 3 ? 2 : 20);
        assert_in_range(t.improvements, 0, k < 3 ? 2 : 20);
        if (k < 3) assert_int_equal(t.undecided, 0); /* quiet machines give SAME */
        if (k >= 3) alarms += t.alarms + t.improvements;
    }
    /* a rule that never gives an alarm would be wrong as well */
    assert_in_range(alarms, 30, 110);
}

static void two_percent_is_found(void **state)
{
    (void)state;
    const machine *const all[] = {&locked, &unlocked, &bimodal, &noisy};
    const int least[] = {200, 200, 200, 190};
    for (int k = 0; k < 4; k++) {
        tally t = simulate(all[k], log(1.02), 200, 2000 + (uint64_t)k);
        assert_in_range(t.found, least[k], 200);
        assert_in_range(t.alarms, 0, 2);
        assert_in_range(t.improvements, 0, 2);
    }
}

/* ---- confidence intervals and statistical power -------------------------------------------------- */

/* For each n, computes 20,000 intervals of 95 % from n normal values with mean 1. Between 94.54 and 95.46 % of them (95
 * % +- 3 standard errors) must contain the mean. */
static void intervals_contain_the_mean(void **state)
{
    (void)state;
    const int sizes[] = {2, 3, 5, 12, 24};
    source s = {77, 0};
    for (int k = 0; k < 5; k++) {
        int held = 0, trials = 20000, n = sizes[k];
        double t = pb_t_quantile(0.025, n - 1), x[24];
        for (int r = 0; r < trials; r++) {
            for (int i = 0; i < n; i++) x[i] = 1 + 0.3 * gauss(&s);
            pb_sample sample = pb_sample_of(x, n);
            double half = t * sample.sd / sqrt(n);
            held += sample.mean - half <= 1 && 1 <= sample.mean + half;
            if (r) continue;
            /* The interval is compared with `half` only once per n, because pb_t_interval computes a quantile, which is
             * slow. */
            pb_interval i = pb_t_interval(&sample, 0.05);
            CHECK_NEAR(i.lo, sample.mean - half, 1e-12);
            CHECK_NEAR(i.hi, sample.mean + half, 1e-12);
        }
        assert_in_range(held, 18908, 19092);
    }
}

/* A change of the detectable size is found in 95 % of trials, the power it was computed for. The sign-flip test keeps
 * its false-alarm rate for differences that are not normal: heavy tails, unequal sizes. */
static void power_and_level_are_as_stated(void **state)
{
    (void)state;
    const pb_detector d = {12, 0.014, 0.005, log(1.01)};
    const double effect = pb_detectable(&d, 0.95), t = pb_t_quantile(d.alpha, d.n - 1);
    source s = {78, 0};
    int found = 0, flips = 0, trials = 10000;
    for (int r = 0; r < trials; r++) {
        double x[12], y[8];
        for (int i = 0; i < 12; i++) x[i] = effect + d.sd * gauss(&s);
        for (int i = 0; i < 8; i++) y[i] = (1 + i) * heavy(&s);
        pb_sample sample = pb_sample_of(x, 12);
        found += sample.mean >= d.min_effect && sample.mean / sample.sd * sqrt(12) >= t;
        flips += pb_sign_flip(y, 8, 0) <= 0.05;
    }
    assert_in_range(found, 9435, 9565); /* 9500 +- 3 standard errors */
    /* expected 12/256 of 10,000: at 8 pairs the largest p-value up to 0.05; limits +- 3 standard errors */
    assert_in_range(flips, 403, 535);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(false_alarms_stay_below_alpha),
        cmocka_unit_test(two_percent_is_found),
        cmocka_unit_test(intervals_contain_the_mean),
        cmocka_unit_test(power_and_level_are_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
