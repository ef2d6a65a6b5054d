/* roofline_test.c - the roofline report: the share of the ceilings and what bounds an op, from rows that were written
 * for the test, with and without counters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/report/gnuplot.h"
#include "bench/report/report.h"
#include "tests/bench/files_test.h"
#include "tests/test.h"

/* linear_fwd of 256 x 960 x 576: 2 x 256 x 960 x 576 FLOPs, and four bytes of each element of x, w and y. */
#define LINEAR "kernels/linear_fwd?dtype=f32&impl=avx2&shape=B1.S256.N960.K576.b0.a0"
#define SWIGLU "kernels/swiglu_fwd?dtype=f32&impl=avx2&shape=B1.S256.I1536.y1"
static const double linear_flops = 2.0 * 256 * 960 * 576, linear_bytes = 4.0 * (256 * 576 + 960 * 576 + 256 * 960),
                    swiglu_bytes = 4.0 * 3 * 256 * 1536;

static char folder[] = "/tmp/pb_roofline_XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[16][64]; /* each stays valid for the next 15 calls */
    static int k;
    k = (k + 1) % 16;
    snprintf(path[k], sizeof path[k], "%s/%s", folder, name);
    return path[k];
}

static FILE *open_rows(const char *name)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fputs("bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note\n", f);
    return f;
}

static void row(FILE *f, const char *key, const char *metric, const char *unit, const char *better, double value)
{
    fprintf(f, "2,r,m,0,%s,%s,%s,%s,%.17g,5,ok,\n", key, metric, unit, better, value);
}

static void write_runs(void)
{
    FILE *f = open_rows("timed.csv");
    row(f, "ceiling/copy", "copy_rate", "B/s", "higher", 1e10);
    row(f, "ceiling/matmul", "matmul_rate", "FLOP/s", "higher", 1e11);
    row(f, LINEAR, "kernel_time", "s", "lower", linear_flops / 1e11 / 0.8);
    row(f, SWIGLU, "kernel_time", "s", "lower", swiglu_bytes / 1e10 / 0.3);
    fclose(f);
    f = open_rows("counted.csv");
    row(f, SWIGLU, "dram_read_bytes", "B", "none", 3e6);
    row(f, SWIGLU, "dram_write_bytes", "B", "none", 2e6);
    row(f, SWIGLU, "stall_barrier", "1", "none", 0.2);
    row(f, SWIGLU, "stall_memory", "1", "none", 0.6);
    row(f, SWIGLU, "stall_none", "1", "none", 0.9);
    fclose(f);
    f = open_rows("times.csv");
    row(f, LINEAR, "kernel_time", "s", "lower", 1e-3);
    fclose(f);
    f = open_rows("ceilings.csv");
    row(f, "ceiling/copy", "copy_rate", "B/s", "higher", 1e10);
    row(f, "ceiling/matmul", "matmul_rate", "FLOP/s", "higher", 1e11);
    fclose(f);
}

static void lines_of_a_run(void **state)
{
    pb_table t[2];
    pb_series_set sets[2];
    pb_roofline_line l;
    (void)state;
    CHECK_OK(pb_table_read(in_folder("timed.csv"), &t[0]));
    CHECK_OK(pb_table_read(in_folder("counted.csv"), &t[1]));
    for (int i = 0; i < 2; i++) CHECK_OK(pb_series_make(&t[i], &sets[i]));
    const pb_series_set *both[] = {&sets[0], &sets[1]};
    assert_true(pb_roofline_of(both, 1, LINEAR, &l));
    CHECK_NEAR(l.flops, linear_flops, 0.5);
    CHECK_NEAR(l.bytes, linear_bytes, 0.5);
    CHECK_NEAR(l.share, 0.8, 1e-9);
    assert_true(l.arithmetic);
    assert_true(isnan(l.counted_bytes) && isnan(l.counted_flops) && !l.waits);
    assert_true(pb_roofline_of(both, 2, SWIGLU, &l));
    CHECK_NEAR(l.bytes, swiglu_bytes, 0.5);
    CHECK_NEAR(l.share, 0.3, 1e-9);
    assert_false(l.arithmetic);
    CHECK_NEAR(l.counted_bytes, 5e6, 0);
    assert_true(isnan(l.counted_flops));
    assert_string_equal(l.waits, "stall_memory");
    CHECK_NEAR(l.waiting, 0.6, 0);
    assert_false(pb_roofline_of(both, 2, "ceiling/copy", &l));
    assert_false(pb_roofline_of(both, 2, "kernels/no_such_op?dtype=f32", &l));
    for (int i = 0; i < 2; i++) pb_series_free(&sets[i]), pb_table_free(&t[i]);
}

