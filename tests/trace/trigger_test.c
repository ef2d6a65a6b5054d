/* trigger_test.c - the file that opens profiling windows: when a change is a request, what the file may say, and the
 * windows that follow from it. */
#include "trace/trigger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"
#include "trace/profile.h"

static char folder[64], path[96], out[96];
static pb_topology topology;

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/trigger_test_XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/trigger", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    return pb_topology_parse(NULL, 4, &topology) == PB_OK ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return pb_disk_remove(&pb_disk_posix, folder) == PB_OK ? 0 : -1;
}

/* Writes the file as if it had been changed `age` seconds ago. */
static void change(const char *text, long age)
{
    struct timespec times[2];
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, path, text, strlen(text)));
    (void)clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= age;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void only_a_change_is_a_request(void **state)
{
    (void)state;
    pb_trigger t;
    pb_trigger_open(&pb_disk_posix, path, &t);
    assert_false(pb_trigger_fired(&t)); /* no file */
    change("", 10);
    assert_true(pb_trigger_fired(&t));
    assert_false(pb_trigger_fired(&t));
    change("", 9);
    assert_true(pb_trigger_fired(&t));
    assert_int_equal(unlink(path), 0);
    assert_false(pb_trigger_fired(&t));
    change("steps=2", 8);
    pb_trigger_open(&pb_disk_posix, path, &t); /* a file that was there before */
    assert_false(pb_trigger_fired(&t));
}

/* The times of these files are in the future, as if another host's clock were ahead, so only the time since the first
 * look counts. */
static void a_change_counts_when_it_has_settled(void **state)
{
    (void)state;
    pb_trigger t;
    pb_trigger_open(&pb_disk_posix, path, &t);
    change("", -1000);
    assert_false(pb_trigger_fired(&t));
    t.changed.tv_sec -= 1; /* one second later */
    change("steps=3", -2000);
    assert_false(pb_trigger_fired(&t)); /* it has changed again */
    t.changed.tv_sec -= 1;
    assert_true(pb_trigger_fired(&t));
    assert_false(pb_trigger_fired(&t));
}

static pb_chosen chosen_ranks(const char *text)
{
    pb_chosen c;
    CHECK_OK(pb_choose_ranks(text, &topology, NULL, &c));
    return c;
}

static pb_status read_request(const char *text, pb_trigger_request *r)
{
    pb_trigger t;
    pb_chosen c = chosen_ranks("0,2,3");
    change(text, 5);
    pb_trigger_open(&pb_disk_posix, path, &t);
    const pb_status s = pb_trigger_read(&t, &topology, NULL, &c, 17, 6, r);
    pb_chosen_free(&c);
    return s;
}

static void the_file_says_steps_ranks_and_the_first_step(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        long first, steps;
        bool rank[4];
    } of[] = {
        {"", 17, 6, {true, false, true, true}},
        {" \n", 17, 6, {true, false, true, true}},
        {"steps=4 ranks=0,3\n", 17, 4, {true, false, false, true}},
        {"ranks=2", 17, 6, {true, false, true, false}},
        {"at=17\tsteps=1", 17, 1, {true, false, true, true}},
        {"at=200", 200, 6, {true, false, true, true}},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        pb_trigger_request r;
        CHECK_OK(read_request(of[i].text, &r));
        assert_int_equal(r.first, of[i].first);
        assert_int_equal(r.steps, of[i].steps);
        for (int k = 0; k < 4; k++) assert_int_equal(r.ranks.rank[k], of[i].rank[k]);
        pb_chosen_free(&r.ranks);
    }
}

static void bad_content_is_refused(void **state)
{
    (void)state;
    pb_trigger_request r;
    CHECK_FAILS(read_request("steps=0", &r), PB_EINVAL, "trigger: 'steps=0' is not steps=N");
    CHECK_FAILS(read_request("steps=-1", &r), PB_EINVAL, "'steps=-1' is not");
    CHECK_FAILS(read_request("steps=4x", &r), PB_EINVAL, "'steps=4x' is not");
    CHECK_FAILS(read_request("steps=99999999999999999999", &r), PB_EINVAL, "is not steps=N");
    CHECK_FAILS(read_request("please", &r), PB_EINVAL, "'please' is not");
    CHECK_FAILS(read_request("at=16", &r), PB_EINVAL, "step 16 is over, the next one is 17");
    CHECK_FAILS(read_request("ranks=1", &r), PB_EINVAL, "rank 1 is not profiled");
    CHECK_FAILS(read_request("ranks=none", &r), PB_EINVAL, "names no rank");
    CHECK_FAILS(read_request("ranks=9", &r), PB_EINVAL, "rank 9 does not exist");
    static char large[8192];
    memset(large, ' ', sizeof large - 1);
    CHECK_FAILS(read_request(large, &r), PB_EINVAL, "trigger");
}

static bool has_trace(const char *name)
{
    char file[256];
    snprintf(file, sizeof file, "%s/traces/%s.json.gz", out, name);
    return access(file, F_OK) == 0;
}

/* Two ranks of four, whose requests are made before steps 3 (empty), 6 (bad), 8 (rank 0 only) and 11 (cut off). */
static void requests_open_windows_repeatedly(void **state)
{
    (void)state;
    static const struct {
        int step;
        const char *text, *remark;
    } of[] = {{3, "", "steps 3-4"},
              {6, "x", "no window is opened"},
              {8, "steps=1 ranks=0", "steps 8-8"},
              {11, "", "steps 11-12"}};
    for (int rank = 0; rank < 3; rank += 2) {
        char why[200];
        pb_profile *p;
        (void)unlink(path);
        char manifest[128];
        snprintf(manifest, sizeof manifest, "%s/manifest.json", out);
        (void)unlink(manifest);
        const pb_profile_options o = {
            .ranks = "0,2", .steps = "0:0:0:2", .out = out, .trigger = path, .ring = {.threads = 2, .records = 256}};
        const pb_profile_job job = {.topology = &topology,
                                    .rank = rank,
                                    .program = "test",
                                    .version = "v1",
                                    .backend = "cpu",
                                    .device = "none"};
        CHECK_OK(pb_profile_open(&pb_disk_posix, &o, &job, why, &p));
        for (int i = 1; i < 12; i++) {
            const char *expected = NULL;
            for (size_t k = 0; k < sizeof of / sizeof *of; k++)
                if (of[k].step == i) change(of[k].text, 100 - i), expected = of[k].remark;
            pb_profile_begin_step(p, i);
            const char *remark = pb_profile_remark(p);
            assert_int_equal(remark != NULL, expected != NULL);
            if (expected) assert_non_null(strstr(remark, expected));
            assert_int_equal((pb_ranges_on & PB_LISTENS_RING) != 0,
                             i == 3 || i == 4 || i == 11 || (i == 8 && rank == 0));
            pb_range_push(PB_RANGE_step, "train_step", i);
            pb_range_pop();
            if (i < 11) pb_profile_end_step(p);
        }
        CHECK_OK(pb_profile_close(p));
    }
    assert_true(has_trace("step3-4/rank0") && has_trace("step3-4/rank2"));
    assert_true(has_trace("step8-8/rank0") && !has_trace("step8-8/rank2"));
    assert_true(has_trace("step11-12/rank0") && has_trace("step11-12/rank2"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(only_a_change_is_a_request),
        TEST(a_change_counts_when_it_has_settled),
        TEST(the_file_says_steps_ranks_and_the_first_step),
        TEST(bad_content_is_refused),
        TEST(requests_open_windows_repeatedly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
