/* pair_rule_test.c - tests of the rule of paired comparisons: every verdict and its reason, degenerate values, the
 * joint test of all gating rows, the two looks, and comparisons with few pairs. */
#include "bench/compare/compare_results.h"
#include "bench/pairs/pair_rule.h"
#include "kernels/engine/bind.h"
#include "tests/test.h"

static const pb_compare_opts lenient = {0}, strict = {.strict = true};

/* Deterministic differences around `centre` with an sd of about `spread`: evenly spaced, all distinct, in mixed
 * order. */
static void around(double *d, int n, double centre, double spread)
{
    for (int i = 0; i < n; i++) d[i] = centre + spread * 3.3 * (((i * 7) % n + 0.5) / n - 0.5);
}

enum { MOST = PB_SIGN_FLIP_MAX };
typedef struct expected {
    double centre, spread;
    int n;
    bool higher, not_gating;
    pb_verdict_id id;
    pb_pair_why why;
    int look, more;
    const char *text; /* must be in the explanation */
} expected;

static const expected cases[] = {
    /* decisions after 12 pairs */
    {0.0200, 0.003, 12, 0, 0, PB_VERDICT_REGRESSED, PB_PAIR_SLOWER, 1, 0, "+2.02 % [+1."},
    {-0.020, 0.003, 12, 0, 0, PB_VERDICT_IMPROVED, PB_PAIR_FASTER, 1, 0, "-1.98 % [-2."},
    {0.0002, 0.003, 12, 0, 0, PB_VERDICT_SAME, PB_PAIR_EQUIVALENT, 1, 0, "equivalence p="},
    {0.0200, 0.030, 12, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_UNCLEAR, 1, 12, "; measure 12 more pairs"},
    {0.0098, 0.003, 12, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_SMALL, 1, 12, "significant, but"},
    /* For a metric where higher is better, a decrease is a regression; the text keeps the sign of the change. */
    {-0.020, 0.003, 12, 1, 0, PB_VERDICT_REGRESSED, PB_PAIR_SLOWER, 1, 0, "-1.98 % [-2."},
    {0.0200, 0.003, 12, 1, 0, PB_VERDICT_IMPROVED, PB_PAIR_FASTER, 1, 0, "+2.02 % [+1."},
    /* The second look, at 24 pairs or all pairs, is made if 12 pairs did not decide. */
    {0.0200, 0.022, 24, 0, 0, PB_VERDICT_REGRESSED, PB_PAIR_SLOWER, 2, 0, "from 24 pairs, look 2 of 2"},
    {0.0200, 0.045, 24, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_UNCLEAR, 2, 0, "reduce the noise of the machine"},
    {0.0200, 0.030, 17, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_UNCLEAR, 1, 7, "from 12 pairs, look 1 of 2"},
    {0.0200, 0.003, 24, 0, 0, PB_VERDICT_REGRESSED, PB_PAIR_SLOWER, 1, 0, "from 12 pairs, look 1 of 2"},
    /* a row that does not gate never asks for more pairs */
    {0.0200, 0.030, 12, 0, 1, PB_VERDICT_INCONCLUSIVE, PB_PAIR_UNCLEAR, 1, 0, "not gating"},
    /* fewer pairs than the first look: figures, but no verdict */
    {0.0500, 0.001, 11, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_EARLY, 1, 1,
     "not judged yet: the first look is after 12 pairs"},
    {0.0000, 0.000, 2, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_EARLY, 1, 10, "not judged yet"},
    {0.0500, 0.000, 1, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_EARLY, 1, 11, "not judged yet"},
    {0.0500, 0.000, 0, 0, 0, PB_VERDICT_INCOMPARABLE, PB_PAIR_NO_RATIO, 0, 0, "or there are no pairs"},
    /* no spread, as in counts of bytes */
    {0.0500, 0.000, 12, 0, 0, PB_VERDICT_REGRESSED, PB_PAIR_SLOWER, 1, 0, "+5.13 % [+5.13 %, +5.13 %]"},
    {0.0000, 0.000, 12, 0, 0, PB_VERDICT_SAME, PB_PAIR_EQUIVALENT, 1, 0, "equivalence p="},
    {0.0050, 0.000, 12, 0, 0, PB_VERDICT_SAME, PB_PAIR_EQUIVALENT, 1, 0, "+0.50 %"},
    /* noise without bound */
    {0.0000, 1e307, 12, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_UNCLEAR, 1, 12, "and even 1000 pairs none"},
    {0.0000, 600, 12, 0, 0, PB_VERDICT_INCONCLUSIVE, PB_PAIR_UNCLEAR, 1, 12, "[x "},
};

