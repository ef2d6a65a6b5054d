/* compare_test.c - `bench compare` on fixtures: every verdict, every exit code, what is refused and why. */
#include "bench/baseline.h"
#include "bench/compare.h"
#include "tests/files_test.h"

typedef struct expected {
    const char *base, *cand;
    pb_compare_opts opts; /* .gates: a fixture's name; NULL: gates.csv */
    const char *counts;   /* what the last line holds; NULL: an error */
    pb_exit exit;
    const char *text; /* must be in the output, or in the error; NULL: anything */
} expected;

static const expected cases[] = {
    /* verdicts */
    {"base.csv",
     "tie.csv",
     {0},
     "regressed=0 improved=0 same=2 suspect=0 missing=0 incomparable=0 failed=0 new=0",
     0,
     "not shown"},
    {"base.csv", "base.csv", {0}, "regressed=0 improved=0 same=2", 0, "+0.0 %"},
    {"base.csv", "regressed.csv", {0}, "regressed=1 improved=0 same=1", 1, "+30.0 %"},
    {"base.csv", "improved.csv", {0}, "regressed=0 improved=1 same=1", 0, "-30.0 %"},
    {"improved.csv", "base.csv", {0}, "regressed=1 improved=0 same=1", 1, "+42.9 %"},
    {"base.csv", "suspect.csv", {0}, "suspect=1 missing=0", 0, "SUSPECT"},
    {"base.csv", "suspect.csv", {.strict = true}, "suspect=1 missing=0", 3, NULL},
    {"base.csv", "exactly_limit.csv", {0}, "regressed=0 improved=0 same=1 suspect=1", 0, NULL},
    {"higher_base.csv", "higher_slower.csv", {0}, "regressed=2 improved=0", 1, "-20.0 %"},
    {"higher_base.csv", "higher_faster.csv", {0}, "regressed=0 improved=2", 0, "+30.0 %"},
    {"base.csv", "missing.csv", {0}, "same=1 suspect=0 missing=1", 4, "MISSING"},
    {"base.csv", "missing.csv", {.subset = true}, "same=1 suspect=0 missing=0", 0, NULL},
    {"missing.csv", "base.csv", {0}, "new=1", 0, "NEW"},
    {"base.csv",
     "failed.csv",
     {0},
     "same=1 suspect=0 missing=0 incomparable=0 failed=1",
     4,
     "FAILED: relative L2 error 0.3"},
    {"base.csv", "one_launch_failed.csv", {0}, "failed=1", 4, "killed by signal 9"},
    {"failed.csv", "base.csv", {0}, "failed=0 new=1", 0, NULL},
    {"base.csv", "outcome.csv", {0}, "missing=1", 4, "MISSING: clip sync waits"},
    {"base.csv", "hundredfold.csv", {0}, "regressed=1", 1, "x 100"},
    {"base.csv", "zero.csv", {0}, "incomparable=1", 4, "zero on one side"},
    {"zero.csv", "zero.csv", {0}, "same=2", 0, NULL},
    {"base.csv", "single.csv", {0}, "regressed=1 improved=0 same=1", 1, "only 1 launch behind the candidate"},
    {"many_base.csv", "many_regressed.csv", {0}, "regressed=256 improved=0", 1, "compared as measured"},
    /* ceilings */
    {"base.csv", "ceiling_moved.csv", {0}, "regressed=0 improved=0 same=2 suspect=0", 0, "matmul_rate moved"},
    {"base.csv", "ceiling_hides.csv", {0}, "regressed=2", 1, "+40.0 %"},
    {"base.csv", "ceiling_moved.csv", {.gates = "gates_no_ceiling.csv"}, "regressed=2", 1, NULL},
    /* what cannot be compared */
    {"base.csv", "machine.csv", {0}, "same=0 suspect=0 missing=0 incomparable=6", 4, "machine_id differs"},
    {"base.csv", "machine.csv", {.allow_mismatch = true}, "same=2", 0, "--allow-mismatch"},
    {"base.csv", "version.csv", {0}, "incomparable=6", 4, "bench_version differs"},
    {"base.csv", "version.csv", {.allow_mismatch = true}, "incomparable=6", 4, NULL},
    {"unknown_base.csv", "unknown_unit.csv", {0}, "incomparable=2", 4, "unit differs"},
    /* what does not gate */
    {"unknown_base.csv", "unknown_slower.csv", {0}, "regressed=0", 0, "(REGRESSED)"},
    {"base.csv", "regressed.csv", {.gates = "gates_none.csv"}, "regressed=0", 0, "nothing here gates"},
    {"contract_pass.csv", "contract_applies.csv", {0}, "missing=0 incomparable=0 failed=0", 0, "unsupported"},
    {"base.csv", "contract_fail.csv", {0}, "failed=0 new=0", 0, NULL},
    {"contract_fail.csv", "base.csv", {0}, "missing=0", 0, NULL},
    {"contract_pass.csv", "contract_fail.csv", {0}, "regressed=0 improved=0 same=2", 0, "(info)"},
    /* files */
    {"base.csv", "reordered.csv", {0}, "same=2", 0, NULL},
    {"base.csv", "duplicate.csv", {0}, NULL, 2, "duplicate.csv:26: launch 0 has a second backward_time"},
    {"base.csv", "nan.csv", {0}, NULL, 2, "nan.csv:2: value is not a finite number: nan"},
    {"base.csv", "inf.csv", {0}, NULL, 2, "inf.csv:2: value is not a finite number: 1e999"},
    {"base.csv", "unit.csv", {0}, NULL, 2, "unit.csv:4: backward_time is in s, not in ms"},
    {"base.csv", "empty.csv", {0}, NULL, 2, "the file is empty"},
    {"base.csv", "header_only.csv", {0}, NULL, 2, "no rows"},
    {"header_only.csv", "base.csv", {0}, NULL, 2, "no rows"},
    {"base.csv", "truncated.csv", {0}, NULL, 2, "truncated.csv:25: cut off"},
    {"base.csv", "truncated_at_end.csv", {0}, NULL, 2, "cut off"},
    {"base.csv", "no_such_file.csv", {0}, NULL, 2, "No such file"},
    {"base.csv", "tie.csv", {.gates = "no_gates.csv"}, NULL, 2, "which metrics gate"},
    {"base.csv", "tie.csv", {.gates = "gates_bad_direction.csv"}, NULL, 2, "gates_bad_direction.csv:2: metrics.def"},
    {"base.csv", "tie.csv", {.gates = "gates_bad_limit.csv"}, NULL, 2, "not a limit"},
};

