/* exchange_test.c - formats of other tools: `bench export` and `import`, Markdown and JUnit XML, compared with
 * golden files and with the rules of each format. scripts/peers/check_formats runs the real readers. */
#include <jansson.h>
#include <math.h>

#include "bench/compare/compare_results.h"
#include "bench/exchange/export.h"
#include "bench/exchange/import.h"
#include "bench/text/markup.h"
#include "bench/report/run_report.h"
#include "tests/bench/run_files.h"

#define EXCHANGE PB_SOURCE_DIR "/tests/fixtures/exchange/"

/* Compares the text with a golden file; PB_GOLDEN=write updates the file. Absolute paths are made relative first. */
static void check_golden(char *text, const char *name)
{
    static char want[1 << 17];
    char path[1024];
    const char *env = getenv("PB_GOLDEN");
    forget_folder(text, PB_SOURCE_DIR);
    forget_folder(text, run_folder);
    snprintf(path, sizeof path, EXCHANGE "golden/%s", name);
    const bool renew = env && !strcmp(env, "write");
    FILE *f = fopen(path, renew ? "wb" : "rb");
    assert_non_null(f);
    if (renew) {
        fputs(text, f);
    } else {
        want[fread(want, 1, sizeof want - 1, f)] = 0;
        if (strcmp(want, text) != 0) fail_msg("%s differs (PB_GOLDEN=write renews it); now:\n%s", path, text);
    }
    fclose(f);
}

/* ---- bench export ---------------------------------------------------------------------------------- */

/* Returns the exported text; the caller frees it. */
static char *exported(const char *file, const char *to, const char *better, const char *note)
{
    capture c, notes;
    char path[1024];
    snprintf(path, sizeof path, EXCHANGE "%s", file);
    FILE *out = capture_begin(&c), *said = capture_begin(&notes);
    CHECK_OK(pb_export(path, &(pb_export_opts){.to = to, .better = better}, out, said));
    capture_end(&c);
    if (!strstr(capture_end(&notes), note)) fail_msg("%s: '%s' is not said in:\n%s", to, note, notes.text);
    free(notes.text);
    return c.text;
}

static void exports_equal_the_golden_files(void **state)
{
    static const struct {
        const char *to, *better, *golden, *note;
    } cases[] = {
        {"gbench", NULL, "gbench.json", "3 left out: they belong to cases without a time"},
        {"gab", "lower", "gab.smaller.json", "3 left out: they belong to the file of the other direction"},
        {"gab", "higher", "gab.bigger.json", "2 left out: they have no value"},
        {"bmf", NULL, "bmf.json", "3 left out: they are requirements"},
        {"benchfmt", NULL, "benchfmt.txt", "4 left out: they have no value"},
        {"mllog", NULL, "mllog.txt", "4 left out: they have no value"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = exported("run.csv", cases[i].to, cases[i].better, cases[i].note);
        check_golden(text, cases[i].golden);
        free(text);
    }
}

static double number(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    if (!json_is_number(v)) fail_msg("no number '%s'", name);
    return json_number_value(v);
}

static const char *word(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text ? text : "";
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

/* Checks the case whose second process of three was wrong: the other two took 0.8 s and 0.816 s. */
static void check_batch_8(const json_t *e)
{
    const char *aggregate = word(e, "aggregate_name");
    const double a = 0.8e9, b = 0.816e9, mean = (a + b) / 2, stddev = (b - a) / sqrt(2);
    if (!strcmp(aggregate, "mean") || !strcmp(aggregate, "median")) near(number(e, "real_time"), mean);
    if (!strcmp(aggregate, "stddev")) near(number(e, "real_time"), stddev);
    if (!strcmp(aggregate, "cv")) {
        near(number(e, "real_time"), stddev / mean);
        assert_string_equal(word(e, "aggregate_unit"), "percentage");
    }
    if (!strcmp(word(e, "run_type"), "iteration")) near(number(e, "real_time"), number(e, "repetition_index") ? b : a);
    assert_int_equal(number(e, "repetitions"), 2);
}

static void gbench_has_the_fields_its_tools_need(void **state)
{
    int count[3] = {0}; /* number of iterations, aggregates, errors */
    char *text = exported("run.csv", "gbench", NULL, "");
    json_t *root = json_loads(text, 0, NULL), *e;
    size_t i;
    (void)state;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "benchmarks"), i, e)
    {
        const bool error = json_is_true(json_object_get(e, "error_occurred"));
        count[error ? 2 : strcmp(word(e, "run_type"), "iteration") != 0]++;
        assert_true(*word(e, "name") && !strncmp(word(e, "name"), word(e, "run_name"), strlen(word(e, "run_name"))));
        if (error) { /* an errored entry has no time; compare.py would average a zero */
            assert_true(*word(e, "error_message") && strcmp(word(e, "run_type"), "iteration") != 0);
            assert_null(json_object_get(e, "real_time"));
            assert_null(json_object_get(e, "cpu_time"));
            continue;
        }
        assert_string_equal(word(e, "time_unit"), "ns");
        near(number(e, "cpu_time"), number(e, "real_time"));
        if (strstr(word(e, "name"), "batch=8")) check_batch_8(e);
    }
    assert_int_equal(count[0], 8); /* 3 cases x 3 processes, without the process that was wrong */
    assert_int_equal(count[1], 12);
    assert_int_equal(count[2], 4);
    json_decref(root);
    free(text);
}

