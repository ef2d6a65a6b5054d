/* baseline_test.c - tests of stored baselines: which rows of a run are stored, which runs are accepted, and how
 * sessions are added and dropped. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/rows/metric.h"
#include "tests/bench/compare/compare_cases.h"

static void runs_are_compared_with_the_saved_baseline(void **state)
{
    char folder[64], file[128], other[128], text[4096] = "";
    capture c;
    (void)state;
    make_folder(folder);
    assert_int_equal(against_baseline(run_file("base"), (pb_compare_opts){0}, folder, "NO-BASELINE"), 0);
    assert_int_equal(against_baseline(run_file("base"), (pb_compare_opts){0}, folder, "/m1/backward.csv"), 0);
    pb_compare_opts require = {.require_baseline = true};
    assert_int_equal(against_baseline(run_file("base"), require, folder, "exit=4"), 4);

    pb_baseline_opts o = {.baselines = folder, .machine = "lab", .reason = "first, ever"};
    assert_int_equal(pb_baseline_save(run_file("requirement_pass"), &o, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "9 rows")); /* 2 cases x 3 metrics, 2 ceilings, 1 requirement */
    free(c.text);
    assert_int_equal(against_baseline(run_file("tie"), require, folder, "same=3"), 0);
    assert_int_equal(against_baseline(run_file("regressed"), require, folder, " 3/3        SUSPECT"), 0);
    assert_int_equal(against_baseline(run_file("ceiling_moved"), require, folder, "suspect=3"), 0);
    assert_int_equal(against_baseline(run_file("machine"), require, folder, "m2/backward.csv"), 4);
    assert_int_equal(against_baseline(run_file("missing"), (pb_compare_opts){0}, folder, "missing=1"), 4);
    /* The run has two suites; only one of them has a stored baseline. */
    assert_int_equal(
        against_baseline(run_file("counters"), (pb_compare_opts){.format = "junit"}, folder, "/m1/throughput.csv\""),
        4);

    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "baseline:r1"));
    assert_non_null(strstr(text, ",0.1002,")); /* the stored value is the median over processes, rounded to 4 digits */
    assert_non_null(strstr(text, ",319.4,"));  /* 4 digits of 319.361277 */
    assert_int_equal(pb_baseline_show("m1", &o, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "m1 backward: 9 rows, 3 processes, bench_version 2, from r1: first, ever"));
    free(c.text);
    snprintf(other, sizeof other, "%s/m1/a_table.csv", folder);
    write_text(other, "name,found\nx,yes\n");
    assert_int_equal(pb_baseline_show("m1", &o, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "m1 a_table.csv: a table of another program, no sessions\nm1 backward: 9"));
    free(c.text);
    write_text(other, ""); /* a results file that lost its text is not a table of another program */
    assert_int_equal(pb_baseline_show("m1", &o, stderr), 2);
    assert_int_equal(pb_compare_files(file, run_file("regressed"), &(pb_compare_opts){.gates = run_file("gates")},
                                      capture_begin(&c)),
                     0);
    capture_end(&c);
    free(c.text);
    remove_folder(folder);
}

/* A baseline keeps the rows that tables are made from: metrics without a direction, gains of graphs, requirements.
 * None of them fails a comparison, not even when a graph is no longer faster. */
