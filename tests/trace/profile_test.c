/* profile_test.c - the windows of a process and the files they leave: what a trace contains, discarded warm-up steps,
 * windows that were cut off, limits, and failures to write. */
#include "trace/profile.h"

#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "ranks/topology.h"
#include "tests/test.h"
#include "trace/chrome.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/profile_test_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return pb_disk_remove(&pb_disk_posix, folder) == PB_OK ? 0 : -1;
}

/* The JSON of OUT/name, decompressed if its name ends in .gz; NULL: the file does not exist. */
static json_t *load(const char *name)
{
    enum { MOST = 1 << 22 };
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile f = gzopen(path, "rb"); /* reads files that are not compressed as they are */
    if (!f) return NULL;
    char *text = malloc(MOST);
    assert_non_null(text);
    const int n = gzread(f, text, MOST - 1);
    assert_in_range(n, 1, MOST - 2);
    (void)gzclose(f);
    json_error_t e;
    json_t *o = json_loadb(text, (size_t)n, 0, &e);
    if (!o) fail_msg("%s: %s at %d: %.60s", name, e.text, e.position, text + e.position);
    free(text);
    return o;
}

static pb_topology topology;
static const char *const hosts[] = {"alpha", "be\"ta"};
static pb_profile_options options = {
    .ranks = "all", .steps = "1:1:1:2", .out = folder, .ring = {.threads = 2, .records = 256}};

static pb_profile_job job(int rank)
{
    CHECK_OK(pb_topology_parse(NULL, 2, &topology));
    return (pb_profile_job){.topology = &topology,
                            .rank = rank,
                            .host = hosts,
                            .program = "test",
                            .version = "v1",
                            .backend = "cpu",
                            .device = "none"};
}

static pb_profile *open_profile(const pb_profile_options *o, int rank)
{
    char why[200] = "";
    pb_profile *p;
    const pb_profile_job j = job(rank);
    CHECK_OK(pb_profile_open(&pb_disk_posix, o, &j, why, &p));
    assert_true(strlen(why) > 0);
    return p;
}

static void step(pb_profile *p, int64_t number)
{
    pb_profile_begin_step(p, number);
    pb_range_push(PB_RANGE_step, "train_step", number);
    pb_range_push(PB_RANGE_op, "an \"op\"\n", PB_RANGE_NO_VALUE);
    pb_range_pop();
    pb_range_pop();
    pb_profile_end_step(p);
}

static const char *text_at(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "(none)";
}

static json_int_t int_at(const json_t *o, const char *key)
{
    assert_true(json_is_integer(json_object_get(o, key)));
    return json_integer_value(json_object_get(o, key));
}

/* Steps 10 to 16: off, off, warm-up, two active steps 13 and 14, off. */
static void a_window_leaves_a_trace_of_its_active_steps(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        pb_profile *p = open_profile(&options, rank);
        assert_non_null(p);
        for (int i = 10; i < 17; i++) step(p, i);
        CHECK_OK(pb_profile_close(p));
    }
    json_t *t = load("traces/step13-14/rank1.json.gz"), *events = json_object_get(t, "traceEvents");
    assert_int_equal(int_at(json_object_get(t, "distributedInfo"), "rank"), 1);
    assert_int_equal(int_at(json_object_get(t, "distributedInfo"), "world_size"), 2);
    const json_t *about = json_object_get(t, "plumb");
    assert_true(json_is_false(json_object_get(about, "truncated")));
    assert_int_equal(int_at(about, "dropped"), 0);
    assert_int_equal(int_at(about, "events"), 4);
    assert_string_equal(text_at(about, "host"), "be\"ta");
    const json_int_t base = int_at(t, "baseTimeNanoseconds");
    const char *const names[] = {"an \"op\"\n", "ProfilerStep#13", "an \"op\"\n", "ProfilerStep#14"};
    size_t i, n = 0;
    json_t *e;
    double ends = 0;
    json_array_foreach(events, i, e)
    {
        if (strcmp(text_at(e, "ph"), "X") != 0) continue;
        assert_in_range(n, 0, 3);
        assert_string_equal(text_at(e, "name"), names[n]);
        assert_string_equal(text_at(e, "cat"), n % 2 ? "user_annotation" : "cpu_op");
        assert_int_equal(int_at(e, "tid"), gettid());
        const double ts = json_number_value(json_object_get(e, "ts")),
                     dur = json_number_value(json_object_get(e, "dur"));
        const double window =
            (double)(json_integer_value(json_array_get(json_object_get(about, "window_ns"), 0)) - base) / 1000;
        assert_true(dur >= 0 && ts >= window - 1);
        assert_true(ts + dur >= ends);
        ends = ts + dur;
        n++;
    }
    assert_int_equal(n, 4);
    assert_string_equal(text_at(json_array_get(events, 0), "ph"), "M");
    json_decref(t);
    json_t *m = load("manifest.json");
    assert_int_equal(json_array_size(json_object_get(m, "profiled")), 2);
    assert_string_equal(text_at(m, "topology"), "dp=2");
    assert_int_equal(int_at(json_array_get(json_object_get(m, "recorded"), 0), "windows"), 1);
    json_decref(m);
    json_t *r = load("ranks/rank0.json"), *windows = json_object_get(r, "windows");
    assert_int_equal(json_array_size(windows), 1);
    assert_true(json_is_true(json_object_get(json_array_get(windows, 0), "written")));
    json_decref(r);
}