static void no_figure_is_nan(const pb_pair_result *r)
{
    const double all[] = {r->estimate, r->sd, r->interval.lo, r->interval.hi, r->p_adjusted, r->same_p};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) assert_false(isnan(all[i]));
}

static void judge_one(const pb_pair_row *row, pb_pair_result *r, pb_pair_report *report, char text[PB_PAIR_TEXT])
{
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    CHECK_OK(pb_pair_judge(row, 1, &o, r, report));
    no_figure_is_nan(r);
    assert_false(isnan(pb_pair_sensitivity_of(r, &o, report).detectable));
    pb_pair_explain(r, &o, report, text);
    assert_null(strstr(text, "nan"));
    assert_true(strlen(text) < PB_PAIR_TEXT - 1); /* the text was not truncated */
}

static void every_verdict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const expected *e = &cases[i];
        double d[MOST];
        pb_pair_result r;
        pb_pair_report report;
        char text[PB_PAIR_TEXT];
        around(d, e->n, e->centre, e->spread);
        judge_one(
            &(pb_pair_row){
                .key = "s/c", .metric = "m", .higher = e->higher, .gating = !e->not_gating, .log_ratio = d, .n = e->n},
            &r, &report, text);
        if (r.id != e->id || r.why != e->why || r.look != e->look || report.more != e->more || !strstr(text, e->text))
            fail_msg("case %zu: reason %d, look %d, more %d: %s", i, (int)r.why, r.look, report.more, text);
        int counted = !e->not_gating || e->id == PB_VERDICT_INCOMPARABLE;
        assert_int_equal(report.count[e->id], counted);
    }
}

static void rows_without_values(void **state)
{
    (void)state;
    double d[12];
    around(d, 12, 0.02, 0.003);
    pb_pair_row row = {.key = "s/c", .metric = "m", .gating = true, .log_ratio = d, .n = 12};
    pb_pair_result r;
    pb_pair_report report;
    char text[PB_PAIR_TEXT];
    const double odd[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
    for (int k = 0; k < 3; k++) {
        double keep = d[5];
        d[5] = odd[k];
        judge_one(&row, &r, &report, text);
        assert_true(r.id == PB_VERDICT_INCOMPARABLE && r.bad_pair == 5 && report.more == 0);
        assert_non_null(strstr(text, "pair 5"));
        d[5] = keep;
    }
    row.obstacle = "unit differs";
    judge_one(&row, &r, &report, text);
    assert_int_equal(r.id, PB_VERDICT_INCOMPARABLE);
    assert_string_equal(text, "the sides cannot be compared: unit differs");
    assert_int_equal(pb_compare_exit(report.count, &lenient), PB_EXIT_INCOMPARABLE);
    row.wrong = "a time that is not above zero"; /* a wrong result overrides everything else */
    row.gating = false;
    judge_one(&row, &r, &report, text);
    assert_true(r.id == PB_VERDICT_FAILED && r.why == PB_PAIR_WRONG && report.count[PB_VERDICT_FAILED] == 1);
    assert_string_equal(text, "the candidate's values are wrong: a time that is not above zero");
    assert_int_equal(pb_compare_exit(report.count, &lenient), PB_EXIT_INCOMPARABLE);
    row.wrong = NULL;
    row.gating = true;
    row.absent = true;
    row.log_ratio = NULL;
    row.n = 0;
    judge_one(&row, &r, &report, text);
    assert_true(r.id == PB_VERDICT_MISSING && r.why == PB_PAIR_ABSENT && report.count[PB_VERDICT_MISSING] == 1);
    assert_int_equal(pb_compare_exit(report.count, &lenient), PB_EXIT_INCOMPARABLE);
    row.gating = false;
    judge_one(&row, &r, &report, text);
    assert_true(r.id == PB_VERDICT_MISSING && report.count[PB_VERDICT_MISSING] == 0);
}

static void invalid_arguments_are_refused(void **state)
{
    (void)state;
    double d[25];
    around(d, 25, 0, 0.01);
    pb_pair_opts o = PB_PAIR_DEFAULTS;
    pb_pair_result r[3];
    pb_pair_report report = {.more = -7};
    pb_pair_row rows[3] = {{.key = "s/c", .metric = "m", .log_ratio = d, .n = 12},
                           {.key = "s/c", .metric = "other", .log_ratio = d, .n = 12},
                           {.key = "s/c", .metric = "m", .log_ratio = d, .n = 12}};
    CHECK_FAILS(pb_pair_judge(rows, 3, &o, r, &report), PB_EINVAL, "s/c: the metric m occurs twice");
    rows[0].n = 25;
    CHECK_FAILS(pb_pair_judge(rows, 2, &o, r, &report), PB_EINVAL, "25 pairs, but the last look is after 24");
    assert_int_equal(report.more, -7);
    rows[0].n = 12;
#define REFUSED(text, ...)                                                                                             \
    do {                                                                                                               \
        o = PB_PAIR_DEFAULTS;                                                                                          \
        __VA_ARGS__;                                                                                                   \
        CHECK_FAILS(pb_pair_judge(rows, 2, &o, r, &report), PB_EINVAL, text);                                          \
    } while (0)
    REFUSED("looks after 12 and 25", o.look[1] = 25);
    REFUSED("looks after 12 and 8", o.look[1] = 8);
    REFUSED("looks after 1 and 24", o.look[0] = 1);
    REFUSED("alpha=0.5", o.alpha = 0.5);
    REFUSED("alpha=nan", o.alpha = (double)NAN);
    REFUSED("alpha_same=0", o.alpha_same = 0);
    REFUSED("min_effect=-0.01", o.min_effect = -0.01);
    REFUSED("power=1", o.power = 1);
    REFUSED("must_find=-1", o.must_find = -1);
    o = PB_PAIR_DEFAULTS;
    CHECK_OK(pb_pair_judge(rows, 2, &o, r, &report));
    CHECK_OK(pb_pair_judge(NULL, 0, &o, NULL, &report));
    assert_true(report.more == 0 && report.gating == 0 && pb_compare_exit(report.count, &strict) == PB_EXIT_OK);
}

enum { FAMILY = 40 };
typedef struct family {
    double d[FAMILY][MOST];
    char metric[FAMILY][8];
    pb_pair_row row[FAMILY];
    pb_pair_result r[FAMILY];
    pb_pair_report report;
} family;

/* Makes n rows with equal data and no difference. */
static void make_family(family *f, int n, int pairs)
{
    for (int i = 0; i < n; i++) {
        around(f->d[i], pairs, 0, 0.003);
        snprintf(f->metric[i], sizeof f->metric[i], "m%d", i);
        f->row[i] =
            (pb_pair_row){.key = "s/c", .metric = f->metric[i], .gating = true, .log_ratio = f->d[i], .n = pairs};
    }
}

/* Fills n rows with independent noise of standard deviation `sd`, so that different choices of signs give a large mean
 * in different rows. */
static void make_noise(family *f, int n, int pairs, double sd)
{
    make_family(f, n, pairs);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < pairs; k++)
            f->d[i][k] = sd * 3.46 * (pb_uniform(5, (uint64_t)(i * MOST + k)) - 0.5); /* uniform, of this sd */
}