static void a_baseline_keeps_requirements_and_crossovers(void **state)
{
    static const char *const kept[] = {
        "mode=graph&seq=128,kernel_launches,1,none,1,0,ok,why", "mode=graph&seq=128,record_time,s,none,0.5,0,ok,why",
        "mode=graph&seq=128,break_even,1,none,25,0,ok,why",
        "requirement/F-GRAPH-BWD-003a?batch=1,requirement,1,none,1.25,0,fail,tokens/s over tokens/s >= 1.1; here",
        "crossover/backward?clip=fused,crossover,1,none,700,0,ok,3 sizes"};
    char folder[64], file[128], text[8192] = "";
    capture c;
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = {.baselines = folder, .machine = "lab", .reason = "why"};
    assert_int_equal(pb_baseline_save(run_file("gains"), &o, capture_begin(&c)), 0);
    assert_null(strstr(capture_end(&c), "crossover.csv")); /* crossovers are rows of the suite backward */
    free(c.text);
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strstr(text, kept[i])) fail_msg("'%s' is not in\n%s", kept[i], text);
    assert_null(strstr(text, "F-GRAPH-BWD-003b")); /* that requirement did not apply to the run */
    for (const char *const *n = (const char *const[]){"kernel_launches", "host_syncs", "allocations", NULL}; *n; n++)
        assert_true(pb_metric_stored(*n)); /* counters that are not in this run */
    assert_int_equal(against_baseline(run_file("gains_gone"), (pb_compare_opts){0}, folder, "failed=0"), 0);
    assert_int_equal(against_baseline(run_file("gains"), (pb_compare_opts){0}, folder, "same=3"), 0);
    remove_folder(folder);
}

static void incomplete_runs_are_refused(void **state)
{
    static const struct {
        const char *run, *why;
    } refused[] = {{"single", "has 1 of the 3"}, {"failed", "is wrong"},       {"one_process_failed", "is failed"},
                   {"truncated", "cut off"},     {"header_only", "no rows"},   {"many_base", "3 processes needed"},
                   {"two_runs", "several runs"}, {"cut_short", "is truncated"}};
    char folder[64];
    capture c;
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = {.baselines = folder, .runs = folder};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(pb_baseline_save(run_file(refused[i].run), &o, capture_begin(&c)), 2);
        if (*capture_end(&c)) fail_msg("%s: saved: %s", refused[i].run, c.text);
        if (!strstr(pb_error(), refused[i].why)) fail_msg("%s: %s", refused[i].run, pb_error());
        free(c.text);
    }
    assert_int_equal(pb_baseline_save(NULL, &o, stderr), 2); /* the folder holds no run */
    assert_non_null(strstr(pb_error(), "no run"));
    assert_int_equal(pb_baseline_show(NULL, &o, stderr), 2);
    remove_folder(folder);
}

static void names_cannot_lead_out_of_the_folder(void **state)
{
    char path[64];
    (void)state;
    CHECK_OK(pb_baseline_path("baselines", "m-1.x", "backward", path, sizeof path));
    assert_string_equal(path, "baselines/m-1.x/backward.csv");
    CHECK_FAILS(pb_baseline_path("b", "../etc", "s", path, sizeof path), PB_EINVAL, "cannot be used as a folder name");
    CHECK_FAILS(pb_baseline_path("b", "a/b", "s", path, sizeof path), PB_EINVAL, "cannot be used as a folder name");
    CHECK_FAILS(pb_baseline_path("b", "", "s", path, sizeof path), PB_EINVAL, "cannot be used as a folder name");
    CHECK_FAILS(pb_baseline_path("b", "m", "..", path, sizeof path), PB_EINVAL, "cannot be used as a file name");
}

/* ---- adding and dropping sessions -------------------------------------------------------------- */

static void everything_that_a_comparison_reads_is_stored(void **state)
{
    (void)state;
    for (const pb_metric *m = pb_metrics; m->name; m++) {
        const bool read = pb_counter_share(m->name) >= 0 || pb_metric_bound_find("backward/step?dtype=f32", m->name);
        if (read && !pb_metric_stored(m->name)) fail_msg("%s is read, and not stored", m->name);
    }
    assert_true(pb_metric_stored("of_another_tool"));
    assert_false(pb_metric_stored("host_time"));
}

/* A metric that no comparison or table reads from a baseline is stored only if it gates. If it is not stored, a
 * comparison with the baseline does not report it as NEW. */