static void check_case(const expected *x)
{
    capture c;
    pb_compare_opts o = x->opts;
    o.gates = fixture(o.gates ? o.gates : "gates.csv");
    pb_exit e = pb_compare_files(fixture(x->base), fixture(x->cand), &o, capture_begin(&c));
    const char *text = capture_end(&c), *last = last_line(text);
    char end[32];
    snprintf(end, sizeof end, " exit=%d\n", (int)x->exit);
    if (e != x->exit) fail_msg("%s %s: exit %d, want %d\n%s", x->base, x->cand, (int)e, (int)x->exit, text);
    if (!x->counts && *text) fail_msg("%s %s: an error, and yet output:\n%s", x->base, x->cand, text);
    if (x->counts && (!strstr(last, x->counts) || !strstr(last, end) || strncmp(last, "bench: ", 7) != 0))
        fail_msg("%s %s: want %s%s\n%s", x->base, x->cand, x->counts, end, text);
    if (x->text && !strstr(x->counts ? text : pb_error(), x->text))
        fail_msg("%s %s: nothing says '%s'\n%s%s", x->base, x->cand, x->text, text, x->counts ? "" : pb_error());
    if (!x->counts && strchr(pb_error(), '\n')) fail_msg("the error is not one line: %s", pb_error());
    free(c.text);
}

static void every_verdict_and_exit_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i]);
}

static void worse_exit_follows_its_order(void **state)
{
    static const pb_exit order[] = {0, 3, 1, 4, 2, 125};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) assert_int_equal(pb_worse_exit(order[i], order[j]), order[i > j ? i : j]);
}

/* ---- baselines --------------------------------------------------------------------------------- */

static void make_folder(char *path)
{
    static const char pattern[] = "/tmp/pb_baselines_XXXXXX";
    memcpy(path, pattern, sizeof pattern);
    assert_non_null(mkdtemp(path));
}

static void remove_folder(const char *path)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    assert_int_equal(system(command), 0);
}

static pb_exit against_baseline(const char *run, pb_compare_opts o, const char *folder, const char *want)
{
    capture c;
    o.baselines = folder;
    o.gates = FIXTURE("gates.csv");
    pb_exit e = pb_compare_baseline(run, &o, capture_begin(&c));
    if (!strstr(capture_end(&c), want)) fail_msg("nothing says '%s'\n%s", want, c.text);
    free(c.text);
    return e;
}

static void a_saved_baseline_is_what_runs_are_compared_with(void **state)
{
    char folder[64], file[128], text[4096] = "";
    capture c;
    (void)state;
    make_folder(folder);
    assert_int_equal(against_baseline(FIXTURE("base.csv"), (pb_compare_opts){0}, folder, "NO-BASELINE"), 0);
    assert_int_equal(against_baseline(FIXTURE("base.csv"), (pb_compare_opts){0}, folder, "/m1/backward.csv"), 0);
    pb_compare_opts require = {.require_baseline = true};
    assert_int_equal(against_baseline(FIXTURE("base.csv"), require, folder, "exit=4"), 4);

    pb_baseline_opts o = {.baselines = folder, .reason = "first, ever"};
    assert_int_equal(pb_baseline_save(FIXTURE("contract_pass.csv"), &o, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "9 rows")); /* 2 cases x 3 metrics, 2 ceilings, a contract */
    free(c.text);
    assert_int_equal(against_baseline(FIXTURE("tie.csv"), require, folder, "same=2"), 0);
    assert_int_equal(against_baseline(FIXTURE("regressed.csv"), require, folder, " 3/3  REGRESSED"), 1);
    assert_int_equal(against_baseline(FIXTURE("ceiling_moved.csv"), require, folder, "same=2"), 0);
    assert_int_equal(against_baseline(FIXTURE("machine.csv"), require, folder, "m2/backward.csv"), 4);
    assert_int_equal(against_baseline(FIXTURE("missing.csv"), (pb_compare_opts){0}, folder, "missing=1"), 4);

    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "baseline:r1"));
    assert_non_null(strstr(text, ",0.1002,")); /* 4 digits of the median launch */
    assert_non_null(strstr(text, ",319.4,"));  /* of 319.361277 */
    assert_int_equal(pb_baseline_show("m1", &o, capture_begin(&c)), 0);
    assert_non_null(strstr(capture_end(&c), "m1 backward: 9 rows, 3 launches, bench_version 1, from r1: first, ever"));
    free(c.text);
    assert_int_equal(pb_compare_files(file, FIXTURE("regressed.csv"), &(pb_compare_opts){.gates = FIXTURE("gates.csv")},
                                      capture_begin(&c)),
                     1);
    capture_end(&c);
    free(c.text);
    remove_folder(folder);
}