/* github-action-benchmark expects a list of {name, unit, value}; Bencher's schema is bencher.dev/bmf.json. */
static void dashboards_get_the_fields_they_need(void **state)
{
    char *gab = exported("run.csv", "gab", "higher", ""), *bmf = exported("run.csv", "bmf", NULL, "");
    json_t *list = json_loads(gab, 0, NULL), *all = json_loads(bmf, 0, NULL), *e, *m;
    const char *key, *measure;
    size_t i;
    (void)state;
    assert_int_equal(json_array_size(list), 3); /* copy_rate, and tokens_per_second twice */
    json_array_foreach(list, i, e)
    {
        assert_true(*word(e, "name") && *word(e, "unit") && number(e, "value") > 0);
        assert_true(strstr(word(e, "name"), " copy_rate") || strstr(word(e, "name"), " tokens_per_second"));
    }
    assert_int_equal(json_object_size(all), 3); /* the case with a wrong process is left out */
    json_object_foreach(all, key, e) json_object_foreach(e, measure, m)
    {
        assert_true(strlen(measure) <= 64 && !strchr(measure, '_'));
        assert_true(number(m, "lower_value") <= number(m, "value") && number(m, "value") <= number(m, "upper_value"));
    }
    e = json_object_get(all, "backward/step?batch=4&clip=fused&model=tiny&seq=32");
    near(number(json_object_get(e, "backward-time"), "value"), 0.404e9);
    json_decref(list);
    json_decref(all);
    free(gab);
    free(bmf);
}

static void mllog_lines_are_events(void **state)
{
    char *text = exported("run.csv", "mllog", NULL, ""), *rest = NULL;
    int events = 0;
    (void)state;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), events++) {
        assert_int_equal(strncmp(line, ":::MLLOG ", 9), 0);
        json_t *e = json_loads(line + 9, 0, NULL);
        assert_non_null(e);
        near(number(e, "time_ms"), 1769860800000.0); /* 2026-01-31T12:00:00Z */
        assert_string_equal(word(e, "event_type"), "POINT_IN_TIME");
        assert_true(*word(e, "key") && json_object_get(e, "value") && json_is_object(json_object_get(e, "metadata")));
        json_decref(e);
    }
    /* 3 events per process: of two cases 3 processes each, of a third case 2; and 3 rows without axes */
    assert_int_equal(events, 2 * 3 * 3 + 2 * 3 + 3);
    free(text);
}

static void an_impossible_export_gives_the_reason(void **state)
{
    const struct {
        const char *run, *to, *better, *why;
        pb_status want;
    } cases[] = {
        {EXCHANGE "run.csv", "gbenhc", NULL, "unknown format 'gbenhc'; did you mean 'gbench'?", PB_EINVAL},
        {EXCHANGE "run.csv", NULL, NULL, "--to FORMAT is missing", PB_EINVAL},
        {EXCHANGE "no.csv", "bmf", NULL, "No such file", PB_EPATH},
        {run_file("base"), "mllog", NULL, "the run_id 'r1' does not begin with one", PB_EINVAL},
        {run_file("header_only"), "gbench", NULL, "no value that gbench can hold", PB_EFORMAT},
        {EXCHANGE "latin1.csv", "bmf", NULL, "row 1 is not UTF-8", PB_EINVAL},
    };
    capture c;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pb_export_opts o = {.to = cases[i].to, .better = cases[i].better};
        FILE *out = capture_begin(&c);
        assert_int_equal(pb_export(cases[i].run, &o, out, out), cases[i].want);
        assert_string_equal(capture_end(&c), "");
        if (!strstr(pb_error(), cases[i].why)) fail_msg("'%s' does not say '%s'", pb_error(), cases[i].why);
        free(c.text);
    }
}