static void the_file_says_the_rank_as_analyses_search_for_it(void **state)
{
    (void)state;
    pb_profile *p = open_profile(&options, 0);
    for (int i = 1; i < 7; i++) step(p, i);
    CHECK_OK(pb_profile_close(p));
    char path[256], text[4096];
    snprintf(path, sizeof path, "%s/traces/step4-5/rank0.json.gz", folder);
    gzFile f = gzopen(path, "rb");
    assert_non_null(f);
    const int n = gzread(f, text, sizeof text - 1);
    (void)gzclose(f);
    text[n > 0 ? n : 0] = 0;
    assert_non_null(strstr(text, "\"rank\": 0"));
    assert_true(strstr(text, "\"rank\": 0") < strstr(text, "traceEvents"));
}

static void a_window_that_is_cut_off_says_so(void **state)
{
    (void)state;
    pb_profile *p = open_profile(&options, 0);
    for (int i = 0; i < 3; i++) step(p, i);
    pb_profile_begin_step(p, 3);
    pb_range_push(PB_RANGE_step, "train_step", 3);
    CHECK_OK(pb_profile_close(p)); /* the step failed */
    pb_range_pop();
    json_t *t = load("traces/step3-4/rank0.json.gz");
    assert_true(json_is_true(json_object_get(json_object_get(t, "plumb"), "truncated")));
    size_t i, incomplete = 0;
    json_t *e;
    json_array_foreach(json_object_get(t, "traceEvents"), i, e) incomplete +=
        json_is_true(json_object_get(json_object_get(e, "args"), "incomplete"));
    assert_int_equal(incomplete, 1);
    json_decref(t);
}

static void windows_repeat_and_a_full_ring_is_stated(void **state)
{
    (void)state;
    pb_profile_options o = options;
    o.steps = "0:1:0:1:2";
    pb_profile *p = open_profile(&o, 0);
    for (int i = 0; i < 4; i++) {
        pb_profile_begin_step(p, i);
        for (int k = 0; k < 1000; k++) {
            pb_range_push(PB_RANGE_op, "op", k);
            pb_range_pop();
        }
        pb_profile_end_step(p);
    }
    CHECK_OK(pb_profile_close(p));
    for (int i = 1; i < 4; i += 2) {
        char name[64];
        snprintf(name, sizeof name, "traces/step%d-%d/rank0.json.gz", i, i);
        json_t *t = load(name);
        assert_int_equal(int_at(json_object_get(t, "plumb"), "dropped"), 1000 - 256);
        assert_int_equal(int_at(json_object_get(t, "plumb"), "events"), 256);
        json_decref(t);
    }
    json_t *r = load("ranks/rank0.json");
    assert_int_equal(json_array_size(json_object_get(r, "windows")), 2);
    json_decref(r);
}