/* What figures and tables are made from: metrics without a direction, what graphs bought, verdicts in the run's own
 * words. None of it fails a comparison, not even where a graph has stopped paying. */
static void a_baseline_keeps_what_a_run_concluded(void **state)
{
    static const char *const kept[] = {
        "mode=graph&seq=128,launches,1,none,1,0,ok,why", "mode=graph&seq=128,record_time,s,none,0.5,0,ok,why",
        "mode=graph&seq=128,break_even,1,none,25,0,ok,why",
        "contract/F-GRAPH-BWD-003a?batch=1,contract,1,none,1.25,0,fail,tokens/s over tokens/s >= 1.1; here",
        "crossover/backward?clip=fused,crossover,1,none,700,0,ok,3 sizes"};
    char folder[64], file[128], text[8192] = "";
    capture c;
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = {.baselines = folder, .reason = "why"};
    assert_int_equal(pb_baseline_save(FIXTURE("gains.csv"), &o, capture_begin(&c)), 0);
    assert_null(strstr(capture_end(&c), "crossover.csv")); /* no suite of its own */
    free(c.text);
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strstr(text, kept[i])) fail_msg("'%s' is not in\n%s", kept[i], text);
    assert_null(strstr(text, "F-GRAPH-BWD-003b")); /* it did not apply */
    assert_int_equal(against_baseline(FIXTURE("gains_gone.csv"), (pb_compare_opts){0}, folder, "failed=0"), 1);
    assert_int_equal(against_baseline(FIXTURE("gains.csv"), (pb_compare_opts){0}, folder, "same=2"), 0);
    remove_folder(folder);
}

static void only_whole_runs_become_baselines(void **state)
{
    static const struct {
        const char *run, *why;
    } refused[] = {{"single.csv", "1 launches"},           {"failed.csv", "is wrong"},
                   {"one_launch_failed.csv", "is failed"}, {"truncated.csv", "cut off"},
                   {"header_only.csv", "no rows"},         {"many_base.csv", "need 3"},
                   {"two_runs.csv", "several runs"},       {"cut_short.csv", "is truncated"}};
    char folder[64];
    capture c;
    (void)state;
    make_folder(folder);
    pb_baseline_opts o = {.baselines = folder, .runs = folder};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(pb_baseline_save(fixture(refused[i].run), &o, capture_begin(&c)), 2);
        if (*capture_end(&c)) fail_msg("%s: saved: %s", refused[i].run, c.text);
        if (!strstr(pb_error(), refused[i].why)) fail_msg("%s: %s", refused[i].run, pb_error());
        free(c.text);
    }
    assert_int_equal(pb_baseline_save(NULL, &o, stderr), 2); /* no run in the folder */
    assert_non_null(strstr(pb_error(), "no run"));
    assert_int_equal(pb_baseline_show(NULL, &o, stderr), 2);
    remove_folder(folder);
}

static void names_cannot_leave_the_folder(void **state)
{
    char path[64];
    (void)state;
    CHECK_OK(pb_baseline_path("baselines", "m-1.x", "backward", path, sizeof path));
    assert_string_equal(path, "baselines/m-1.x/backward.csv");
    CHECK_FAILS(pb_baseline_path("b", "../etc", "s", path, sizeof path), PB_EINVAL, "cannot name a folder");
    CHECK_FAILS(pb_baseline_path("b", "a/b", "s", path, sizeof path), PB_EINVAL, "cannot name a folder");
    CHECK_FAILS(pb_baseline_path("b", "", "s", path, sizeof path), PB_EINVAL, "cannot name a folder");
    CHECK_FAILS(pb_baseline_path("b", "m", "..", path, sizeof path), PB_EINVAL, "cannot name a file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verdict_and_exit_code),
        cmocka_unit_test(worse_exit_follows_its_order),
        cmocka_unit_test(a_saved_baseline_is_what_runs_are_compared_with),
        cmocka_unit_test(a_baseline_keeps_what_a_run_concluded),
        cmocka_unit_test(only_whole_runs_become_baselines),
        cmocka_unit_test(names_cannot_leave_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
