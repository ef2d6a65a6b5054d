/* report_test.c - tests of `bench report` (compared with golden text), of the formatting of numbers, and of
 * `bench plot`. */
#include <sys/stat.h>
#include <unistd.h>

#include "bench/report/plot.h"
#include "bench/report/gnuplot.h"
#include "bench/report/run_report.h"
#include "bench/text/format.h"
#include "tests/bench/run_files.h"

#define REPORTS PB_SOURCE_DIR "/tests/fixtures/report/"

static void figures_have_three_digits_and_a_unit(void **state)
{
    static const struct {
        double v;
        const char *unit, *want;
    } cases[] = {
        {0.0123, "s", "12.3 ms"},
        {1.9e-9, "s", "1.90 ns"},
        {0.9996, "s", "1.00 s"},
        {0.9994, "s", "999 ms"},
        {9.996e-3, "s", "10.0 ms"},
        {99.96e-6, "s", "100 us"},
        {3600, "s", "3.60 ks"},
        {0, "s", "0 s"},
        {1.234e9, "FLOP/s", "1.23 GFLOP/s"},
        {2.15e9, "B", "2.15 GB"},
        {512, "B", "512 B"},
        {1234, "1/s", "1.23 k/s"},
        {0.5, "1/s", "0.50 /s"},
        {1234, "1", "1234"},
        {0.77712, "1", "0.777"},
        {3.1e-8, "1", "3.1e-08"},
        {0, "1", "0"},
        {-0.5, "s", "-500 ms"},
        {(double)NAN, "s", "-"},
        {(double)INFINITY, "s", "-"},
        {1.5e-10, "s", "0.15 ns"},
    };
    char text[PB_FIGURE_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pb_figure(text, cases[i].v, cases[i].unit);
        if (strcmp(text, cases[i].want) != 0)
            fail_msg("%g %s is '%s', want '%s'", cases[i].v, cases[i].unit, text, cases[i].want);
    }
    pb_figure_range(text, 0.0123, 0.0119, 1.25, "s");
    assert_string_equal(text, "11.9..1250");
    pb_figure_range(text, 0.0123, 0.01230001, 0.0123, "s");
    assert_string_equal(text, "");
}

static void labels_have_only_the_axes_that_vary(void **state)
{
    pb_axes a = {{0}};
    char text[64];
    (void)state;
    pb_axes_add(&a, "s/step?batch=1&clip=sync&seq=8");
    pb_axes_label(&a, "s/step?batch=1&clip=sync&seq=8", text, sizeof text);
    assert_string_equal(text, "step");
    pb_axes_add(&a, "s/step?batch=16&clip=sync&only=x&seq=8");
    pb_axes_label(&a, "s/step?batch=16&clip=sync&only=x&seq=8", text, sizeof text);
    assert_string_equal(text, "batch=16 only=x");
    pb_axes_add(&a, "s/other");
    pb_axes_label(&a, "s/other", text, sizeof text); /* after s/other was added, no axis value is common to all keys */
    assert_string_equal(text, "other");
    pb_axes_label(&a, "s/step?batch=1&clip=sync&seq=8", text, sizeof text);
    assert_string_equal(text, "step batch=1 clip=sync seq=8");
    pb_axes_label(&a, "s/step?batch=1&clip=sync&seq=8", text, 10);
    assert_string_equal(text, "step batc");
}

/* Compares with a golden file; PB_GOLDEN=write updates it. The first line, which names the file read, is skipped. */
static void check_golden(const char *text, const char *path)
{
    static char want[1 << 16];
    const char *env = getenv("PB_GOLDEN");
    text = strchr(text, '\n') + 1;
    FILE *f = fopen(path, env && !strcmp(env, "write") ? "wb" : "rb");
    assert_non_null(f);
    if (env && !strcmp(env, "write")) {
        fputs(text, f);
    } else {
        want[fread(want, 1, sizeof want - 1, f)] = 0;
        if (strcmp(want, text) != 0) fail_msg("%s differs (PB_GOLDEN=write renews it); now:\n%s", path, text);
    }
    fclose(f);
}

static void check_report(const char *run, const char *golden, pb_exit want)
{
    capture c;
    assert_int_equal(pb_report(run, &(pb_report_opts){0}, capture_begin(&c)), want);
    const char *text = capture_end(&c);
    for (const char *p = text, *end; *p; p = end + 1) {
        end = strchr(p, '\n');
        if (p > text && end - p > 100) fail_msg("a line of %d characters: %.*s", (int)(end - p), (int)(end - p), p);
        if (end > p && end[-1] == ' ') fail_msg("blanks at the end: '%.*s'", (int)(end - p), p);
    }
    check_golden(text, golden);
    free(c.text);
}

static void reports_equal_the_golden_files(void **state)
{
    (void)state;
    check_report(PB_SOURCE_DIR "/tests/fixtures/report", REPORTS "backward.golden", PB_EXIT_INCOMPARABLE);
    check_report(REPORTS "others.csv", REPORTS "others.golden", PB_EXIT_OK);
}

