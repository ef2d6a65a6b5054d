/* pair_hidden_test.c - tests of the reason HIDDEN of pair_rule.h: a change that is not significant only because other
 * rows changed in the opposite direction. */
#include <string.h>

#include "bench/compare/compare_results.h"
#include "bench/pairs/pair_rule.h"
#include "kernels/engine/bind.h"
#include "tests/test.h"

enum { ROWS = 10, PAIRS = 7, MOST = 24 };
static const pb_compare_opts lenient = {0}, strict = {.strict = true};

typedef struct family {
    double d[ROWS][MOST];
    char metric[ROWS][8];
    pb_pair_row row[ROWS];
    pb_pair_result r[ROWS];
    pb_pair_report report;
} family;

/* Makes rows of which the first became faster by 30 % and the second slower by 5 %, with a noise of 0.1 %; the others
 * have noise of standard deviation `sd`. */
static void make(family *f, int pairs, double sd, uint64_t seed)
{
    for (int i = 0; i < ROWS; i++) {
        const double centre = i == 0 ? log(0.7) : i == 1 ? log(1.05) : 0, spread = i < 2 ? 0.001 : sd;
        for (int k = 0; k < pairs; k++)
            f->d[i][k] = centre + spread * 3.46 * (pb_uniform(seed, (uint64_t)(i * MOST + k)) - 0.5);
        snprintf(f->metric[i], sizeof f->metric[i], "m%d", i);
        f->row[i] =
            (pb_pair_row){.key = "s/c", .metric = f->metric[i], .gating = true, .log_ratio = f->d[i], .n = pairs};
    }
}

static pb_pair_opts seven(void)
{
    pb_pair_opts o = PB_PAIR_DEFAULTS;
    o.look[0] = o.look[1] = PAIRS;
    return o;
}

/* Only one of the 2^7 choices of signs may reach the observed statistic (0.01 * 128 = 1.28). If all signs are flipped,
 * the faster row has the largest statistic, so every other row has p = 2/128 at least. */
static void a_faster_row_hides_a_slower_one(void **state)
{
    static family f;
    const pb_pair_opts o = seven();
    char text[PB_PAIR_TEXT];
    (void)state;
    make(&f, PAIRS, 0.001, 1);
    CHECK_NEAR(pb_sign_flip(f.d[1], PAIRS, 0), 1.0 / 128, 1e-12);
    CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
    assert_true(f.r[0].id == PB_VERDICT_IMPROVED);
    assert_true(f.r[1].id == PB_VERDICT_INCONCLUSIVE && f.r[1].why == PB_PAIR_HIDDEN);
    CHECK_NEAR(f.r[1].p_adjusted, 2.0 / 128, 1e-12);
    assert_int_equal(f.report.hidden, 1);
    pb_pair_explain(&f.r[1], &o, &f.report, text);
    assert_non_null(
        strstr(text, "HIDDEN: significant if the rows that changed in the opposite direction are left out"));
    assert_non_null(strstr(text, "; plan more pairs (--pairs, --max-pairs), or measure this row alone (--filter)"));
    assert_int_equal(pb_compare_exit(f.report.count, &lenient), PB_EXIT_OK);
    assert_int_equal(pb_compare_exit(f.report.count, &strict), PB_EXIT_INCONCLUSIVE);
    CHECK_OK(pb_pair_judge(f.row + 1, ROWS - 1, &o, f.r, &f.report)); /* without the faster row */
    assert_true(f.r[0].id == PB_VERDICT_REGRESSED && f.report.hidden == 0);
}

/* In the other direction: a row that became much slower hides one that became faster. */
static void a_slower_row_hides_a_faster_one(void **state)
{
    static family f;
    const pb_pair_opts o = seven();
    (void)state;
    make(&f, PAIRS, 0.001, 1);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < PAIRS; k++) f.d[i][k] = -f.d[i][k];
    CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
    assert_true(f.r[0].id == PB_VERDICT_REGRESSED);
    assert_true(f.r[1].id == PB_VERDICT_INCONCLUSIVE && f.r[1].why == PB_PAIR_HIDDEN && f.report.hidden == 1);
}

/* A hidden change is one that --must-find did not exclude, however little the noise could hide. With 12 pairs and one
 * look, 40 of 4096 choices of signs may reach the statistic. A row without noise reaches 10/12 of its largest one in
 * the 13 choices that flip all signs but one or none, and 8/12 (t = 2.97) in 66 more. The other row has t = 2.956,
 * which 32 choices reach if it is tested alone. */