/* Returns what pb_roofline() prints. */
static const char *printed(const char *run, const pb_words *counted, bool markdown, pb_status want)
{
    static char text[4000];
    FILE *f = fmemopen(text, sizeof text, "w");
    memset(text, 0, sizeof text);
    assert_int_equal(pb_roofline(run, counted, markdown, f), want);
    fclose(f);
    return text;
}

static void prints_the_table(void **state)
{
    const pb_words none = {.n = 0}, counted = {.v = {in_folder("counted.csv")}, .n = 1};
    (void)state;
    const char *text = printed(in_folder("timed.csv"), &none, true, PB_OK);
    assert_non_null(strstr(text, "ceilings: copy_rate 10.0 GB/s, matmul_rate 100 GFLOP/s"));
    const char *low = strstr(text, "30.0 % | neither"), *high = strstr(text, "80.0 % | arithmetic");
    assert_true(low && high && low < high); /* lowest share first */
    assert_null(strstr(text, "counted"));
    text = printed(in_folder("timed.csv"), &counted, true, PB_OK);
    if (!strstr(text, "4.72 MB | 5.00 MB |")) fail_msg("%s", text);
    assert_non_null(strstr(text, "neither; stall\\_memory 60 %"));
    text = printed(in_folder("timed.csv"), &counted, false, PB_OK);
    assert_non_null(strstr(text, "bound by"));
}

static void says_what_is_missing(void **state)
{
    const pb_words none = {.n = 0}, absent = {.v = {"/nonexistent.csv"}, .n = 1};
    (void)state;
    assert_string_equal(printed(in_folder("times.csv"), &none, false, PB_EINVAL), "");
    assert_non_null(strstr(pb_error(), "times.csv: it has no ceilings copy_rate and matmul_rate"));
    assert_string_equal(printed(in_folder("ceilings.csv"), &none, false, PB_EINVAL), "");
    assert_non_null(strstr(pb_error(), "ceilings.csv: it has no kernel_time of suite kernels"));
    printed(in_folder("timed.csv"), &absent, false, PB_EPATH);
}

/* Both ceilings, from the smallest to the largest intensity, then each family of ops. The run has no ceiling of f32, so
 * both are the same. SwiGLU has 5 FLOPs and 12 bytes an element. */
static void draws_the_points(void **state)
{
    const double low = 5.0 / 12, high = linear_flops / linear_bytes;
    char expected[1024], roof[256];
    pb_table t;
    pb_series_set set;
    capture c;
    (void)state;
    CHECK_OK(pb_table_read(in_folder("timed.csv"), &t));
    CHECK_OK(pb_series_make(&t, &set));
    assert_int_equal(pb_plot_roofline(capture_begin(&c), &set), 4);
    snprintf(roof, sizeof roof, "%.9g %.9g\n10 1e+11\n%.9g 1e+11\n", low, 1e10 * low, high);
    snprintf(expected, sizeof expected,
             "intensity \"ceilings\"\n%s\n\nintensity \"ceilings, f32\"\n%s\n\nintensity \"linear\"\n%.9g %.9g\n"
             "\n\nintensity \"swiglu\"\n%.9g %.9g\n",
             roof, roof, high, 0.8 * 1e11, low, 0.3 * 1e10 * low);
    assert_string_equal(capture_end(&c), expected);
    free(c.text);
    pb_series_free(&set);
    pb_table_free(&t);
    static const char *const lacking[] = {"times.csv", "ceilings.csv"};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pb_table_read(in_folder(lacking[i]), &t));
        CHECK_OK(pb_series_make(&t, &set));
        assert_int_equal(pb_plot_roofline(capture_begin(&c), &set), 0);
        assert_string_equal(capture_end(&c), "");
        free(c.text);
        pb_series_free(&set);
        pb_table_free(&t);
    }
}

int main(void)
{
    static const char *const files[] = {"timed.csv", "counted.csv", "times.csv", "ceilings.csv"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_a_run),
        cmocka_unit_test(prints_the_table),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(draws_the_points),
    };
    if (!mkdtemp(folder)) return 1;
    write_runs();
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(in_folder(files[i]));
    rmdir(folder);
    return failures;
}