/* ---- bench import ---------------------------------------------------------------------------------- */

static void check_import(const char *tool, const char *const files[], const char *golden)
{
    pb_import im;
    capture c;
    pb_table t;
    char path[1024];
    CHECK_OK(pb_import_open(tool, &im));
    for (; *files; files++) {
        snprintf(path, sizeof path, EXCHANGE "%s", *files);
        CHECK_OK(pb_import_file(&im, path));
    }
    CHECK_OK(pb_import_finish(&im));
    pb_import_write(&im, "20260131T120000Z-import-0000", "this-machine", capture_begin(&c));
    capture_end(&c);
    CHECK_OK(pb_table_parse(golden, c.text, c.n, &t)); /* report and compare can read it */
    assert_int_equal(t.n, im.n);
    check_golden(c.text, golden);
    pb_table_free(&t);
    pb_import_close(&im);
    free(c.text);
}

static void other_tools_are_read(void **state)
{
    (void)state;
    check_import("nvbench", (const char *const[]){"nvbench.csv", NULL}, "nvbench_csv.csv");
    check_import("nvbench", (const char *const[]){"nvbench.json", NULL}, "nvbench_json.csv");
    /* the same file twice gives two processes */
    check_import("nccl-tests", (const char *const[]){"nccl.txt", "nccl.txt", NULL}, "nccl_text.csv");
    check_import("nccl-tests", (const char *const[]){"nccl.json", NULL}, "nccl_json.csv");
}

#define NVBENCH "Benchmark,Device,Device Name,N,Skipped,Samples,GPU Time (sec)\n"
#define NCCL                                                                                                           \
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"                                   \
    "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n"
#define ROW "1024 256 float sum -1 10.0 1.0 1.0 0 10.0 1.0 1.0 0\n"
#define END "# Out of bounds values : 0 OK\n"

/* A control character, also a C1 one in UTF-8 (U+0097), must not get into a key or a note: the reader of results
 * refuses it. */
static void control_characters_are_replaced(void **state)
{
    static const char text[] = NVBENCH "x\xc2\x97y,0,H\xc2\x97 200,2^\x7f\xc2\x80"
                                       "20,No,5,1e-6\n";
    pb_import im;
    pb_table t;
    capture c;
    (void)state;
    CHECK_OK(pb_import_open("nvbench", &im));
    CHECK_OK(pb_import_bytes(&im, "in", text, sizeof text - 1));
    CHECK_OK(pb_import_finish(&im));
    pb_import_write(&im, "run", "machine", capture_begin(&c));
    capture_end(&c);
    CHECK_OK(pb_table_parse("out", c.text, c.n, &t));
    assert_non_null(strstr(t.rows[0].key, "x__y"));
    assert_non_null(strstr(t.rows[0].key, "N=2^___20"));
    pb_table_free(&t);
    pb_import_close(&im);
    free(c.text);
}

