/* kept_sessions_test.c - sessions that are kept without being asked: where they are, how many stay, and how a comparison
 * uses them. */
#include <sys/stat.h>

#include "bench/compare/kept_sessions.h"
#include "bench/machine/host_identity.h"
#include "tests/bench/compare/compare_cases.h"

static char state_folder[64];

static int open_state(void **state)
{
    make_folder(state_folder);
    setenv("PB_STATE", state_folder, 1);
    return open_runs(state);
}

static int close_state(void **state)
{
    remove_folder(state_folder);
    return close_runs(state);
}

typedef struct run {
    pb_table t;
    pb_series_set set;
} run;

static run open_run(const char *path, const char *machine)
{
    run r;
    CHECK_OK(pb_table_read(path, &r.t));
    CHECK_OK(pb_host_name_rows(&r.t, machine));
    CHECK_OK(pb_series_make(&r.t, &r.set));
    return r;
}

static void close_run(run *r)
{
    pb_series_free(&r->set);
    pb_table_free(&r->t);
}

/* Keeps a run of the machine; returns the path that it was said to be written to. */
static const char *keep(const char *path, const char *machine, pb_status want)
{
    static char said[512];
    const pb_gates gates = {0};
    run r = open_run(path, machine);
    const pb_status s = pb_kept_add(&r.t, &r.set, &gates, said, sizeof said);
    if (s != want) fail_msg("%s: %s, want %s: %s", path, pb_status_name(s), pb_status_name(want), pb_error());
    close_run(&r);
    return said;
}

static const char *made(int day, double seconds) { return make_run(run_folder, day, seconds, 1, PB_BENCH_VERSION); }

static void the_folder_follows_the_environment(void **state)
{
    char root[256];
    (void)state;
    CHECK_OK(pb_kept_root(root, sizeof root));
    assert_string_equal(root, state_folder);
    setenv("PB_STATE", "", 1);
    CHECK_OK(pb_kept_root(root, sizeof root));
    assert_string_equal(root, "");
    assert_string_equal(keep(made(1, 0.1), "off", PB_OK), ""); /* nothing is kept */
    unsetenv("PB_STATE");
    setenv("XDG_STATE_HOME", "/x/state", 1);
    CHECK_OK(pb_kept_root(root, sizeof root));
    assert_string_equal(root, "/x/state/plumb");
    setenv("XDG_STATE_HOME", "relative", 1);
    setenv("HOME", "/home/u", 1);
    CHECK_OK(pb_kept_root(root, sizeof root));
    assert_string_equal(root, "/home/u/.local/state/plumb");
    setenv("PB_STATE", state_folder, 1);
}

static void a_host_has_a_folder(void **state)
{
    static const char *const names[][2] = {{"lab/0a1b2c3d", "lab"},
                                           {"/0a1b2c3d", "0a1b2c3d"},
                                           {"?0a1b2c3d", "unverified-0a1b2c3d"},
                                           {"?", "unverified"},
                                           {"../0a1b2c3d", "unverified"}};
    char name[64];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pb_kept_host(names[i][0], name, sizeof name);
        assert_string_equal(name, names[i][1]);
    }
}

static void the_newest_values_of_each_row_are_kept(void **state)
{
    char path[256];
    pb_table t;
    pb_series_set set;
    (void)state;
    snprintf(path, sizeof path, "%s/m1/newest/backward.csv", state_folder);
    assert_string_equal(keep(run_file("base"), "newest", PB_OK), path); /* cases that the other runs lack; session r1 */
    for (int day = 1; day <= PB_BASELINE_SESSIONS + 2; day++)
        assert_string_equal(keep(made(day, day), "newest", PB_OK), path);
    assert_string_equal(keep(made(PB_BASELINE_SESSIONS + 2, 9), "newest", PB_OK), ""); /* is a session already */
    CHECK_OK(pb_table_read(path, &t));
    CHECK_OK(pb_series_make(&t, &set));
    const pb_series *s = pb_series_find(&set, "backward/step?batch=1", "backward_time");
    assert_int_equal(s->sessions, PB_BASELINE_SESSIONS);
    assert_true(s->session[0].value == 3 && s->session[PB_BASELINE_SESSIONS - 1].value == PB_BASELINE_SESSIONS + 2);
    assert_string_equal(s->session[0].host, "newest/");
    assert_non_null(strstr(set.s[1].key, "clip=fused")); /* the rows of the first run are not pushed out */
    assert_int_equal(set.s[1].sessions, 1);
    pb_series_free(&set);
    pb_table_free(&t);
}

static void incomplete_runs_and_unwritable_folders_are_refused(void **state)
{
    char file[256];
    (void)state;
    assert_string_equal(keep(run_file("failed"), "refused", PB_EINVAL), "");
    assert_string_equal(keep(run_file("single"), "refused", PB_EINVAL), "");
    snprintf(file, sizeof file, "%s/m1/refused", state_folder);
    assert_int_not_equal(access(file, F_OK), 0); /* not even a folder */
    snprintf(file, sizeof file, "%s/file", state_folder);
    write_text(file, "");
    setenv("PB_STATE", file, 1);
    assert_string_equal(keep(made(1, 0.1), "refused", PB_EPATH), "");
    setenv("PB_STATE", state_folder, 1);
}