/* The bytes of OUT/name after decompression. */
static size_t bytes_of(const char *name)
{
    char path[256], part[4096];
    size_t sum = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile f = gzopen(path, "rb");
    assert_non_null(f);
    for (int n; (n = gzread(f, part, sizeof part)) > 0;) sum += (size_t)n;
    (void)gzclose(f);
    return sum;
}

/* The limit holds to the byte, for every limit and for names that become longer when they are escaped; what is left out
 * is counted. */
static void a_limit_leaves_events_out_and_counts_them(void **state)
{
    (void)state;
    static char name[60000];
    memset(name, '\n', sizeof name - 1);
    for (int i = 0; i < 8; i++) {
        const size_t limit = PB_TRACE_LEAST + (size_t)i * 3001;
        pb_profile_options o = options;
        o.steps = "0";
        o.limit = limit;
        (void)pb_disk_remove(&pb_disk_posix, folder);
        pb_profile *p = open_profile(&o, 0);
        pb_profile_begin_step(p, 0);
        pb_profile_name_window(p, "a \"window\"");
        for (int k = 0; k < 200; k++) {
            pb_range_push(PB_RANGE_op, k == 20 && i % 2 ? name : "op", k);
            pb_range_pop();
        }
        pb_profile_end_step(p);
        CHECK_OK(pb_profile_close(p));
        json_t *t = load("traces/step0-0/rank0.json.gz"), *about = json_object_get(t, "plumb");
        assert_true(bytes_of("traces/step0-0/rank0.json.gz") <= limit);
        assert_in_range(int_at(about, "events"), 20, 199);
        assert_int_equal(int_at(about, "events") + int_at(about, "omitted"), 200);
        assert_true(json_is_true(json_object_get(about, "truncated")));
        assert_string_equal(json_string_value(json_object_get(about, "name")), "a \"window\"");
        json_decref(t);
    }
}

/* Three ranges and a step. */
static void counted_step(pb_profile *p, int64_t number)
{
    pb_profile_begin_step(p, number);
    pb_range_push(PB_RANGE_step, "train_step", number);
    for (int k = 0; k < 3; k++) {
        pb_range_push(PB_RANGE_op, "op", k);
        pb_range_pop();
    }
    pb_range_pop();
    pb_profile_end_step(p);
}

/* Steps 1, 2, ...: steps 3 to 4 are recorded after a warm-up step, and again from 6 to 7. */
static void the_size_is_known_before_the_window(void **state)
{
    (void)state;
    pb_profile_options o = options;
    pb_profile_expected e;
    o.steps = "1:0:1:2";
    o.gpu = false;
    pb_profile *p = open_profile(&o, 0);
    counted_step(p, 1);
    assert_int_equal(pb_ranges_on & PB_LISTENS_COUNT, 0);
    assert_true(pb_profile_expects(p, 900, &e));
    assert_int_equal(e.first, 3);
    assert_int_equal(e.last, 4);
    CHECK_NEAR(e.ranges, 4, 0);
    CHECK_NEAR(e.kernels, 0, 0); /* the GPU is not recorded */
    CHECK_NEAR(e.json, 2 * 4 * PB_TRACE_RANGE_BYTES, 0);
    assert_false(e.cut);
    assert_false(e.overwrites);
    for (int i = 2; i < 6; i++) {
        counted_step(p, i);
        assert_false(pb_profile_expects(p, 0, &e));
    }
    CHECK_OK(pb_profile_close(p));

    (void)pb_disk_remove(&pb_disk_posix, folder);
    o.steps = "1:0:0:100";
    o.limit = PB_TRACE_LEAST;
    p = open_profile(&o, 0);
    counted_step(p, 1);
    assert_true(pb_profile_expects(p, 0, &e));
    assert_int_equal(e.first, 2);
    assert_int_equal(e.last, 101);
    assert_true(e.cut);        /* 52 KB of 8 KiB */
    assert_true(e.overwrites); /* 400 ranges in rings of 256 */
    CHECK_OK(pb_profile_close(p));
    assert_false(pb_profile_expects(NULL, 0, &e));
}