/* A row that is significant when tested alone is not significant when tested jointly with 39 others. */
static void the_family_raises_the_threshold(void **state)
{
    (void)state;
    static family f;
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    make_noise(&f, FAMILY, 12, 0.02);
    around(f.d[0], 12, 0.02, 0.0175);
    CHECK_OK(pb_pair_judge(f.row, 1, &o, f.r, &f.report));
    assert_true(f.r[0].id == PB_VERDICT_REGRESSED && f.report.gating == 1);
    const double alone = f.r[0].p_adjusted, detectable = pb_pair_sensitivity_of(&f.r[0], &o, &f.report).detectable;
    CHECK_NEAR(alone, 2 * pb_sign_flip(f.d[0], 12, 0), 1e-12); /* a family of one is the sign-flip test */
    CHECK_OK(pb_pair_judge(f.row, FAMILY, &o, f.r, &f.report));
    assert_true(f.r[0].id == PB_VERDICT_INCONCLUSIVE && f.report.gating == FAMILY && f.report.more == 12);
    assert_true(f.r[0].p_adjusted > 5 * alone);
    assert_true(pb_pair_sensitivity_of(&f.r[0], &o, &f.report).detectable > 1.2 * detectable);
    /* rows without figures and rows that do not gate are not in the family */
    for (int i = 1; i < FAMILY; i++) f.row[i].gating = i % 2, f.row[i].absent = i % 2;
    CHECK_OK(pb_pair_judge(f.row, FAMILY, &o, f.r, &f.report));
    CHECK_NEAR(f.r[0].p_adjusted, alone, 1e-12);
}

/* If all rows have equal data, testing them jointly needs no stricter threshold than one row: flipping the sign of a
 * pair changes all rows alike. */