static void what_nothing_reads_is_not_stored(void **state)
{
    static const char head[] =
        "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note\n";
    char folder[64], run[128], file[128], gates[128], text[2048];
    capture c;
    (void)state;
    make_folder(folder);
    snprintf(run, sizeof run, "%s/run.csv", folder);
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    snprintf(gates, sizeof gates, "%s/gates.csv", folder);
    int n = snprintf(text, sizeof text, "%s", head);
    for (int process = 0; process < 3; process++)
        for (int k = 0; k < 3; k++)
            n += snprintf(text + n, sizeof text - (size_t)n, "2,20250101,m1,%d,backward/step?batch=1,%s,9,ok,\n",
                          process,
                          (const char *const[]){"backward_time,s,lower,0.1", "host_time,s,lower,0.2",
                                                "device_memory,B,none,4096"}[k]);
    write_text(run, text);
    for (int gating = 0; gating < 2; gating++) {
        write_text(gates, gating
                              ? "suite,metric,better,stored_limit,ceiling,gating\nbackward,host_time,lower,0.1,,yes\n"
                              : "suite,metric,better,stored_limit,ceiling,gating\nbackward,host_time,lower,0.1,,no\n");
        assert_int_equal(pb_baseline_save(run, &(pb_baseline_opts){.baselines = folder}, capture_begin(&c)), 0);
        assert_non_null(strstr(capture_end(&c), gating ? "2 rows" : "1 rows"));
        free(c.text);
        char *stored = read_text(file);
        assert_non_null(strstr(stored, "backward_time"));
        assert_int_equal(strstr(stored, "host_time") != NULL, gating);
        assert_null(strstr(stored, "device_memory"));
        free(stored);
        pb_compare_opts o = {.gates = gates, .all = true};
        assert_int_equal(pb_compare_files(file, run, &o, capture_begin(&c)), 0);
        const char *said = capture_end(&c);
        if (!strstr(said, "backward_time") || !strstr(said, " new=0 ")) fail_msg("gating %d: %s", gating, said);
        if ((strstr(said, "host_time") != NULL) != gating) fail_msg("gating %d: %s", gating, said);
        free(c.text);
    }
    remove_folder(folder);
}

static pb_baseline_opts options_of(const char *folder, int sessions)
{
    return (pb_baseline_opts){.baselines = folder, .gates = run_file("gates"), .reason = "why", .sessions = sessions};
}

static void update(const char *run, const pb_baseline_opts *o, pb_exit want, const char *says)
{
    capture c;
    const pb_exit e = pb_baseline_update(run, o, capture_begin(&c));
    const char *text = capture_end(&c);
    if (e != want) fail_msg("update: exit %d, want %d: %s%s", (int)e, (int)want, text, e ? pb_error() : "");
    if (!strstr(want ? pb_error() : text, says))
        fail_msg("nothing says '%s': %s%s", says, text, want ? pb_error() : "");
    if (want && *text) fail_msg("refused, and yet: %s", text);
    free(c.text);
}

static void a_session_keeps_the_host_that_measured_it(void **state)
{
    char folder[64], file[128];
    pb_table t;
    pb_series_set set;
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = options_of(folder, 3);
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    update(make_run(folder, 1, 0.1, 1, PB_BENCH_VERSION), &o, 0, "1 session,"); /* a file without the column */
    o.machine = "lab";
    update(make_run(folder, 2, 0.2, 1, PB_BENCH_VERSION), &o, 0, "2 sessions,");
    CHECK_OK(pb_table_read(file, &t));
    CHECK_OK(pb_series_make(&t, &set));
    const pb_series *s = pb_series_find(&set, "backward/step?batch=1", "backward_time");
    assert_int_equal(s->sessions, 2);
    assert_false(s->mixed);
    assert_string_equal(s->host, "");
    assert_string_equal(s->session[0].host, "");
    assert_string_equal(s->session[1].host, "lab/");
    assert_true(s->session[1].value == 0.2);
    pb_series_free(&set);
    pb_table_free(&t);
    o.machine = "other"; /* the sessions of the file are not a run, but name the machine */
    assert_int_equal(pb_baseline_update(file, &o, stderr), 2);
    assert_non_null(strstr(pb_error(), "was measured on the machine lab"));
    remove_folder(folder);
}

