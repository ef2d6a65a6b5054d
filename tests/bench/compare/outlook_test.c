/* outlook_test.c - tests of what a run says of its own noise (outlook.h), against figures worked out by hand with the
 * formulas of its header, and of the lines that a first run prints. */
#include <math.h>
#include <string.h>

#include "bench/compare/compare.h"
#include "bench/stats/stats.h"
#include "tests/bench/files_test.h"

/* A row of a run: its values in processes 0, 1 and 2. */
typedef struct made {
    const char *key, *metric, *unit;
    double value[3];
} made;

static void write_run(const char *path, const made *row, int n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note,commit,host\n");
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < n; i++)
            fprintf(f, "2,r1,cpu-m1,%d,%s,%s,%s,lower,%.17g,9,ok,,,?h1\n", p, row[i].key, row[i].metric, row[i].unit,
                    row[i].value[p]);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

#define STEP(batch, mode) "backward/step?batch=" batch "&mode=" mode

static const char gates_text[] = "suite,metric,better,stored_limit,ceiling,gating\n"
                                 "backward,backward_time,lower,0.15,,yes\n"
                                 "backward,peak_memory,lower,0.05,,no\n"
                                 "kernels,kernel_time,lower,0.25,,pairs\n";

static pb_outlook outlook_of(const char *folder, const made *row, int n)
{
    char run[128], gates[128];
    pb_table t;
    pb_series_set set;
    pb_gates g;
    pb_outlook o;
    snprintf(run, sizeof run, "%s/run.csv", folder);
    snprintf(gates, sizeof gates, "%s/gates.csv", folder);
    write_text(gates, gates_text);
    write_run(run, row, n);
    CHECK_OK(pb_gates_read(gates, &g));
    CHECK_OK(pb_table_read(run, &t));
    CHECK_OK(pb_series_make(&t, &set));
    CHECK_OK(pb_outlook_of(&set, &g, false, &o));
    pb_series_free(&set);
    pb_table_free(&t);
    return o;
}

static char folder[] = "/tmp/pb_outlook_XXXXXX";

/* ln(values) of the first row: 0, 0.1, 0.2 (variance 0.01); of the second: 0, 0.2, 0.4 (variance 0.04). The metric that
 * does not gate and the row of two processes do not count. */
static void spread_and_bound_follow_the_formulas(void **state)
{
    const made rows[] = {{STEP("1", "sync"), "backward_time", "s", {1, exp(0.1), exp(0.2)}},
                         {STEP("4", "sync"), "backward_time", "s", {1, exp(0.2), exp(0.4)}},
                         {STEP("1", "sync"), "peak_memory", "B", {1, 50, 900}}};
    const double w2 = 0.448671104578208 * (0.01 + 0.04) / 2, s2 = w2 + 0.05 * 0.05; /* kappa_3; c2 of a VM */
    (void)state;
    const pb_outlook o = outlook_of(folder, rows, 3);
    assert_int_equal(o.rows, 2);
    CHECK_NEAR(o.spread, sqrt(0.025), 1e-12);
    /* two gating rows and their row `all rows`: alpha 0.01 / 3 */
    CHECK_NEAR(o.detects_least, pb_t_quantile(0.01 / 3, 6) * sqrt(2 * s2), 1e-9);
    CHECK_NEAR(o.detects_most, o.detects_least, 1e-12);
}

/* The placebo pair of batch 4 (eager and graph, ln ratio 0.6) widens the bound of batch 1, but not its own. */
static void a_placebo_pair_widens_other_rows(void **state)
{
    const made rows[] = {{STEP("1", "sync"), "backward_time", "s", {1, exp(0.1), exp(0.2)}},
                         {STEP("4", "eager"), "backward_time", "s", {1, exp(0.1), exp(0.2)}},
                         {STEP("4", "graph"), "backward_time", "s", {exp(0.6), exp(0.7), exp(0.8)}}};
    const double w2 = 0.448671104578208 * 0.01, p2 = 0.6 * 0.6 / 2, c2 = 0.0025;
    const double t = pb_t_quantile(0.01 / 4, 6);
    (void)state;
    const pb_outlook o = outlook_of(folder, rows, 3);
    assert_int_equal(o.rows, 3);
    CHECK_NEAR(o.detects_least, t * sqrt(2 * (w2 + c2)), 1e-9);
    CHECK_NEAR(o.detects_most, t * sqrt(2 * (p2 + c2)), 1e-9);
}