static void the_exit_code_follows_statuses_and_requirements(void **state)
{
    capture c;
    pb_report_opts gate = {.gate_requirements = true};
    (void)state;
    assert_int_equal(pb_report(run_file("base"), &gate, capture_begin(&c)), 0);
    capture_end(&c), free(c.text);
    assert_int_equal(pb_report(run_file("requirement_fail"), &(pb_report_opts){0}, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "requirements: 0 pass, 1 fail, 1 unsupported"));
    free(c.text);
    assert_int_equal(pb_report(run_file("requirement_fail"), &gate, capture_begin(&c)), 1);
    capture_end(&c), free(c.text);
    assert_int_equal(pb_report(run_file("failed"), &gate, capture_begin(&c)), 4);
    capture_end(&c), free(c.text);
    assert_int_equal(pb_report(run_file("truncated"), &gate, capture_begin(&c)), 2);
    assert_string_equal(capture_end(&c), "");
    free(c.text);
    assert_int_equal(pb_report(run_file("outcome"), &gate, capture_begin(&c)), 0); /* a case without measurements */
    assert_non_null(strstr(capture_end(&c), "unsupported [1]"));
    assert_non_null(strstr(c.text, "[1] clip sync waits, which a graph cannot record"));
    free(c.text);
    assert_int_equal(pb_report(NULL, &(pb_report_opts){.runs = "/no/such"}, stderr), 2);
}

/* A series whose processes were all throttled has a value, but not one to trust: skipped, with the reason. With one
 * process that was not, it passes. */
static void junit_skips_what_was_throttled_throughout(void **state)
{
    static const char *const second[] = {"throttled", "ok"}, *const want[] = {"skipped=\"1\"", "skipped=\"0\""};
    char path[] = "/tmp/pb_report_test_XXXXXX";
    const int made = mkstemp(path);
    capture c;
    (void)state;
    assert_true(made >= 0 && close(made) == 0);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs("bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note,commit,host\n",
              f);
        fputs("2,r,m,0,s/c,kernel_time,s,lower,1,9,throttled,too hot,,?h\n", f);
        fprintf(f, "2,r,m,1,s/c,kernel_time,s,lower,1,9,%s,%s,,?h\n", second[i], i ? "" : "too hot");
        assert_int_equal(fclose(f), 0);
        assert_int_equal(pb_report(path, &(pb_report_opts){.format = "junit"}, capture_begin(&c)), PB_EXIT_OK);
        const char *text = capture_end(&c);
        if (!strstr(text, want[i]) || !strstr(text, "errors=\"0\""))
            fail_msg("no %s, or an error, in %s", want[i], text);
        assert_int_equal(strstr(text, "throttled: too hot") == NULL, i);
        free(c.text);
    }
    assert_int_equal(unlink(path), 0);
}

/* ---- bench plot -------------------------------------------------------------------------------- */

static bool file_holds(const char *path, const char *text)
{
    static char bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bytes[fread(bytes, 1, sizeof bytes - 1, f)] = 0;
    fclose(f);
    return strstr(bytes, text) != NULL;
}

static void a_plot_is_drawn_from_the_rows(void **state)
{
    char folder[] = "/tmp/pb_plot_test_XXXXXX", svg[64], png[64];
    capture c;
    (void)state;
    if (access("/usr/bin/gnuplot", X_OK) != 0) skip();
    assert_non_null(mkdtemp(folder));
    snprintf(svg, sizeof svg, "%s/a.svg", folder);
    snprintf(png, sizeof png, "%s/a.png", folder);
    pb_plot_opts o = {.out = svg, .plots = PB_SOURCE_DIR "/plots"};
    pb_exit e = pb_plot(REPORTS "results.csv", &o, capture_begin(&c));
    if (e != PB_EXIT_OK) fail_msg("exit %d: %s", (int)e, pb_error());
    assert_non_null(strstr(capture_end(&c), "a.svg"));
    free(c.text);
    assert_true(file_holds(svg, "lora, batch 16") && file_holds(svg, "graph fused"));
    assert_false(file_holds(svg, "graph sync")); /* a variant without values */
    o.out = png;
    assert_int_equal(pb_plot(REPORTS "results.csv", &o, capture_begin(&c)), 0);
    capture_end(&c), free(c.text);
    assert_true(file_holds(png, "\x89PNG"));
    unlink(svg), unlink(png), rmdir(folder);
}

/* Draws the eager/graph ratios 4, 2 and 1 of one model and 3 of another: two lines, each labelled with the axis that
 * differs. */
static void the_crossover_is_drawn_from_pairs_of_rows(void **state)
{
    char folder[] = "/tmp/pb_plot_test_XXXXXX", svg[64];
    capture c;
    (void)state;
    if (access("/usr/bin/gnuplot", X_OK) != 0) skip();
    assert_non_null(mkdtemp(folder));
    snprintf(svg, sizeof svg, "%s/x.svg", folder);
    pb_plot_opts o = {.figure = "crossover", .out = svg, .plots = PB_SOURCE_DIR "/plots"};
    pb_exit e = pb_plot(REPORTS "crossover.csv", &o, capture_begin(&c));
    if (e != PB_EXIT_OK) fail_msg("exit %d: %s", (int)e, pb_error());
    capture_end(&c), free(c.text);
    assert_true(file_holds(svg, "model=big") && file_holds(svg, "model=small") && file_holds(svg, "tokens a step"));
    assert_false(file_holds(svg, "model=alone")); /* this model has no eager case */
    unlink(svg), rmdir(folder);
}