/* A rank that is not chosen writes no trace, but how long its steps took. */
static void only_chosen_ranks_write(void **state)
{
    (void)state;
    pb_profile_options o = options;
    o.ranks = "0";
    pb_profile *p = open_profile(&o, 1);
    for (int i = 0; i < 7; i++) step(p, i);
    assert_int_equal(pb_ranges_on & PB_LISTENS_RING, 0);
    CHECK_OK(pb_profile_close(p));
    assert_null(load("traces/step3-4/rank1.json.gz"));
    json_t *r = load("ranks/rank1.json");
    assert_non_null(r);
    const json_t *times = json_object_get(r, "step_times");
    assert_true(json_is_false(json_object_get(r, "profiled")));
    assert_int_equal(json_array_size(json_object_get(r, "windows")), 0);
    assert_true(json_integer_value(json_object_get(json_object_get(times, "recorded"), "steps")) >= 2);
    assert_true(json_real_value(json_object_get(json_object_get(times, "off"), "median_s")) > 0);
    json_decref(r);
    o.ranks = "none";
    const pb_profile_job j = job(0);
    char why[200];
    CHECK_OK(pb_profile_open(&pb_disk_posix, &o, &j, why, &p));
    assert_null(p);
    pb_profile_begin_step(p, 0);
    pb_profile_end_step(p);
    CHECK_OK(pb_profile_close(p));
    assert_null(load("manifest.json"));
}

static void bad_options_and_folders_are_refused(void **state)
{
    (void)state;
    pb_profile *p;
    char why[200];
    pb_profile_options o = options;
    const pb_profile_job j = job(0);
    o.ranks = "0-2";
    CHECK_FAILS(pb_profile_open(&pb_disk_posix, &o, &j, why, &p), PB_EINVAL, "rank 2 does not exist");
    o = options;
    o.steps = "x";
    CHECK_FAILS(pb_profile_open(&pb_disk_posix, &o, &j, why, &p), PB_EINVAL, "profile-steps: 'x'");
    o = options;
    o.limit = PB_TRACE_LEAST - 1;
    CHECK_FAILS(pb_profile_open(&pb_disk_posix, &o, &j, why, &p), PB_EINVAL, "need 8192");
    o = options;
    o.out = "/proc/nowhere";
    CHECK_FAILS(pb_profile_open(&pb_disk_posix, &o, &j, why, &p), PB_EPATH, "the folder /proc/nowhere cannot be made");
    CHECK_OK(pb_profile_close(open_profile(&options, 0)));
    CHECK_FAILS(pb_profile_open(&pb_disk_posix, &options, &j, why, &p), PB_EINVAL, "holds traces of another run");
}

/* A disk on which only the first `left` bytes fit. */
static size_t left;
static ssize_t write_until_full(void *self, int fd, const void *from, size_t n)
{
    (void)self;
    if (left < n) return errno = ENOSPC, -1;
    left -= n;
    return pb_disk_posix.write(pb_disk_posix.self, fd, from, n);
}

static void a_full_disk_does_not_end_the_run(void **state)
{
    (void)state;
    pb_disk full = pb_disk_posix;
    full.write = write_until_full;
    left = 2000; /* enough for the manifest */
    pb_profile_options o = options;
    o.steps = "0:0:0:1:0";
    char why[200];
    pb_profile *p;
    const pb_profile_job j = job(0);
    CHECK_OK(pb_profile_open(&full, &o, &j, why, &p));
    left = 0;
    for (int i = 0; i < 3; i++) step(p, i);
    CHECK_FAILS(pb_profile_close(p), PB_EIO, "rank0.json.gz");
    assert_null(load("traces/step0-0/rank0.json.gz"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(a_window_leaves_a_trace_of_its_active_steps),
        TEST(the_file_says_the_rank_as_analyses_search_for_it),
        TEST(a_window_that_is_cut_off_says_so),
        TEST(windows_repeat_and_a_full_ring_is_stated),
        TEST(a_limit_leaves_events_out_and_counts_them),
        TEST(the_size_is_known_before_the_window),
        TEST(only_chosen_ranks_write),
        TEST(bad_options_and_folders_are_refused),
        TEST(a_full_disk_does_not_end_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