/* A session that is stored and kept counts once, the candidate itself not at all, another host's not either. */
static void kept_sessions_join_the_baseline(void **state)
{
    static const double want[] = {0.1, 0.2, 0.3};
    char folder[64], file[128];
    capture c;
    run base = {0};
    (void)state;
    make_folder(folder);
    const pb_baseline_opts o = {.baselines = folder, .machine = "join", .reason = "why"};
    assert_int_equal(pb_baseline_update(made(2, 0.2), &o, capture_begin(&c)), 0);
    capture_end(&c), free(c.text);
    for (int day = 1; day <= 4; day++) keep(made(day, 0.1 * day), "join", PB_OK);
    keep(made(5, 0.5), "another", PB_OK);
    run cand = open_run(made(4, 0.4), "join");
    snprintf(file, sizeof file, "%s/m1/backward.csv", folder);
    CHECK_OK(pb_table_read(file, &base.t));
    CHECK_OK(pb_kept_join(&base.t, &cand.t, &cand.set, "backward"));
    CHECK_OK(pb_series_make(&base.t, &base.set));
    assert_int_equal(base.set.n, 2);
    const pb_series *s = pb_series_find(&base.set, "backward/step?batch=1", "backward_time");
    assert_int_equal(s->sessions, 3);
    assert_false(s->mixed);
    for (int k = 0; k < 3; k++) CHECK_NEAR(s->session[k].value, want[k], 1e-12);
    assert_true(s->session[0].kept && !s->session[1].kept && s->session[2].kept);
    close_run(&base);
    close_run(&cand);
    run odd = open_run(run_file("base"), "join"); /* it lacks the rows of the kept sessions */
    base = (run){0};
    CHECK_OK(pb_kept_join(&base.t, &odd.t, &odd.set, "backward"));
    CHECK_OK(pb_series_make(&base.t, &base.set));
    assert_null(pb_series_find(&base.set, "backward/step?batch=1", "backward_time"));
    close_run(&base);
    close_run(&odd);
    remove_folder(folder);
}

/* Exact counters gate, and a kept session may be of a program that was changed on purpose. */
static void exact_counters_of_kept_sessions_are_not_joined(void **state)
{
    run base = {0};
    int times = 0;
    (void)state;
    keep(run_file("gains"), "exact", PB_OK);
    run cand = open_run(run_file("gains_gone"), "exact");
    CHECK_OK(pb_kept_join(&base.t, &cand.t, &cand.set, "backward"));
    for (size_t i = 0; i < base.t.n; i++) {
        assert_string_not_equal(base.t.rows[i].metric, "kernel_launches");
        times += strcmp(base.t.rows[i].metric, "backward_time") == 0;
    }
    assert_true(times > 0);
    pb_table_free(&base.t);
    close_run(&cand);
}

static void a_comparison_uses_kept_sessions(void **state)
{
    char folder[64], faulty[256], older[128];
    const pb_compare_opts require = {.machine = "used", .require_baseline = true};
    pb_compare_opts o = {.machine = "used"};
    (void)state;
    make_folder(folder);
    assert_int_equal(against_baseline(made(3, 0.1), o, folder, "NO-BASELINE"), 0);
    keep(made(1, 0.1), "used", PB_OK);
    keep(made(2, 0.1), "used", PB_OK);
    assert_int_equal(against_baseline(made(3, 0.1), o, folder, "note: 2 of the sessions were kept"), 0);
    assert_int_equal(against_baseline(made(3, 0.1), o, folder, "same=1"), 0);
    assert_int_equal(against_baseline(made(3, 0.1), require, folder, "same=1"), 4);
    assert_int_equal(against_baseline(made(2, 0.1), o, folder, "note: 1 of the sessions was kept"), 0); /* itself */
    /* Missing rows are judged by the stored sessions alone. */
    assert_int_equal(against_baseline(run_file("base"), o, folder, "missing=0 incomparable=0 failed=0 new=2"), 0);
    const pb_baseline_opts save = {.baselines = folder, .machine = "used", .reason = "why"};
    capture c;
    char *text = read_text(run_file("base"));
    for (char *p = text; (p = strstr(p, ",r1,")); p++) memcpy(p, ",00,", 4); /* a session before the kept ones */
    snprintf(older, sizeof older, "%s/older.csv", run_folder);
    write_text(older, text);
    free(text);
    assert_int_equal(pb_baseline_save(older, &save, capture_begin(&c)), 0);
    capture_end(&c), free(c.text);
    assert_int_equal(against_baseline(made(3, 0.1), o, folder, "missing=2"), 4);
    o.machine = "elsewhere";
    assert_int_equal(against_baseline(made(3, 0.1), o, folder, "(MISSING)"), 0); /* of another host */
    /* A file with a fault is not used, and does not fail the comparison. */
    snprintf(faulty, sizeof faulty, "%s/m1/used/backward.csv", state_folder);
    write_text(faulty, "cut off");
    o.machine = "used";
    assert_int_equal(against_baseline(run_file("base"), o, folder, "same=3"), 0);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_follows_the_environment),
        cmocka_unit_test(a_host_has_a_folder),
        cmocka_unit_test(the_newest_values_of_each_row_are_kept),
        cmocka_unit_test(incomplete_runs_and_unwritable_folders_are_refused),
        cmocka_unit_test(kept_sessions_join_the_baseline),
        cmocka_unit_test(exact_counters_of_kept_sessions_are_not_joined),
        cmocka_unit_test(a_comparison_uses_kept_sessions),
    };
    return cmocka_run_group_tests(tests, open_state, close_state);
}