static void the_data_of_the_crossover(void **state)
{
    pb_table t;
    pb_series_set set;
    capture c;
    (void)state;
    CHECK_OK(pb_table_read(REPORTS "crossover.csv", &t));
    CHECK_OK(pb_series_make(&t, &set));
    assert_int_equal(pb_plot_crossover(capture_begin(&c), &set), 2);
    assert_string_equal(capture_end(&c),
                        "tokens \"model=big\"\n256 3\n\n\ntokens \"model=small\"\n128 4\n512 2\n2048 1\n");
    free(c.text);
    pb_series_free(&set);
    pb_table_free(&t);
}

/* The plotted time is that of the forward pass plus that of the backward pass. A series that has only one length, or
 * whose key lists contain masked entries, is not plotted. */
static void the_data_of_attention(void **state)
{
    pb_table t;
    pb_series_set set;
    capture c;
    (void)state;
    CHECK_OK(pb_table_read(PB_SOURCE_DIR "/tests/fixtures/readme/machine/attention.csv", &t));
    CHECK_OK(pb_series_make(&t, &set));
    assert_int_equal(pb_plot_attention(capture_begin(&c), &set), 3);
    assert_string_equal(capture_end(&c),
                        "tokens \"list=causal topk=0 variant=dense\"\n1280 0.0009\n4096 0.008\n\n\n"
                        "tokens \"list=random topk=1024 variant=sparse\"\n1280 0.0014\n4096 0.0046\n\n\n"
                        "tokens \"list=random topk=128 variant=sparse\"\n1280 0.0003\n4096 0.0008\n");
    free(c.text);
    pb_series_free(&set);
    pb_table_free(&t);
}

static void an_impossible_plot_gives_the_reason(void **state)
{
    char folder[] = "/tmp/pb_plot_test_XXXXXX", script[64];
    const struct {
        const char *run;
        pb_plot_opts o;
        pb_exit want;
        const char *why;
    } cases[] = {
        {REPORTS "results.csv",
         {.out = "/tmp/x.svg", .gnuplot = "no_such_gnuplot"},
         125,
         "apt-get install gnuplot-nox"},
        {REPORTS "results.csv", {.out = "/tmp/x.svg", .gnuplot = "false"}, 125, "false failed"},
        {REPORTS "results.csv", {.out = "x.pdf"}, 2, "must end in .svg or .png"},
        {REPORTS "results.csv", {.out = "x\n.svg"}, 2, "without control characters"},
        {REPORTS "results.csv", {.out = "/dev/full/x.svg"}, 2, "Not a directory"},
        {REPORTS "results.csv", {.out = "x.svg", .plots = "/no/such"}, 2, "has a plot script in /no/such"},
        {REPORTS "results.csv", {.out = "x.svg", .plots = folder}, 2, "backward.gp is a folder"},
        {REPORTS "others.csv", {.out = "x.svg"}, 2, "no suite of the run"},
        {REPORTS "others.csv", {.out = "x.svg", .figure = "crossover"}, 2, "no case measured both"},
        {REPORTS "others.csv", {.out = "x.svg", .figure = "attention"}, 2, "no attention case"},
        {REPORTS "others.csv", {.out = "x.svg", .figure = "roofline"}, 2, "no op of suite kernels with ceilings"},
        {REPORTS "no.csv", {.out = "x.svg"}, 2, "No such file"},
    };
    capture c;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(script, sizeof script, "%s/backward.gp", folder);
    assert_int_equal(mkdir(script, 0700), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pb_plot_opts o = cases[i].o;
        assert_int_equal(pb_plot(cases[i].run, &o, capture_begin(&c)), cases[i].want);
        assert_string_equal(capture_end(&c), "");
        free(c.text);
        if (!strstr(pb_error(), cases[i].why)) fail_msg("'%s' does not say '%s'", pb_error(), cases[i].why);
    }
    rmdir(script), rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_have_three_digits_and_a_unit),
        cmocka_unit_test(labels_have_only_the_axes_that_vary),
        cmocka_unit_test(reports_equal_the_golden_files),
        cmocka_unit_test(the_exit_code_follows_statuses_and_requirements),
        cmocka_unit_test(junit_skips_what_was_throttled_throughout),
        cmocka_unit_test(a_plot_is_drawn_from_the_rows),
        cmocka_unit_test(the_crossover_is_drawn_from_pairs_of_rows),
        cmocka_unit_test(the_data_of_the_crossover),
        cmocka_unit_test(the_data_of_attention),
        cmocka_unit_test(an_impossible_plot_gives_the_reason),
    };
    return cmocka_run_group_tests(tests, open_runs, close_runs);
}