static void equal_rows_cost_nothing(void **state)
{
    (void)state;
    static family f;
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    make_family(&f, FAMILY, 12);
    for (int i = 0; i < FAMILY; i++) around(f.d[i], 12, 0.02, 0.0175);
    CHECK_OK(pb_pair_judge(f.row, FAMILY, &o, f.r, &f.report));
    assert_int_equal(f.report.count[PB_VERDICT_REGRESSED], FAMILY);
    CHECK_NEAR(f.r[FAMILY - 1].p_adjusted, 2 * pb_sign_flip(f.d[0], 12, 0), 1e-12);
}

/* Step-down: a row that is REGRESSED leaves the family, so the next row has a lower threshold. At the second look, rows
 * that were REGRESSED at the first have left; rows that were SAME stay. */
static void rejected_rows_leave_the_family(void **state)
{
    (void)state;
    static family f;
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    make_noise(&f, 4, 24, 0.003);
    around(f.d[0], 24, 0.03, 0.003);
    around(f.d[1], 24, 0.02, 0.04);
    around(f.d[2], 24, -0.03, 0.003);
    around(f.d[3], 24, 0.0002, 0.003);
    CHECK_OK(pb_pair_judge(f.row, 4, &o, f.r, &f.report));
    assert_true(f.r[0].id == PB_VERDICT_REGRESSED && f.r[0].look == 1 && f.r[0].pairs == 12);
    assert_true(f.r[2].id == PB_VERDICT_IMPROVED && f.r[2].look == 1);
    assert_true(f.r[3].id == PB_VERDICT_SAME && f.r[3].look == 1);
    assert_true(f.r[1].id == PB_VERDICT_INCONCLUSIVE && f.r[1].look == 2 && f.r[1].pairs == 24);
    assert_int_equal(pb_compare_exit(f.report.count, &strict), PB_EXIT_REGRESSION);
    assert_int_equal(f.report.more, 0); /* 24 is the maximum */
    const pb_differences left[] = {{f.d[1], 24}, {f.d[2], 24}, {f.d[3], 24}};
    double p[3], t;
    CHECK_OK(pb_joint_flip(left, 3, 0.005, p, &t));
    CHECK_NEAR(f.r[1].p_adjusted, 2 * p[0], 1e-12); /* two looks, and three of four rows */
    f.row[0].gating = false;
    CHECK_OK(pb_pair_judge(f.row, 4, &o, f.r, &f.report));
    assert_int_equal(pb_compare_exit(f.report.count, &strict), PB_EXIT_INCONCLUSIVE);
    assert_int_equal(pb_compare_exit(f.report.count, &lenient), PB_EXIT_OK);
}

/* The p-value of n pairs is at least 2^-n for each look: seven pairs can find a change if one look is planned, eight if
 * two are. */
static void few_pairs_find_nothing(void **state)
{
    (void)state;
    static family f;
    const struct {
        int look[2];
        pb_verdict_id id;
        pb_pair_why why;
        int least;
    } plans[] = {{{7, 7}, PB_VERDICT_REGRESSED, PB_PAIR_SLOWER, 7},
                 {{6, 6}, PB_VERDICT_INCONCLUSIVE, PB_PAIR_FEW, 7},
                 {{7, 14}, PB_VERDICT_INCONCLUSIVE, PB_PAIR_FEW, 8},
                 {{8, 16}, PB_VERDICT_REGRESSED, PB_PAIR_SLOWER, 8},
                 {{2, 2}, PB_VERDICT_INCONCLUSIVE, PB_PAIR_FEW, 7}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        pb_pair_opts o = PB_PAIR_DEFAULTS;
        memcpy(o.look, plans[i].look, sizeof o.look);
        make_noise(&f, 10, o.look[0], 0.003);
        around(f.d[4], o.look[0], 0.7, 0.02); /* twice as slow */
        around(f.d[5], o.look[0], 0, 0);      /* two equal pairs are not enough for SAME: 2^-2 is above 0.05 */
        CHECK_OK(pb_pair_judge(f.row, 10, &o, f.r, &f.report));
        assert_int_equal(f.r[4].id, plans[i].id);
        assert_int_equal(f.r[4].why, plans[i].why);
        assert_int_equal(f.r[5].id == PB_VERDICT_SAME, o.look[0] > 2);
        assert_int_equal(pb_pair_least(&o), plans[i].least);
        const double detectable = pb_pair_sensitivity_of(&f.r[4], &o, &f.report).detectable;
        assert_int_equal(isinf(detectable), plans[i].why == PB_PAIR_FEW);
    }
}

/* A gating row is blind if its noise could hide a change of the size --must-find. Its verdict does not matter, except
 * that a row in which a change was found is not blind. */