static void updates_keep_the_last_sessions(void **state)
{
    char folder[64], file[128];
    capture c;
    (void)state;
    make_folder(folder);
    const pb_baseline_opts o = options_of(folder, 3);
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    update(make_run(folder, 1, 0.1, 1, PB_BENCH_VERSION), &o, 0, "2 rows, 1 session,");
    update(make_run(folder, 3, 0.1, 0.8, PB_BENCH_VERSION), &o, 0, "4 rows, 2 sessions,");
    /* an older session is inserted in order */
    update(make_run(folder, 2, 0.101, 1, PB_BENCH_VERSION), &o, 0, "6 rows, 3 sessions,");
    char *before = read_text(file);
    /* an improvement never fails an update */
    update(make_run(folder, 4, 0.05, 1, PB_BENCH_VERSION), &o, 0, "3 sessions (1 older dropped)");
    char *after = read_text(file);
    const char *kept = strstr(before, "2,baseline:20250102");
    assert_non_null(kept);
    assert_null(strstr(after, "20250101"));
    assert_non_null(strstr(after, kept)); /* the other sessions are unchanged */
    const char *order[] = {"20250102,", "20250103,", "20250104,"}, *at = after;
    for (int i = 0; i < 3; i++) assert_non_null(at = strstr(at, order[i]));
    assert_null(strstr(at, "20250103,"));
    assert_int_equal(pb_baseline_show("m1", &o, capture_begin(&c)), 0);
    assert_non_null(
        strstr(capture_end(&c), "m1 backward: 3 sessions\n  2 rows, 3 processes, bench_version 2, from 2025"));
    free(c.text);
    free(before);
    free(after);
    remove_folder(folder);
}

/* Slow sessions are stored as well: a baseline shows how sessions scatter, and without the slow ones its prediction
 * bounds would be too narrow. */
static void every_value_is_stored(void **state)
{
    char folder[64], file[128];
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = options_of(folder, 0);
    o.machine = "lab";
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    for (int day = 1; day <= 10; day++)
        update(make_run(folder, day, day % 2 ? 0.1 : 0.1002, 1, PB_BENCH_VERSION), &o, 0,
               day == 1 ? "1 session," : " sessions,");
    char *before = read_text(file);
    update(make_run(folder, 2, 0.1, 1, PB_BENCH_VERSION), &o, PB_EXIT_USAGE, "is already a session of this baseline");
    update(make_run(folder, 11, 0.1, 1, "3"), &o, PB_EXIT_USAGE,
           "bench_version differs; `bench baseline save` replaces them");
    o.reason = NULL;
    update(make_run(folder, 11, 0.1, 1, PB_BENCH_VERSION), &o, PB_EXIT_USAGE, "a reason is required: --reason TEXT");
    o.reason = "why";
    o.gates = run_file("no_gates");
    update(make_run(folder, 11, 0.1, 1, PB_BENCH_VERSION), &o, PB_EXIT_USAGE, "which metrics gate");
    o.gates = run_file("gates");
    char *after = read_text(file);
    assert_string_equal(before, after);
    update(make_run(folder, 11, 0.12, 1, PB_BENCH_VERSION), &o, 0, "against the sessions before: 1 ");
    update(make_run(folder, 12, 0.05, 1, PB_BENCH_VERSION), &o, 0, "12 sessions,");
    o.sessions = 2;
    update(make_run(folder, 10, 0.1, 1, PB_BENCH_VERSION), &o, PB_EXIT_USAGE, "is already a session of this baseline");
    update(make_run(folder, 0, 0.1, 1, PB_BENCH_VERSION), &o, PB_EXIT_USAGE,
           "the baseline keeps the newest 2 values of each row, and run");
    capture c;
    assert_int_equal(pb_baseline_save(make_run(folder, 13, 0.2, 1, PB_BENCH_VERSION), &o, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "1 session, the newest"));
    free(c.text);
    free(before);
    free(after);
    remove_folder(folder);
}

