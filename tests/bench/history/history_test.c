/* history_test.c - bench history: which sessions become a row, where their change points are, and every format. */
#include <sys/stat.h>

#include "bench/history/history_formats.h"
#include "tests/bench/files_test.h"

#define HEADER    "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note"
#define KEY       "backward/step?batch=1&seq=32"
#define OTHER_KEY "backward/step?batch=4&seq=32"
#define THIRD_KEY "throughput/step?batch=1"
enum { SESSIONS = 20, CHANGE_AT = 12 };

static char folder[] = "/tmp/pb_history_XXXXXX";

static FILE *open_in(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}

static const char *in(const char *name)
{
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static void make_dir(const char *name) { assert_int_equal(mkdir(in(name), 0755), 0); }

/* Values around 1 that alternate with period 3; 10 % more from session CHANGE_AT on. */
static double value_of(int session) { return (session < CHANGE_AT ? 1 : 1.1) * (1 + 0.002 * (session % 3)); }

static void put_session(FILE *f, int session, const char *key, const char *metric_unit_better, double value)
{
    fprintf(f, "2,baseline:202601%02dT120000Z-backward-00%02d,m1,3,%s,%s,%.4g,0,ok,why,c%02d\n", session + 1, session,
            key, metric_unit_better, value, session / 2);
}

/* The stored sessions: a row that changes at CHANGE_AT, one that does not, and a metric that does not gate. The commits
 * are c00, c00, c01, c01, ... */
static void write_baselines(void)
{
    make_dir("base");
    make_dir("base/m1");
    FILE *f = open_in("base/m1/backward.csv");
    fputs(HEADER ",commit\n", f);
    for (int i = 0; i < SESSIONS; i++) {
        put_session(f, i, KEY, "backward_time,s,lower", 0.01 * value_of(i));
        put_session(f, i, KEY, "tokens_per_second,1/s,higher", 3200 / value_of(i));
        put_session(f, i, OTHER_KEY, "backward_time,s,lower", 0.04 * value_of(i % 3));
    }
    fclose(f);
    f = open_in("base/gates.csv");
    fputs("suite,metric,better,stored_limit,ceiling,gating\nbackward,backward_time,lower,0.15,,yes\n", f);
    fclose(f);
    make_dir("base/exact"); /* exact counters, which are of no machine */
    f = open_in("base/exact/backward.csv");
    fputs(HEADER "\n2,baseline:r,cpu,1," KEY ",backward_time,s,lower,7,0,ok,\n", f);
    fclose(f);
    f = open_in("base/m1/peers.csv"); /* not a baseline: its rows are those of runs */
    fputs(HEADER "\n2,r,m1,0," KEY ",backward_time,s,lower,7,0,ok,\n", f);
    fclose(f);
}

static void write_run(const char *name, const char *version, const char *machine, const char *commit, const char *about,
                      double value)
{
    char path[200];
    snprintf(path, sizeof path, "runs/%s", name);
    make_dir(path);
    snprintf(path, sizeof path, "runs/%s/results.csv", name);
    FILE *f = open_in(path);
    fputs(HEADER ",commit\n", f);
    for (int p = 0; p < 3; p++)
        fprintf(f, "%s,%s-0000,%s,%d," KEY ",backward_time,s,lower,%g,10,ok,,%s\n", version, name, machine, p,
                value + 0.1 * (p - 1), commit);
    fclose(f);
    snprintf(path, sizeof path, "runs/%s/run.json", name);
    f = open_in(path);
    fprintf(f, "{\"commit\": \"%s\"}\n", about);
    fclose(f);
}

static void write_runs(void)
{
    make_dir("runs");
    make_dir("runs/20260101T000000Z-compare"); /* not a run */
    write_run("20260103T000000Z-backward", "2", "m1", "aaa", "zzz", 3);
    write_run("20260102T000000Z-backward", "2", "m1", "", "bbb",
              2); /* an older program: only run.json has the commit */
    write_run("20260101T000000Z-backward", "nvbench", "m1", "ccc", "ccc", 1);
    write_run("20260104T000000Z-backward", "2", "m2", "unknown", "unknown", 4);
}

static int open_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_baselines();
    write_runs();
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static pb_history_opts options(void)
{
    return (pb_history_opts){.baselines = in("base"), .ascii = true, .rule = {0.01, 0.01}};
}

/* The output, which the caller frees; notes are appended. */
static char *history(pb_history_opts o)
{
    capture c;
    FILE *out = capture_begin(&c);
    if (pb_history(&o, out, out) != PB_EXIT_OK) fail_msg("%s", pb_error());
    capture_end(&c);
    return c.text;
}

static void says(char *text, const char *const *wanted)
{
    for (; *wanted; wanted++)
        if (!strstr(text, *wanted)) fail_msg("'%s' is not in\n%s", *wanted, text);
    free(text);
}

static void complains(pb_history_opts o, const char *text)
{
    capture c;
    assert_int_equal(pb_history(&o, capture_begin(&c), stderr), PB_EXIT_USAGE);
    assert_string_equal(capture_end(&c), "");
    free(c.text);
    if (!strstr(pb_error(), text)) fail_msg("'%s' does not say '%s'", pb_error(), text);
}

/* ---- stored sessions ----------------------------------------------------------------------------- */

static void a_change_is_shown_with_its_time_size_and_commits(void **state)
{
    static const char rows[] =
        "batch=1  backward_time       20       10.0 ms       11.0 ms   +10.2 %  ____________########\n"
        "    2026-01-13T12:00:00Z  +10.0 % (worse), 10.0 ms -> 11.0 ms, p = 0.002, commits c05..c06\n"
        "batch=4  backward_time       20       40.0 ms       40.1 ms    +0.2 %  _~#_~#_~#_~#_~#_~#_~\n";
    (void)state;
    char *text = history(options());
    if (strstr(text, "tokens_per_second")) fail_msg("a metric that does not gate is shown:\n%s", text);
    says(text, (const char *const[]){"m1, 2026-01-01T12:00:00Z to 2026-01-20T12:00:00Z\n", "backward/step seq=32\n",
                                     rows, "\nhistory: rows=2 change_points=1 worse=1 better=0 alpha=0.01\n", NULL});
}

static void rows_are_selected_by_key_metric_and_machine(void **state)
{
    static const char *const four[] = {"batch=4"}, *const glob[] = {"*batch=1&*"};
    pb_history_opts o = options();
    (void)state;
    o.all = true;
    says(history(o), (const char *const[]){"rows=3 change_points=2 worse=2 better=0", NULL});
    o.keys = glob, o.nkeys = 1;
    says(history(o), (const char *const[]){"rows=2 change_points=2", NULL});
    o.all = false, o.metric = "tokens_per_second";
    says(history(o), (const char *const[]){"-9.1 % (worse), 3.19 k/s -> 2.90 k/s", "rows=1 change_points=1", NULL});
    o.keys = four;
    complains(o, "none of 3 rows is selected");
    o.metric = NULL;
    says(history(o), (const char *const[]){"rows=1 change_points=0", NULL});
    o.machine = "m2";
    complains(o, "none of 3 rows is selected; --all selects also the metrics that do not gate");
    o.machine = NULL, o.metric = "tokens_per_secnod";
    complains(o, "did you mean 'tokens_per_second'?");
}

static void the_smallest_change_and_alpha_can_be_chosen(void **state)
{
    pb_history_opts o = options();
    (void)state;
    o.rule.min_change = 0.12;
    says(history(o), (const char *const[]){"change_points=0", NULL});
    o.rule = (pb_change_rule){0.05, 0.01};
    says(history(o), (const char *const[]){"change_points=1 worse=1 better=0 alpha=0.05", NULL});
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static void runs_are_sessions_in_the_order_of_time(void **state)
{
    pb_history_opts o = options();
    (void)state;
    o.runs = in("runs"), o.format = "csv";
    says(history(o),
         (const char *const[]){
             "bench: history: 1 values left out: they are of another bench_version\n",
             "m1," KEY ",backward_time,s,lower,20260102T000000Z-backward-0000,2026-01-02T00:00:00Z,bbb,2,,,,,,\n"
             "m1," KEY ",backward_time,s,lower,20260103T000000Z-backward-0000,2026-01-03T00:00:00Z,aaa,3,,,,,,\n"
             "m2," KEY ",backward_time,s,lower,20260104T000000Z-backward-0000,2026-01-04T00:00:00Z,,4,,,,,,\n",
             NULL});
    o.format = NULL;
    says(history(o), (const char *const[]){"m1, 2026-01-02T00:00:00Z to 2026-01-03T00:00:00Z\n", "+50.0 %  _#\n",
                                           "m2, 2026-01-04T00:00:00Z to 2026-01-04T00:00:00Z\n",
                                           "note: 2 of 2 rows have fewer than 10 sessions, too few", NULL});
}

static void wrong_input_is_one_line(void **state)
{
    pb_history_opts o = options();
    (void)state;
    o.runs = in("none");
    complains(o, "none: No such file or directory");
    o.runs = in("base");
    complains(o, "base: the folder holds no run with a value");
    o = options(), o.baselines = in("runs"), o.all = true;
    complains(o, "runs: no stored session");
    o.all = false;
    complains(o, "gates.csv");
    make_dir("twice");
    make_dir("twice/a");
    make_dir("twice/b");
    for (int i = 0; i < 2; i++) {
        FILE *f = open_in(i ? "twice/a/results.csv" : "twice/b/results.csv");
        fputs(HEADER "\n2,r,m1,0," KEY ",backward_time,s,lower,7,0,ok,\n", f);
        fclose(f);
    }
    o = options(), o.runs = in("twice");
    complains(o, "run r is there twice, with backward_time of " KEY);
    FILE *f = open_in("twice/b/results.csv");
    fputs("no header\n", f);
    fclose(f);
    complains(o, "twice/b/results.csv:1: the header lacks the column");
}

/* ---- formats ------------------------------------------------------------------------------------- */

static void csv_marks_the_session_of_a_change(void **state)
{
    static const char *const one[] = {"batch=1"};
    pb_history_opts o = options();
    (void)state;
    o.format = "csv", o.keys = one, o.nkeys = 1;
    char *text = history(o), *line = strstr(text, "20260113T");
    assert_non_null(line);
    assert_int_equal(
        strncmp(line, "20260113T120000Z-backward-0012,2026-01-13T12:00:00Z,c06,0.011,0.1,0.0100200000,", 40), 0);
    const double change = strtod(strstr(line, ",0.011,") + strlen(",0.011,"), NULL);
    CHECK_NEAR(change, 0.1, 0.002);
    *strchr(line, '\n') = 0;
    assert_non_null(strstr(line, ",c05..c06"));
    free(text);
    text = history(o);
    int lines = 0, marked = 0;
    for (char *at = text; (at = strchr(at, '\n')); at++) lines++;
    for (char *at = text; (at = strstr(at, "..c")); at++) marked++;
    assert_int_equal(lines, 1 + SESSIONS);
    assert_int_equal(marked, 1);
    free(text);
}

static void otava_gets_a_line_for_each_session(void **state)
{
    static const char *const backward[] = {"backward/"};
    char config[4096] = "";
    pb_history_opts o = options();
    (void)state;
    o.format = "otava", o.keys = backward, o.nkeys = 1;
    says(history(o), (const char *const[]){"time,commit," KEY " backward_time," OTHER_KEY " backward_time\n"
                                           "2026-01-01T12:00:00Z,c00,0.01,0.04\n"
                                           "2026-01-02T12:00:00Z,c00,0.01002,0.04008\n",
                                           "\n2026-01-20T12:00:00Z,c09,0.01102,0.04008\n", NULL});
    o.out = in("otava.csv");
    says(history(o), (const char *const[]){"otava.csv\n", "otava.yaml\n", NULL});
    FILE *f = fopen(in("otava.yaml"), "rb");
    assert_non_null(f);
    assert_true(fread(config, 1, sizeof config - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(config, "      \"" KEY " backward_time\":\n        column: \"" KEY " backward_time\"\n"
                                   "        direction: -1\n"));
    o.out = NULL, o.runs = in("runs");
    complains(o, "of one machine, but there are rows of m1 and m2; --machine NAME selects one");
    o.machine = "m1";
    says(history(o), (const char *const[]){"\n2026-01-02T00:00:00Z,bbb,2\n2026-01-03T00:00:00Z,aaa,3\n", NULL});
}

/* Otava reads no empty fields, so a row without a value in some session cannot be exported. */
static void otava_gets_only_rows_with_all_sessions(void **state)
{
    char text[1 << 14] = "";
    pb_history_opts o = options();
    (void)state;
    make_dir("gaps");
    make_dir("gaps/m1");
    FILE *f = fopen(in("base/m1/backward.csv"), "rb");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    f = open_in("gaps/m1/backward.csv");
    fputs(text, f);
    put_session(f, 1, THIRD_KEY, "step_time,s,lower", 5);
    fclose(f);
    o.format = "otava", o.baselines = in("gaps"), o.all = true;
    says(history(o), (const char *const[]){"bench: otava: 1 left out: they have no value in some of the 20 sessions\n",
                                           "time,commit," KEY " backward_time," KEY " tokens_per_second," OTHER_KEY
                                           " backward_time\n",
                                           NULL});
}

/* A program in place of gnuplot writes its input as the picture. */
static void svg_draws_a_picture_for_each_row(void **state)
{
    static const char heading[] = "variants=1; heading='backward_time [s] of " KEY ", m1'";
    char data[4096] = "", name[256] = "";
    pb_history_opts o = options();
    (void)state;
    FILE *f = open_in("gnuplot");
    fputs("#!/bin/sh\n(cat settings.gp data; echo '</svg>') >picture\n", f);
    fclose(f);
    assert_int_equal(chmod(in("gnuplot"), 0755), 0);
    o.format = "svg", o.gnuplot = in("gnuplot"), o.out = in("pictures");
    char *text = history(o);
    assert_int_equal(sscanf(text, "wrote %255[^\n]", name), 1);
    free(text);
    assert_non_null(strstr(name, "pictures/backward-backward_time-"));
    f = fopen(name, "rb");
    assert_non_null(f);
    assert_true(fread(data, 1, sizeof data - 1, f) > 0);
    fclose(f);
    says(strdup(data), (const char *const[]){heading, "\n1 0.01 \"2026-01-01\"\n", "\n2 0.01002 \"\"\n",
                                             "\n0.5 12.5 0.01002\n12.5 20.5 0.0110", "\n12.5 \"+10.0 %\"\n", NULL});
}

/* ---- sparklines ----------------------------------------------------------------------------------- */

static void sparklines_have_eight_heights(void **state)
{
    pb_history_value v[100] = {{0}};
    char text[PB_SPARKLINE_TEXT];
    (void)state;
    for (int i = 0; i < 8; i++) v[i].value = i;
    pb_sparkline(v, 8, true, text);
    assert_string_equal(text, "_.-~=+*#");
    pb_sparkline(v, 8, false, text);
    assert_string_equal(text, "▁▂▃▄▅▆▇█");
    for (int i = 0; i < 100; i++) v[i].value = 7;
    pb_sparkline(v, 3, true, text);
    assert_string_equal(text, "~~~");
    for (int i = 0; i < 100; i++) v[i].value = i;
    pb_sparkline(v, 100, false, text);
    assert_int_equal(strlen(text), PB_SPARKLINE_TEXT - 1);
    assert_int_equal(strncmp(text, "▁▁▁▁▁▂", 18), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_is_shown_with_its_time_size_and_commits),
        cmocka_unit_test(rows_are_selected_by_key_metric_and_machine),
        cmocka_unit_test(the_smallest_change_and_alpha_can_be_chosen),
        cmocka_unit_test(runs_are_sessions_in_the_order_of_time),
        cmocka_unit_test(wrong_input_is_one_line),
        cmocka_unit_test(csv_marks_the_session_of_a_change),
        cmocka_unit_test(otava_gets_a_line_for_each_session),
        cmocka_unit_test(otava_gets_only_rows_with_all_sessions),
        cmocka_unit_test(svg_draws_a_picture_for_each_row),
        cmocka_unit_test(sparklines_have_eight_heights),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