static void malformed_imports_are_refused_with_file_and_line(void **state)
{
    static const struct {
        const char *tool, *text, *why;
    } cases[] = {
        {"nvbench", "", "in: the file is empty"},
        {"nvbench", "a,b\n", "in:1: not nvbench's CSV"},
        {"nvbench", NVBENCH, "in: the file has no results"},
        {"nvbench", NVBENCH "x,0,H200,1,No,5,1e-6", "in:2: cut off"},
        {"nvbench", NVBENCH "x,0,H200,1,No,5\n", "in:2: 6 fields where the header has 7"},
        {"nvbench", NVBENCH "x,0,H200,1,No,5,fast\n", "in:2: not a number: fast"},
        {"nvbench", NVBENCH "x,0,H200,1,Maybe,5,1\n", "in:2: Skipped must be Yes or No, not Maybe"},
        {"nvbench", NVBENCH ",0,H200,1,No,5,1\n", "in:2: an empty name"},
        {"nvbench", NVBENCH "x,0,H200,1,No,5,1\nx,0,H200,1,No,5,1\n", "in:3: the file has two results for"},
        {"nvbench", "Benchmark,Device Name,Skipped,Odd\nx,H,No,\ny,H,No,3\n", "in:3: the CSV does not say"},
        {"nvbench", "{", "in:1: not JSON"},
        {"nvbench", "{\n\"a\": 1,\n}\n", "in:3: not JSON"},
        {"nvbench", "{\"a\": 1}", "no list 'benchmarks'"},
        {"nvbench", "{\"benchmarks\": [{\"name\": \"x\", \"states\": [{\"device\": null}]}]}",
         "benchmarks[0].states[0]: is_skipped is missing"},
        {"nccl-tests", "hello\n", "in: not what nccl-tests prints"},
        {"nccl-tests", NCCL ROW, "in:3: cut off: no line '# Out of bounds values'"},
        {"nccl-tests", NCCL "1024 256 float sum -1 10.0 1.0\n" END, "in:3: 7 fields where the header has 13 columns"},
        {"nccl-tests", NCCL "1024 256 float sum -1 slow 1.0 1.0 0 10.0 1.0 1.0 0\n" END, "in:3: not a number: slow"},
        {"nccl-tests", NCCL ROW ROW END, "in:4: the file has two results for"},
        {"nccl-tests", "# size count type redop root time algbw busbw error time algbw busbw error\n",
         "no column '#wrong'"},
        {"nccl-tests", "# size count type time busbw #wrong time algbw busbw #wrong\n", "header lacks a column"},
        {"nccl-tests", "# size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong\n",
         "in:1: the times are those of the host (-C)"},
        {"nccl-tests", "{\"results\": []}", "cut off: no 'out_of_bounds'"},
        {"nccl-tests", "{\"results\": [{\"size\": 1}], \"out_of_bounds\": {}}", "results[0]: size, type"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pb_import im;
        CHECK_OK(pb_import_open(cases[i].tool, &im));
        pb_status s = pb_import_bytes(&im, "in", cases[i].text, strlen(cases[i].text));
        if (s == PB_OK) s = pb_import_finish(&im);
        pb_import_close(&im);
        if (s != PB_EINVAL) fail_msg("taken: %s", cases[i].text);
        if (!strstr(pb_error(), cases[i].why) || strchr(pb_error(), '\n'))
            fail_msg("'%s' does not say '%s'", pb_error(), cases[i].why);
    }
    pb_import im;
    assert_int_equal(pb_import_open("nvbnech", &im), PB_EINVAL);
    assert_non_null(strstr(pb_error(), "did you mean 'nvbench'?"));
}

/* Hidden values of nvbench are not counted as missing, whether bench has a metric for them or not. */
static void figures_without_a_metric_are_counted(void **state)
{
#define SUMMARY(tag, more) "{\"tag\": \"" tag "\", " more "\"data\": [{\"name\": \"value\", \"value\": \"1e-6\"}]}"
#define HIDDEN             "\"hide\": \"yes\", "
#define TIME(more)         SUMMARY("nv/cold/time/gpu/mean", more)
    static const struct {
        const char *summaries;
        size_t left_out;
    } cases[] = {{TIME(HIDDEN), 0}, {TIME(HIDDEN) "," SUMMARY("a", ""), 1}, {TIME("") "," SUMMARY("b", HIDDEN), 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        pb_import im;
        snprintf(text, sizeof text,
                 "{\"benchmarks\": [{\"name\": \"x\", \"states\": [{\"device\": 0, \"is_skipped\": false, "
                 "\"axis_values\": [], \"summaries\": [%s]}]}]}",
                 cases[i].summaries);
        CHECK_OK(pb_import_open("nvbench", &im));
        CHECK_OK(pb_import_bytes(&im, "in", text, strlen(text)));
        CHECK_OK(pb_import_finish(&im));
        assert_int_equal(im.left_out, cases[i].left_out);
        pb_import_close(&im);
    }
}

/* ---- Markdown and JUnit XML of a comparison -------------------------------------------------------- */

static void check_compare(const char *base, const char *cand, const char *again, const char *format, int want,
                          const char *golden)
{
    capture c;
    const pb_compare_opts o = {.gates = run_file("gates"), .confirmed = again, .format = format};
    assert_int_equal(pb_compare_files(base, cand, &o, capture_begin(&c)), want);
    capture_end(&c);
    check_golden(c.text, golden);
    free(c.text);
}

static void comparisons_as_markdown_and_junit(void **state)
{
    (void)state;
    check_compare(EXCHANGE "run.csv", EXCHANGE "slower.csv", NULL, "markdown", 0, "compare.md");
    check_compare(EXCHANGE "run.csv", EXCHANGE "slower.csv", NULL, "junit", 0, "compare.xml");
    check_compare(run_file("sessions_10"), run_file("new_4"), run_file("again_16"), "markdown", 1, "regressed.md");
    check_compare(run_file("sessions_10"), run_file("new_4"), run_file("again_16"), "junit", 1, "regressed.xml");
    check_compare(run_file("sessions_10"), run_file("new_16_elsewhere"), NULL, "markdown", 0, "reference.md");
    check_compare(run_file("base"), run_file("failed"), NULL, "junit", 4, "failed.xml");
    check_compare(run_file("base"), run_file("suspect"), NULL, "junit", 0, "suspect.xml");
    check_compare(run_file("base"), run_file("missing"), NULL, "junit", 4, "missing.xml");
    check_compare(run_file("base"), run_file("tie"), NULL, "markdown", 0, "tie.md"); /* below: 256 rows regressed */
    check_compare(run_file("many_base"), run_file("many_regressed"), NULL, "markdown", 0, "many.md");
}

static void a_run_without_a_baseline(void **state)
{
    capture c;
    pb_compare_opts o = {.gates = run_file("gates"), .baselines = "/no/such", .format = "junit"};
    (void)state;
    assert_int_equal(pb_compare_baseline(EXCHANGE "run.csv", &o, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "<skipped type=\"NO-BASELINE\""));
    free(c.text);
    o.require_baseline = true;
    assert_int_equal(pb_compare_baseline(EXCHANGE "run.csv", &o, capture_begin(&c)), 4);
    assert_non_null(strstr(capture_end(&c), "<error type=\"NO-BASELINE\""));
    free(c.text);
    o.format = "markdown";
    assert_int_equal(pb_compare_baseline(EXCHANGE "run.csv", &o, capture_begin(&c)), 4);
    assert_int_equal(strncmp(capture_end(&c), "### bench: no baseline to compare with (exit 4)\n", 48), 0);
    free(c.text);
}

static void reports_as_markdown_and_junit(void **state)
{
    static const struct {
        const char *run, *format, *golden;
        pb_exit want;
    } cases[] = {
        {EXCHANGE "run.csv", "markdown", "report.md", 4},
        {EXCHANGE "run.csv", "junit", "report.xml", 4},
        {PB_SOURCE_DIR "/tests/fixtures/report/others.csv", "markdown", "others.md", 0},
    };
    capture c;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pb_report_opts o = {.format = cases[i].format};
        assert_int_equal(pb_report(cases[i].run, &o, capture_begin(&c)), cases[i].want);
        capture_end(&c);
        check_golden(c.text, cases[i].golden);
        free(c.text);
    }
}

static void markup_in_text_is_escaped(void **state)
{
    capture c;
    (void)state;
    pb_xml(capture_begin(&c), "a<b>&\"c'\x01\xff\xc3\xa9");
    assert_string_equal(capture_end(&c), "a&lt;b&gt;&amp;&quot;c&apos;??\xc3\xa9");
    free(c.text);
    pb_markdown(capture_begin(&c), "a|b`c_d\n<i>", false);
    assert_string_equal(capture_end(&c), "a\\|b\\`c\\_d \\<i\\>");
    free(c.text);
    pb_markdown(capture_begin(&c), "a|b`c_d", true);
    assert_string_equal(capture_end(&c), "`a\\|b'c_d`");
    free(c.text);
    pb_markdown(capture_begin(&c), "", true);
    assert_string_equal(capture_end(&c), "");
    free(c.text);
    assert_true(pb_is_utf8("\xc3\xa9") && !pb_is_utf8("\xc3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_equal_the_golden_files),
        cmocka_unit_test(gbench_has_the_fields_its_tools_need),
        cmocka_unit_test(dashboards_get_the_fields_they_need),
        cmocka_unit_test(mllog_lines_are_events),
        cmocka_unit_test(an_impossible_export_gives_the_reason),
        cmocka_unit_test(other_tools_are_read),
        cmocka_unit_test(control_characters_are_replaced),
        cmocka_unit_test(malformed_imports_are_refused_with_file_and_line),
        cmocka_unit_test(figures_without_a_metric_are_counted),
        cmocka_unit_test(comparisons_as_markdown_and_junit),
        cmocka_unit_test(a_run_without_a_baseline),
        cmocka_unit_test(reports_as_markdown_and_junit),
        cmocka_unit_test(markup_in_text_is_escaped),
    };
    return cmocka_run_group_tests(tests, open_runs, close_runs);
}