static void an_update_without_a_gating_row_is_refused(void **state)
{
    char folder[64], file[128], run[128];
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = options_of(folder, 0);
    o.machine = "lab";
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    update(run_file("base"), &o, 0, "1 session,");
    char *text = read_text(run_file("missing")), *twin;
    for (char *p = text; (p = strstr(p, "1,r1,")); p++) p[3] = '2'; /* change the run_id */
    snprintf(run, sizeof run, "%s/r2.csv", folder);
    write_text(run, text);
    update(run, &o, PB_EXIT_INCOMPARABLE, "the run lacks 1 gating row, such as backward_time of backward/step?batch=");
    o.subset = true;
    update(run, &o, 0, "2 sessions,");
    pb_compare_opts c = {0}; /* the newest stored session lacks the row too, so a comparison no longer expects it */
    assert_int_equal(against_baseline(run, c, folder, "missing=0"), 0);
    twin = read_text(file);
    assert_non_null(strstr(twin, "baseline:r2"));
    free(twin);
    free(text);
    remove_folder(folder);
}

/* Concurrent updates wait for each other: every session is kept and no update fails. */
static void concurrent_updates_are_all_kept(void **state)
{
    enum { AT_ONCE = 8 };
    char folder[64], file[128], run[64], copy[AT_ONCE][128];
    pid_t child[AT_ONCE];
    (void)state;
    make_folder(folder);
    const pb_baseline_opts o = options_of(folder, 0);
    for (int i = 0; i < AT_ONCE; i++) {
        const char *made = make_run(folder, i + 1, 0.1, 1, PB_BENCH_VERSION);
        snprintf(copy[i], sizeof copy[i], "%s/run%d.csv", folder, i);
        assert_int_equal(rename(made, copy[i]), 0);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i]) continue;
        FILE *nowhere = fopen("/dev/null", "w");
        _exit(nowhere ? (int)pb_baseline_update(copy[i], &o, nowhere) : 99);
    }
    for (int i = 0, status; i < AT_ONCE; i++) {
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    char *text = read_text(file);
    for (int i = 0; i < AT_ONCE; i++) {
        snprintf(run, sizeof run, "baseline:202501%02d,", i + 1);
        if (!strstr(text, run)) fail_msg("%s is lost:\n%s", run, text);
    }
    free(text);
    remove_folder(folder);
}

/* A write failure has exit code 2 if another path would help, 125 if the machine cannot write. */
static void write_failures_have_their_exit_codes(void **state)
{
    char folder[64], file[128];
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = options_of(folder, 0);
    const char *run = make_run(folder, 1, 0.1, 1, PB_BENCH_VERSION);
    snprintf(file, sizeof file, "%s/no/such", folder);
    o.baselines = file; /* in a folder that does not exist */
    update(run, &o, PB_EXIT_USAGE, "No such file");
    o.baselines = run; /* a file, not a folder */
    update(run, &o, PB_EXIT_USAGE, "is not a folder");
    o.baselines = "/dev/full";
    update(run, &o, PB_EXIT_USAGE, "is not a folder");
    struct rlimit was;
    o.baselines = folder;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){16, was.rlim_max}), 0);
    update(run, &o, PB_EXIT_HARNESS, "backward.csv");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    update(run, &o, 0, "1 session,");
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_compared_with_the_saved_baseline),
        cmocka_unit_test(a_baseline_keeps_requirements_and_crossovers),
        cmocka_unit_test(everything_that_a_comparison_reads_is_stored),
        cmocka_unit_test(what_nothing_reads_is_not_stored),
        cmocka_unit_test(incomplete_runs_are_refused),
        cmocka_unit_test(names_cannot_lead_out_of_the_folder),
        cmocka_unit_test(a_session_keeps_the_host_that_measured_it),
        cmocka_unit_test(updates_keep_the_last_sessions),
        cmocka_unit_test(every_value_is_stored),
        cmocka_unit_test(concurrent_updates_are_all_kept),
        cmocka_unit_test(write_failures_have_their_exit_codes),
        cmocka_unit_test(an_update_without_a_gating_row_is_refused),
    };
    return cmocka_run_group_tests(tests, open_runs, close_runs);
}
