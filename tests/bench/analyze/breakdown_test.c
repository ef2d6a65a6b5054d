/* breakdown_test.c - traces with known times, written by trace/chrome.c and read back: the division of a step, phases,
 * ops, hidden communication, and files that are cut off. */
#include "bench/analyze/breakdown.h"

#include <unistd.h>

#include "tests/folder_test.h"
#include "tests/test.h"
#include "trace/chrome.h"

static const int64_t start_ns = 1795455939198887021; /* of the window */

/* A range from `begin` to `end` milliseconds. */
static pb_ring_record range(pb_range_kind kind, const char *name, double begin, double end, int64_t value)
{
    return (pb_ring_record){.name = name,
                            .kind = kind,
                            .value = value,
                            .complete = true,
                            .begin_ns = start_ns + (int64_t)(begin * 1e6),
                            .end_ns = start_ns + (int64_t)(end * 1e6)};
}
#define PLAIN PB_RANGE_NO_VALUE

/* Two steps of 10 ms on thread 11. In the first: ops from 1 to 3 and 3 to 4, one of them with an op of 0.5 ms inside;
 * a wait for collectives from 6 to 8; a collective that is not overlapped from 8 to 8.5. The second has one op of 5 ms.
 * An op before the steps does not count. Thread 12 carries out collectives from 2 to 5 and, at the same time, thread 13
 * from 4 to 7; one between the steps; all of the latter hidden. */
static const char *write_trace(const char *name, int rank)
{
    const pb_ring_record training[] = {
        range(PB_RANGE_op, "early", -2, -1, PLAIN),      range(PB_RANGE_op, "inner", 1.5, 2, PLAIN),
        range(PB_RANGE_op, "outer", 1, 3, PLAIN),        range(PB_RANGE_op, "inner", 3, 4, PLAIN),
        range(PB_RANGE_phase, "forward", 0.5, 5, PLAIN), range(PB_RANGE_op, "comm_wait", 6, 8, PLAIN),
        range(PB_RANGE_op, "comm_agree", 8, 8.5, PLAIN), range(PB_RANGE_phase, "backward", 5.5, 9, PLAIN),
        range(PB_RANGE_step, "train_step", 0, 10, 1),    range(PB_RANGE_op, "outer", 22, 27, PLAIN),
        range(PB_RANGE_phase, "forward", 21, 28, PLAIN), range(PB_RANGE_step, "train_step", 20, 30, 2),
    };
    const pb_ring_record worker[] = {range(PB_RANGE_collective, "all_reduce", 2, 5, 100),
                                     range(PB_RANGE_collective, "all_reduce", 15, 16, 100)};
    const pb_ring_record other[] = {range(PB_RANGE_collective, "all_gather", 4, 7, 100)};
    pb_ring_thread threads[] = {{.tid = 11, .records = training, .n = 12},
                                {.tid = 12, .records = worker, .n = 2},
                                {.tid = 13, .records = other, .n = 1}};
    const pb_ring_window w = {
        .begin_ns = start_ns, .end_ns = start_ns + 30000000, .threads = threads, .n = 3, .dropped = 4};
    const pb_trace_about about = {.rank = rank,
                                  .ranks = 2,
                                  .host = "h",
                                  .topology = "dp=2",
                                  .version = "v",
                                  .backend = "cpu",
                                  .device = "cpu",
                                  .first_step = 1,
                                  .last_step = 2};
    pb_trace_size size;
    CHECK_OK(pb_trace_write(&pb_disk_posix, in_folder(name), &about, &w, &(pb_gpu_window){0}, &size));
    return in_folder(name);
}

static void write_manifest(void)
{
    static const char text[] =
        "{\"format\": 1, \"ranks\": 2, \"topology\": \"dp=2\", \"profiled\": [0, 1], \"why\": \"w\", "
        "\"hosts\": [\"a\", \"b\"]}";
    CHECK_OK(pb_file_replace(in_folder("manifest.json"), text, sizeof text - 1));
    (void)pb_disk_posix.mkdir(NULL, in_folder("traces"));
    (void)pb_disk_posix.mkdir(NULL, in_folder("traces/step1-2"));
}

static const pb_part *part(const pb_part *parts, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(parts[i].name, name) == 0) return &parts[i];
    fail_msg("no %s", name);
    return NULL;
}

static void a_step_is_divided(void **state)
{
    (void)state;
    static pb_breakdown b;
    pb_profile_run r;
    write_manifest();
    (void)write_trace("traces/step1-2/rank1.json.gz", 1);
    CHECK_OK(pb_profile_run_read(test_folder, &r));
    assert_int_equal(r.n, 1);
    assert_int_equal(r.traces[0].dropped, 4);
    assert_false(r.traces[0].truncated);
    CHECK_OK(pb_breakdown_make(&r.traces[0], &b));
    assert_int_equal(b.rank, 1);
    assert_int_equal(b.steps, 2);
    const double ms = 1e-3, near = 2e-9; /* a nanosecond of each end, at most */
    CHECK_NEAR(b.step, 20 * ms, near);
    CHECK_NEAR(b.compute, 8 * ms, near);   /* 1..4 and 22..27 */
    CHECK_NEAR(b.exposed, 2.5 * ms, near); /* 6..8.5 */
    CHECK_NEAR(b.other, 9.5 * ms, near);
    CHECK_NEAR(b.hidden, 4 * ms, near); /* 2..7 without 6..7 */
    const pb_part *p = part(b.phases, b.nphases, "forward");
    assert_int_equal(p->calls, 2);
    CHECK_NEAR(p->seconds, 11.5 * ms, near);
    CHECK_NEAR(p->own, 11.5 * ms, near);
    p = part(b.phases, b.nphases, "backward");
    CHECK_NEAR(p->seconds, 3.5 * ms, near);
    CHECK_NEAR(p->own, 1 * ms, near);
    p = part(b.ops, b.nops, "outer");
    assert_int_equal(p->calls, 2);
    CHECK_NEAR(p->seconds, 7 * ms, near);
    CHECK_NEAR(p->own, 6.5 * ms, near);
    assert_int_equal(part(b.ops, b.nops, "inner")->calls, 2);
    assert_int_equal(b.nops, 4);
    assert_int_equal(b.unnamed, 0);
    pb_profile_run_free(&r);
}

static void files_that_are_cut_off_are_named(void **state)
{
    (void)state;
    pb_profile_run r;
    write_manifest();
    const char *path = write_trace("traces/step1-2/rank0.json.gz", 0);
    char *text;
    size_t n;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, path, 1 << 20, &text, &n));
    CHECK_OK(pb_file_replace(path, text, n / 2));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "rank0.json.gz: the file is cut off");
    pb_profile_run_free(&r);
    CHECK_OK(pb_file_replace(path, "{}", 2));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "rank0.json.gz: not a trace");
    pb_profile_run_free(&r);
    CHECK_OK(pb_file_replace(in_folder("manifest.json"), "{\"format\": 2}", 13));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "manifest.json: not the manifest");
    pb_profile_run_free(&r);
    CHECK_FAILS(pb_profile_run_read("/proc/nowhere", &r), PB_EPATH, "/proc/nowhere/manifest.json");
    pb_profile_run_free(&r);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_divided),
        cmocka_unit_test(files_that_are_cut_off_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
