/* pair_family_test.c - the joint sign flips of pair_rule.h on noise of many kinds, in families of 10 to 500
 * gating rows: how often a comparison of equal programs has any REGRESSED row, and how often a change of one row is
 * found, compared with the t test under Holm's adjustment and a sign-flip test per row. Seeds are fixed. SESSIONS
 * (the only argument) multiplies the number of comparisons; docs/statistics.md has the table for 15. */
#include "bench/pairs/pair_rule.h"
#include "kernels/engine/bind.h"
#include "tests/test.h"

enum { LOOK1 = 12, LOOK2 = 24, MOST_ROWS = 500 };

typedef struct source {
    uint64_t seed, i;
} source;

static double uniform(source *s) { return pb_uniform(s->seed, s->i++); }

static double gauss(source *s)
{
    double radius = sqrt(-2 * log(1 - uniform(s)));
    return radius * cos(6.283185307179586 * uniform(s));
}

/* ---- noise: the differences of one pair, d[0..m) --------------------------------------------------- */

static void normal(source *s, int m, double *d)
{
    for (int r = 0; r < m; r++) d[r] = 0.1 * gauss(s);
}

static void heavy(source *s, int m, double *d) /* Student's t with 3 degrees of freedom */
{
    for (int r = 0; r < m; r++) {
        const double a = gauss(s), b = gauss(s), c = gauss(s);
        d[r] = 0.1 * gauss(s) / sqrt((a * a + b * b + c * c) / 3);
    }
}

static void wandering(source *s, int m,
                      double *d) /* a level that all rows share, correlation 0.9 with the last process */
{
    static double level;
    double two[2];
    for (int k = 0; k < 2; k++) two[k] = level = 0.9 * level + sqrt(1 - 0.81) * gauss(s);
    const double sign = uniform(s) < 0.5 ? 1 : -1;
    for (int r = 0; r < m; r++) d[r] = 0.1 * sign * (two[0] - two[1]) + 0.01 * gauss(s);
}

static void ordered(source *s, int m, double *d) /* the second process of a pair is 3 % slower */
{
    const double effect = uniform(s) < 0.5 ? 0.03 : -0.03;
    for (int r = 0; r < m; r++) d[r] = effect + 0.014 * gauss(s);
}

static void spikes(source *s, int m, double *d) /* a tenth of the processes take half as long again */
{
    for (int r = 0; r < m; r++) d[r] = 0.5 * ((uniform(s) < 0.1) - (uniform(s) < 0.1)) + 0.01 * gauss(s);
}

static void shared_modes(source *s, int m, double *d) /* half of the processes are 20 % slower, in all rows */
{
    const double mode = 0.2 * ((uniform(s) < 0.5) - (uniform(s) < 0.5));
    for (int r = 0; r < m; r++) d[r] = mode + 0.01 * gauss(s);
}

static void own_modes(source *s, int m, double *d) /* the same, in each row by itself */
{
    for (int r = 0; r < m; r++) d[r] = 0.2 * ((uniform(s) < 0.5) - (uniform(s) < 0.5)) + 0.002 * gauss(s);
}

static void antithetic(source *s, int m, double *d) /* in each row one process of a pair is fast and the other slow */
{
    for (int r = 0; r < m; r++) d[r] = uniform(s) < 0.5 ? 0.1 : -0.1;
}

static void nearly_antithetic(source *s, int m, double *d)
{
    for (int r = 0; r < m; r++) d[r] = (uniform(s) < 0.5 ? 0.1 : -0.1) * (1 + 0.02 * gauss(s));
}