/* A case and its copy (a control case, ln ratio 0.6) widen the bound of that case: it is their noise, not a change. */
static void a_copy_of_a_case_widens_its_row(void **state)
{
    const made rows[] = {
        {STEP("1", "sync"), "backward_time", "s", {1, exp(0.1), exp(0.2)}},
        {STEP("1&control=second", "sync"), "backward_time", "s", {exp(0.6), exp(0.7), exp(0.8)}},
    };
    (void)state;
    const pb_outlook o = outlook_of(folder, rows, 2);
    assert_int_equal(o.rows, 1);
    CHECK_NEAR(o.detects_least, pb_t_quantile(0.01, 6) * sqrt(2 * (0.6 * 0.6 / 2 + 0.0025)), 1e-9);
}

static void a_run_without_times_says_nothing(void **state)
{
    const made rows[] = {{STEP("1", "sync"), "peak_memory", "B", {1, 2, 3}}};
    (void)state;
    const pb_outlook o = outlook_of(folder, rows, 1);
    assert_int_equal(o.rows, 0);
    assert_true(o.spread == 0);
}

/* Without a gating row, the rows that gate in comparisons of executables count; without these, the times of the suite.
 * A ceiling is not one of them. */
static void a_run_without_gating_rows_judges_its_times(void **state)
{
    const made rows[] = {{"kernels/op?n=1", "kernel_time", "s", {1, exp(0.1), exp(0.2)}},
                         {"kernels/op?n=1", "row_time", "s", {1, 40, 900}},
                         {"ceiling/call", "call_time", "s", {1, 50, 900}}};
    const made timed[] = {{"load/step?n=1", "load_time", "s", {1, exp(0.2), exp(0.4)}},
                          {"load/step?n=1", "peak_memory", "B", {1, 30, 900}},
                          {"ceiling/call", "call_time", "s", {1, 50, 900}}};
    (void)state;
    pb_outlook o = outlook_of(folder, rows, 3);
    assert_true(o.rows == 1 && o.gating);
    CHECK_NEAR(o.spread, 0.1, 1e-12);
    o = outlook_of(folder, timed, 3);
    assert_true(o.rows == 1 && !o.gating);
    CHECK_NEAR(o.spread, 0.2, 1e-12);
    CHECK_NEAR(o.detects_least, pb_t_quantile(0.01, 6) * sqrt(2 * (0.448671104578208 * 0.04 + 0.0025)), 1e-9);
}

/* The output of a first run: one sentence, and detects= in the last line. The percentages are 100 (exp(x) - 1). */
static void a_first_run_prints_its_outlook(void **state)
{
    const made rows[] = {{STEP("1", "sync"), "backward_time", "s", {1, exp(0.1), exp(0.2)}}};
    char run[128], want[64];
    capture c;
    (void)state;
    const pb_outlook o = outlook_of(folder, rows, 1);
    snprintf(run, sizeof run, "%s/run.csv", folder);
    assert_int_equal(pb_compare_baseline(run, &(pb_compare_opts){.baselines = folder}, capture_begin(&c)), PB_EXIT_OK);
    const char *text = capture_end(&c);
    assert_non_null(strstr(text, "between processes, the gating values of this run vary by 10 %"));
    snprintf(want, sizeof want, "detects=%.3g%% exit=0", 100 * expm1(o.detects_most));
    if (!strstr(text, want)) fail_msg("no '%s' in:\n%s", want, text);
    free(c.text);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && setenv("XDG_STATE_HOME", folder, 1) == 0 ? 0 : -1; /* no kept sessions of the user */
}

static int drop_folder(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_and_bound_follow_the_formulas),
        cmocka_unit_test(a_placebo_pair_widens_other_rows),
        cmocka_unit_test(a_copy_of_a_case_widens_its_row),
        cmocka_unit_test(a_run_without_times_says_nothing),
        cmocka_unit_test(a_run_without_gating_rows_judges_its_times),
        cmocka_unit_test(a_first_run_prints_its_outlook),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