static void rows_that_hide_a_change_are_counted(void **state)
{
    (void)state;
    static family f;
    pb_pair_opts o = PB_PAIR_DEFAULTS;
    make_noise(&f, 4, 24, 0.003);
    around(f.d[1], 24, 0, 0.2);
    around(f.d[2], 24, 0.9, 0.2);
    CHECK_OK(pb_pair_judge(f.row, 4, &o, f.r, &f.report));
    assert_int_equal(f.report.blind, 0);
    o.must_find = 0.1;
    CHECK_OK(pb_pair_judge(f.row, 4, &o, f.r, &f.report));
    assert_true(f.report.blind == 1 && f.r[1].blind && !f.r[2].blind && f.r[2].id == PB_VERDICT_REGRESSED);
    char text[PB_PAIR_TEXT];
    pb_pair_explain(&f.r[1], &o, &f.report, text);
    assert_non_null(strstr(text, "a change of 10 % could be missed (--must-find)"));
    o.must_find = 2;
    CHECK_OK(pb_pair_judge(f.row, 4, &o, f.r, &f.report));
    assert_int_equal(f.report.blind, 0);
    f.row[1].gating = false;
    o.must_find = 0.1;
    CHECK_OK(pb_pair_judge(f.row, 4, &o, f.r, &f.report));
    assert_int_equal(f.report.blind, 0);
}

/* A row may have a minimum effect of its own. */
static void a_row_has_its_own_minimum_effect(void **state)
{
    (void)state;
    static family f;
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    make_family(&f, 2, 12);
    for (int i = 0; i < 2; i++) around(f.d[i], 12, 0.015, 0.002);
    f.row[1].min_effect = 0.02;
    CHECK_OK(pb_pair_judge(f.row, 2, &o, f.r, &f.report));
    assert_int_equal(f.r[0].id, PB_VERDICT_REGRESSED);
    assert_int_equal(f.r[1].id, PB_VERDICT_SAME);
}

/* With only one look, at 12 pairs, that look uses all of alpha. */
static void one_look_uses_all_of_alpha(void **state)
{
    (void)state;
    double d[12];
    pb_pair_result r;
    pb_pair_report report;
    around(d, 12, 0.02, 0.0175);
    const double p = pb_sign_flip(d, 12, 0);
    const pb_pair_row row = {.key = "s/c", .metric = "m", .gating = true, .log_ratio = d, .n = 12};
    pb_pair_opts o = PB_PAIR_DEFAULTS;
    CHECK_OK(pb_pair_judge(&row, 1, &o, &r, &report));
    CHECK_NEAR(r.p_adjusted, 2 * p, 1e-15);
    pb_interval two = r.interval;
    o.look[1] = 12;
    CHECK_OK(pb_pair_judge(&row, 1, &o, &r, &report));
    CHECK_NEAR(r.p_adjusted, p, 1e-15);
    assert_true(report.looks == 1 && r.interval.lo > two.lo && r.interval.hi < two.hi);
}

static void a_gate_without_a_row_is_found(void **state)
{
    (void)state;
    static pb_gates gates;
    gates = (pb_gates){.n = 4,
                       .gate = {{.suite = "s", .metric = "m", .gating = true},
                                {.suite = "s", .metric = "forgotten", .gating = true},
                                {.suite = "s", .metric = "shown", .gating = false},
                                {.suite = "not_run", .metric = "m", .gating = true}}};
    const pb_pair_row rows[] = {{.key = "s/c?a=1", .metric = "m"}, {.key = "s/c?a=2", .metric = "m"}};
    int at = 0;
    const pb_gate *g = pb_pair_unmatched(&gates, rows, 2, &at);
    assert_non_null(g);
    assert_string_equal(g->metric, "forgotten");
    assert_null(pb_pair_unmatched(&gates, rows, 2, &at));
    at = 0;
    assert_null(pb_pair_unmatched(&gates, NULL, 0, &at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verdict),
        cmocka_unit_test(rows_without_values),
        cmocka_unit_test(invalid_arguments_are_refused),
        cmocka_unit_test(the_family_raises_the_threshold),
        cmocka_unit_test(equal_rows_cost_nothing),
        cmocka_unit_test(rejected_rows_leave_the_family),
        cmocka_unit_test(few_pairs_find_nothing),
        cmocka_unit_test(rows_that_hide_a_change_are_counted),
        cmocka_unit_test(a_row_has_its_own_minimum_effect),
        cmocka_unit_test(one_look_uses_all_of_alpha),
        cmocka_unit_test(a_gate_without_a_row_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