typedef struct noise {
    const char *name;
    void (*pair)(source *s, int m, double *d);
    double effect; /* the change whose detection is counted */
} noise;
static const noise kinds[] = {
    {"normal", normal, 0.1},
    {"Student's t, 3 df", heavy, 0.15},
    {"level wanders", wandering, 0.04},
    {"order effect 3 %", ordered, 0.03},
    {"spikes", spikes, 0.2},
    {"two modes, shared", shared_modes, 0.12},
    {"two modes, per row", own_modes, 0.15},
    {"antithetic", antithetic, 0.14},
    {"antithetic, jitter", nearly_antithetic, 0.14},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- the rule, and the one to compare it with ------------------------------------------------------ */

typedef struct family {
    double d[MOST_ROWS][LOOK2];
    char metric[MOST_ROWS][8];
    pb_pair_row row[MOST_ROWS];
    pb_pair_result result[MOST_ROWS];
    double p[MOST_ROWS], adjusted[MOST_ROWS];
} family;

static void draw(family *f, const noise *n, int m, double effect, source *s)
{
    double d[MOST_ROWS];
    for (int i = 0; i < LOOK2; i++) {
        n->pair(s, m, d);
        d[m / 2] += effect;
        for (int r = 0; r < m; r++) f->d[r][i] = d[r];
    }
}

/* Returns the number of REGRESSED rows; *found: the middle row is one of them. */
static int judge(family *f, int m, bool *found)
{
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    pb_pair_report report;
    for (int r = 0; r < m; r++) {
        snprintf(f->metric[r], sizeof f->metric[r], "m%d", r);
        f->row[r] =
            (pb_pair_row){.key = "s/c", .metric = f->metric[r], .gating = true, .log_ratio = f->d[r], .n = LOOK2};
    }
    CHECK_OK(pb_pair_judge(f->row, (size_t)m, &o, f->result, &report));
    *found = f->result[m / 2].id == PB_VERDICT_REGRESSED;
    return report.count[PB_VERDICT_REGRESSED];
}

/* Tests each row by itself: Student's t under Holm's adjustment, and the row's own sign flips. Half of alpha at each of
 * the two looks. True if the middle row is found. */
static bool found_by_holm(family *f, int m)
{
    for (int n = LOOK1; n <= LOOK2; n += LOOK1) {
        for (int r = 0; r < m; r++) {
            const pb_sample s = pb_sample_of(f->d[r], n);
            f->p[r] = pb_t_test(&s, 0);
        }
        CHECK_OK(pb_holm(f->p, (size_t)m, (size_t)m, f->adjusted));
        const bool large = pb_sample_of(f->d[m / 2], n).mean >= log(1.01);
        if (large && 2 * f->adjusted[m / 2] <= 0.01 && 2 * pb_sign_flip(f->d[m / 2], n, 0) <= 0.01) return true;
    }
    return false;
}

typedef struct tally {
    int sessions, alarms, found, by_holm;
} tally;

static tally simulate(family *f, const noise *n, int m, int sessions, uint64_t seed)
{
    tally t = {.sessions = sessions};
    source s = {seed, 0};
    bool found;
    for (int k = 0; k < sessions; k++) {
        draw(f, n, m, 0, &s);
        t.alarms += judge(f, m, &found) > 0;
        draw(f, n, m, n->effect, &s);
        judge(f, m, &found);
        t.found += found;
        t.by_holm += found_by_holm(f, m);
    }
    return t;
}

/* ---- the test ------------------------------------------------------------------------------------- */

static int scale = 1;

/* The largest number of alarms that has a probability of 1e-4 at a rate of 1 %. */
static int most_alarms(int sessions)
{
    int k = 0;
    while (pb_rate_bound(k, sessions, 1e-4) < 0.01) k++;
    return k;
}

/* At most one comparison in a hundred has an alarm, but for the error of the simulation. */
static void a_family_has_one_alarm_in_a_hundred_at_most(void **state)
{
    static family f;
    static const int rows[] = {10, 60, 135, 500}, sessions[] = {60, 20, 10, 3};
    int found = 0, by_holm = 0, alarms = 0, comparisons = 0;
    (void)state;
    print_message("| noise | rows | comparisons | false alarms | found | found by t and Holm |\n");
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 4; i++) {
            const tally t = simulate(&f, &kinds[k], rows[i], scale * sessions[i], (uint64_t)(100 * k + i));
            print_message("| %s | %d | %d | %.2f %% | %.0f %% | %.0f %% |\n", kinds[k].name, rows[i], t.sessions,
                          100.0 * t.alarms / t.sessions, 100.0 * t.found / t.sessions, 100.0 * t.by_holm / t.sessions);
            assert_in_range(t.alarms, 0, most_alarms(t.sessions));
            found += t.found, by_holm += t.by_holm, alarms += t.alarms, comparisons += t.sessions;
        }
    print_message("all: %d of %d with an alarm; found %d, by t and Holm %d\n", alarms, comparisons, found, by_holm);
    assert_in_range(alarms, 1, comparisons / 100 + 3 * (int)sqrt(comparisons / 100.0));
    assert_true(found >= by_holm);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_family_has_one_alarm_in_a_hundred_at_most)};
    if (argc > 1) scale = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