static void a_hidden_row_is_blind(void **state)
{
    static family f;
    pb_pair_opts o = PB_PAIR_DEFAULTS;
    (void)state;
    make(&f, 12, 0, 1);
    o.look[0] = 12, o.look[1] = 12;
    o.must_find = 9;
    for (int k = 0; k < 12; k++) {
        f.d[0][k] = log(0.7);
        f.d[1][k] = 0.05 + 0.195 * ((k * 7 % 12 + 0.5) / 12 - 0.5);
    }
    const pb_sample s = pb_sample_of(f.d[1], 12);
    CHECK_NEAR(s.mean / (s.sd / sqrt(12)), 2.956, 0.001);
    CHECK_NEAR(pb_sign_flip(f.d[1], 12, 0), 32.0 / 4096, 1e-12);
    CHECK_OK(pb_pair_judge(f.row, 2, &o, f.r, &f.report));
    assert_true(f.r[0].id == PB_VERDICT_IMPROVED && f.r[1].why == PB_PAIR_HIDDEN);
    assert_true(pb_pair_sensitivity_of(&f.r[1], &o, &f.report).detectable < log(1 + o.must_find));
    assert_true(f.r[1].blind && !f.r[0].blind && f.report.blind == 1);
}

/* A row is not HIDDEN if no row changed in the opposite direction, if the opposite change is below the minimum effect
 * or in a row that does not gate, or if its own change is below the minimum effect. */
static void other_rows_are_not_hidden(void **state)
{
    static family f;
    pb_pair_opts o = seven();
    (void)state;
    make(&f, PAIRS, 0.001, 1);
    f.row[0].min_effect = 0.6;
    CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
    assert_true(f.report.hidden == 0 && f.r[1].why == PB_PAIR_UNCLEAR);
    f.row[0].min_effect = 0, f.row[1].min_effect = 0.06;
    CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
    assert_int_equal(f.report.hidden, 0);
    f.row[1].min_effect = 0, f.row[0].gating = false;
    CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
    assert_true(f.report.hidden == 0 && f.r[1].id == PB_VERDICT_REGRESSED);
}

/* With 12 pairs more choices of signs may reach the statistic, and the faster row hides nothing. */
static void more_pairs_are_a_remedy(void **state)
{
    static family f;
    const pb_pair_opts o = PB_PAIR_DEFAULTS;
    (void)state;
    make(&f, 12, 0.001, 1);
    CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
    assert_true(f.r[0].id == PB_VERDICT_IMPROVED && f.r[1].id == PB_VERDICT_REGRESSED && f.report.hidden == 0);
}

/* Simulates comparisons in which one row became faster by 30 %. How often is an unchanged row HIDDEN, and how often is
 * one that became slower by 5 %? An unchanged row is so with probability 1/128 at most in all rows together, by the
 * same argument as for REGRESSED. */
static void unchanged_rows_are_rarely_hidden(void **state)
{
    enum { COMPARISONS = 1000 };
    static family f;
    const pb_pair_opts o = seven();
    int changed = 0, unchanged = 0, regressed = 0;
    (void)state;
    for (int k = 0; k < COMPARISONS; k++) {
        make(&f, PAIRS, 0.02, (uint64_t)(2 * k + 11));
        CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
        changed += f.r[1].why == PB_PAIR_HIDDEN;
        regressed += f.report.count[PB_VERDICT_REGRESSED] > 0;
        for (int i = 0; i < PAIRS; i++) f.d[1][i] -= log(1.05);
        CHECK_OK(pb_pair_judge(f.row, ROWS, &o, f.r, &f.report));
        unchanged += f.report.hidden > 0;
    }
    print_message(
        "%d comparisons, a row 30 %% faster: a row 5 %% slower is REGRESSED in %d, HIDDEN in %d; an unchanged "
        "row is HIDDEN in %d\n",
        COMPARISONS, regressed, changed, unchanged);
    assert_int_equal(regressed, 0);
    assert_true(changed > COMPARISONS * 9 / 10);
    assert_in_range(unchanged, 0, COMPARISONS / 128 + 3 * 3); /* three standard deviations */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_faster_row_hides_a_slower_one), cmocka_unit_test(a_slower_row_hides_a_faster_one),
        cmocka_unit_test(a_hidden_row_is_blind),           cmocka_unit_test(other_rows_are_not_hidden),
        cmocka_unit_test(more_pairs_are_a_remedy),         cmocka_unit_test(unchanged_rows_are_rarely_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
