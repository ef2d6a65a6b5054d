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
static pb_trace_size trace_size; /* of the trace that was written last */
static size_t trace_limit;       /* of the traces that are written */

/* Two steps of 10 ms on thread 11. In the first: ops from 1 to 3 and 3 to 4, one of them with an op of 0.5 ms inside;
 * a wait for collectives from 6 to 8; a collective that is not overlapped from 8 to 8.5. The second has one op of 5 ms.
 * An op before the steps does not count. Thread 12 carries out collectives from 2 to 5 and, at the same time, thread 13
 * from 4 to 7; one between the steps; all of the latter hidden. */
static const char *write_trace(const char *name, int rank, const pb_gpu_window *gpu)
{
    pb_ring_record training[] = {
        range(PB_RANGE_op, "early", -2, -1, PLAIN),      range(PB_RANGE_op, "inner", 1.5, 2, PLAIN),
        range(PB_RANGE_op, "outer", 1, 3, PLAIN),        range(PB_RANGE_op, "inner", 3, 4, PLAIN),
        range(PB_RANGE_phase, "forward", 0.5, 5, PLAIN), range(PB_RANGE_op, "comm_wait", 6, 8, PLAIN),
        range(PB_RANGE_op, "comm_agree", 8, 8.5, PLAIN), range(PB_RANGE_phase, "backward", 5.5, 9, PLAIN),
        range(PB_RANGE_step, "train_step", 0, 10, 1),    range(PB_RANGE_op, "outer", 22, 27, PLAIN),
        range(PB_RANGE_phase, "forward", 21, 28, PLAIN), range(PB_RANGE_step, "train_step", 20, 30, 2),
    };
    training[2].flops = 1000, training[2].bytes = 30; /* outer */
    training[9].flops = 500;
    pb_ring_record worker[] = {range(PB_RANGE_collective, "all_reduce", 2, 5, 100),
                               range(PB_RANGE_collective, "all_reduce", 15, 16, 100)};
    pb_ring_record other[] = {range(PB_RANGE_collective, "all_gather", 4, 7, 100)};
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
                                  .last_step = 2,
                                  .limit = trace_limit};
    CHECK_OK(pb_trace_write(&pb_disk_posix, in_folder(name), &about, &w, gpu ? gpu : &(pb_gpu_window){0}, &trace_size));
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
    (void)write_trace("traces/step1-2/rank1.json.gz", 1, NULL);
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
    CHECK_NEAR(p->flops, 1500, 0);
    CHECK_NEAR(p->bytes, 30, 0);
    CHECK_NEAR(part(b.ops, b.nops, "inner")->flops, 0, 0);
    assert_int_equal(part(b.ops, b.nops, "inner")->calls, 2);
    assert_int_equal(b.nops, 4);
    assert_int_equal(b.unnamed, 0);
    pb_profile_run_free(&r);
}

/* Work of a GPU, or a host call of thread 11, from `begin` to `end` milliseconds. */
static pb_gpu_event event(pb_gpu_kind kind, const char *name, uint32_t correlation, double begin, double end)
{
    const bool work = kind <= PB_GPU_SET;
    return (pb_gpu_event){.kind = kind,
                          .name = name,
                          .correlation = correlation,
                          .begin_ns = start_ns + (int64_t)(begin * 1e6),
                          .end_ns = start_ns + (int64_t)(end * 1e6),
                          .stream = work ? 7 : UINT32_MAX,
                          .thread = work ? 0 : 11,
                          .grid = {1, 1, 1},
                          .block = {32, 1, 1},
                          .bytes = 1000};
}

/* The GPU's time of the two steps of 10 ms, and the ops of its work. Kernel 1 is enqueued in outer, after its inner op,
 * by a call of the runtime with one of the driver inside; kernel 2 in inner; kernel 3 by an unknown call. A copy
 * overlaps them. NCCL's kernel overlaps kernel 2 for 1 ms. In the second step a replayed kernel has the place of its
 * capture. */
static void a_gpu_is_divided_and_its_work_joined(void **state)
{
    (void)state;
    static pb_breakdown b;
    static const pb_range_stack place = {
        .depth = 2, .at = {{PB_RANGE_phase, "backward", PLAIN}, {PB_RANGE_op, "replayed_op", PLAIN, 7000, 90}}};
    pb_gpu_event events[] = {
        event(PB_GPU_CALL, "cudaLaunchKernel_v7000", 1, 2.1, 2.2),
        event(PB_GPU_CALL, "cuLaunchKernel", 1, 2.11, 2.19),
        event(PB_GPU_CALL, "cudaLaunchKernelExC_ptsz_v11060", 2, 1.6, 1.7),
        event(PB_GPU_KERNEL, "_Z3fooPf", 1, 2, 3),
        event(PB_GPU_COPY, "Memcpy DtoD", 0, 2.5, 4),
        event(PB_GPU_KERNEL, "second", 2, 5, 7),
        event(PB_GPU_KERNEL, "third", 99, 6.5, 8),
        event(PB_GPU_KERNEL, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 7.5, 9.5),
        event(PB_GPU_KERNEL, "replayed", 5, 21, 24),
        event(PB_GPU_KERNEL, "outside", 0, 15, 16),
    };
    events[8].node = 12;
    events[8].place = &place;
    const pb_gpu_window gpu = {.events = events, .n = sizeof events / sizeof *events, .dropped = 3};
    pb_profile_run r;
    write_manifest();
    (void)unlink(in_folder("traces/step1-2/rank1.json.gz"));
    (void)write_trace("traces/step1-2/rank0.json.gz", 0, &gpu);
    assert_int_equal(trace_size.kernels, 6);
    assert_int_equal(trace_size.unjoined, 3); /* third, NCCL's and the one outside */
    CHECK_OK(pb_profile_run_read(test_folder, &r));
    assert_int_equal(r.n, 1);
    assert_int_equal(r.traces[0].dropped, 7);
    CHECK_OK(pb_breakdown_make(&r.traces[0], &b));
    const double ms = 1e-3, near = 5e-9;
    assert_true(b.has_gpu);
    CHECK_NEAR(b.gpu.compute, 7 * ms, near);   /* 2..3, 5..8, 21..24 */
    CHECK_NEAR(b.gpu.exposed, 1.5 * ms, near); /* 8..9.5 */
    CHECK_NEAR(b.gpu.hidden, 0.5 * ms, near);  /* 7.5..8 */
    CHECK_NEAR(b.gpu.memory, 1 * ms, near);    /* 3..4 */
    CHECK_NEAR(b.gpu.idle, 10.5 * ms, near);
    /* 0..2: the call that enqueued kernel 1 ended later than it began; 4..5: kernel 2 had been enqueued at 1.7; 24..30:
     * nothing follows. 9.5..10 and 20..21: the trace lacks the calls that enqueued what comes next. */
    CHECK_NEAR(b.gpu.host_bound, 8 * ms, near);
    CHECK_NEAR(b.gpu.unknown, 1.5 * ms, near);
    assert_int_equal(b.gpu.kernels, 5);
    assert_int_equal(b.gpu.unjoined, 2);
    const pb_part *p = part(b.ops, b.nops, "outer");
    assert_int_equal(p->gpu_calls, 1);
    CHECK_NEAR(p->gpu, 1 * ms, near);
    CHECK_NEAR(part(b.ops, b.nops, "inner")->gpu, 2 * ms, near);
    CHECK_NEAR(part(b.ops, b.nops, "replayed_op")->gpu, 3 * ms, near);
    CHECK_NEAR(part(b.ops, b.nops, "replayed_op")->flops, 7000, 0);
    CHECK_NEAR(part(b.ops, b.nops, "replayed_op")->bytes, 90, 0);
    CHECK_NEAR(part(b.ops, b.nops, "outer")->flops, 1500, 0); /* of the ranges, not once more of the kernels */
    CHECK_NEAR(part(b.phases, b.nphases, "forward")->gpu, 3 * ms, near);
    CHECK_NEAR(part(b.phases, b.nphases, "backward")->gpu, 3 * ms, near);
    pb_profile_run_free(&r);
}

/* The limit of a trace's size holds for the records of a GPU, which have more text than ranges. */
static void a_limit_holds_for_the_records_of_a_gpu(void **state)
{
    enum { EVENTS = 300 };
    static pb_gpu_event events[EVENTS];
    static char text[1 << 16];
    (void)state;
    for (int i = 0; i < EVENTS; i++)
        events[i] = event(i % 2 ? PB_GPU_KERNEL : PB_GPU_CALL, i % 2 ? "a_kernel" : "cudaLaunchKernel_v7000",
                          (uint32_t)(i / 2 + 1), 1 + 0.01 * i, 1.005 + 0.01 * i);
    const pb_gpu_window gpu = {.events = events, .n = EVENTS};
    for (trace_limit = PB_TRACE_LEAST; trace_limit < 3 * PB_TRACE_LEAST; trace_limit += 777) {
        (void)write_trace("limited.json.gz", 0, &gpu);
        gzFile f = gzopen(in_folder("limited.json.gz"), "rb");
        assert_non_null(f);
        const int n = gzread(f, text, sizeof text - 1);
        (void)gzclose(f);
        assert_in_range(n, 1, trace_limit);
        text[n] = 0;
        assert_int_equal(trace_size.json, n);
        assert_int_equal(trace_size.events + trace_size.omitted, EVENTS + 15); /* and the ranges */
        assert_true(trace_size.omitted > 0 && trace_size.kernels > 0 && trace_size.kernels < EVENTS / 2);
        size_t kernels = 0;
        for (const char *at = text; (at = strstr(at, "\"cat\":\"kernel\"")); at++) kernels++;
        assert_int_equal(trace_size.kernels, kernels);
        assert_non_null(strstr(text, "\"truncated\":true}}"));
    }
    trace_limit = 0;
}

/* The names, numbers and lanes of a GPU's events, as other tools read them. */
static void events_of_a_gpu_are_those_that_tools_expect(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\"",
        "\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernelExC\"",
        "\"name\":\"second\",\"pid\":0,\"tid\":7,",
        "\"name\":\"third\",\"pid\":0,\"tid\":1000007,", /* overlaps `second` on stream 7 */
        "\"cat\":\"gpu_memcpy\",\"name\":\"Memcpy DtoD\"",
        "\"ph\":\"s\",\"cat\":\"ac2g\"",
        "\"kernels\":6,\"unjoined\":3,\"gpu_dropped\":3",
    };
    static char text[1 << 16];
    gzFile f = gzopen(in_folder("traces/step1-2/rank0.json.gz"), "rb");
    assert_non_null(f);
    const int n = gzread(f, text, sizeof text - 1);
    (void)gzclose(f);
    assert_in_range(n, 1000, sizeof text - 2);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(text, wanted[i])) fail_msg("the trace lacks %s:\n%s", wanted[i], text);
    assert_null(strstr(text, "cuda_driver")); /* the call inside that of the runtime */
}

static void files_that_are_cut_off_are_named(void **state)
{
    (void)state;
    pb_profile_run r;
    write_manifest();
    const char *path = write_trace("traces/step1-2/rank0.json.gz", 0, NULL);
    char *text;
    size_t n;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, path, 1 << 20, &text, &n));
    CHECK_OK(pb_file_replace(path, text, n / 2));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "rank0.json.gz: the file is cut off");
    pb_profile_run_free(&r);
    CHECK_OK(pb_file_replace(path, "{}", 2));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "rank0.json.gz: not a trace");
    pb_profile_run_free(&r);
    static const char *const times[] = {"\"ts\":1,\"dur\":-1", "\"ts\":1,\"dur\":1e308", "\"ts\":-1e300,\"dur\":1"};
    for (int i = 0; i < 3; i++) {
        char trace[400];
        snprintf(trace, sizeof trace,
                 "{\"plumb\":{\"steps\":[1,2],\"window_ns\":[0,1]},\"distributedInfo\":{\"rank\": 0},\"traceEvents\":"
                 "[{\"ph\":\"X\",\"name\":\"x\",\"tid\":1,%s}]}",
                 times[i]);
        CHECK_OK(pb_file_replace(path, trace, strlen(trace)));
        CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "need a ts between -1e15 and 1e15 microseconds");
        pb_profile_run_free(&r);
    }
    static const char early[] = "{\"plumb\":{\"steps\":[1,2],\"window_ns\":[0,1]},\"distributedInfo\":{\"rank\": 0},"
                                "\"baseTimeNanoseconds\":-9223372036854775807,\"traceEvents\":[]}";
    CHECK_OK(pb_file_replace(path, early, strlen(early)));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL,
                "baseTimeNanoseconds is more than a century from 1970");
    pb_profile_run_free(&r);
    CHECK_OK(pb_file_replace(in_folder("manifest.json"), "{\"format\": 2}", 13));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "manifest.json: not the manifest");
    pb_profile_run_free(&r);
    CHECK_FAILS(pb_profile_run_read("/proc/nowhere", &r), PB_EPATH, "/proc/nowhere/manifest.json");
    pb_profile_run_free(&r);
    free(text);
}

/* A trace is refused wherever it is cut: in gzip's header, in the data, and in the checksum at its end. */
static void a_trace_is_refused_wherever_it_is_cut(void **state)
{
    (void)state;
    pb_profile_run r;
    write_manifest();
    const char *path = write_trace("traces/step1-2/rank0.json.gz", 0, NULL);
    char *text;
    size_t n;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, path, 1 << 20, &text, &n));
    for (size_t kept = 0; kept < n; kept++) {
        CHECK_OK(pb_file_replace(path, text, kept));
        CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "rank0.json.gz: ");
        if (strchr(pb_error(), '\n')) fail_msg("more than one line: %s", pb_error());
        pb_profile_run_free(&r);
    }
    free(text);
}

/* A trace of a rank that the job does not have, and one without events, are refused. */
static void a_trace_of_another_job_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{\"distributedInfo\": {\"rank\": -1}, \"plumb\": {\"steps\": [1, 2], \"window_ns\": [1, 2]}, "
         "\"traceEvents\": []}",
         "rank0.json.gz: of rank -1, but the job"},
        {"{\"distributedInfo\": {\"rank\": 2}, \"plumb\": {\"steps\": [1, 2], \"window_ns\": [1, 2]}, \"traceEvents\": "
         "[]}",
         "rank0.json.gz: of rank 2, but the job of manifest.json has 2 ranks"},
        {"{\"distributedInfo\": {\"rank\": 0}, \"plumb\": {\"steps\": [1, 2], \"window_ns\": [1, 2]}}",
         "rank0.json.gz: not a trace"},
        {"not gzip", "rank0.json.gz: not complete JSON"},
    };
    pb_profile_run r;
    write_manifest();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OK(pb_file_replace(in_folder("traces/step1-2/rank0.json.gz"), bad[i].text, strlen(bad[i].text)));
        CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, bad[i].why);
        pb_profile_run_free(&r);
    }
}

/* A graph recorded as a whole counts as compute from its begin to its end, and not as a kernel. */
static void graphs_are_recorded_as_wholes(void **state)
{
    (void)state;
    static pb_breakdown b;
    pb_profile_run r;
    pb_gpu_event events[] = {event(PB_GPU_CALL, "cudaGraphLaunch_v10000", 5, 1, 1.5),
                             event(PB_GPU_GRAPH, "graph", 5, 2, 6), event(PB_GPU_COPY, "Memcpy HtoD", 6, 5, 7)};
    events[1].stream = 7;
    pb_gpu_window gpu = {.events = events, .n = 3};
    write_manifest();
    (void)write_trace("traces/step1-2/rank1.json.gz", 1, &gpu);
    assert_int_equal(trace_size.kernels, 0);
    assert_int_equal(trace_size.unjoined, 0);
    CHECK_OK(pb_profile_run_read(test_folder, &r));
    CHECK_OK(pb_breakdown_make(&r.traces[0], &b));
    assert_true(b.has_gpu && b.gpu.graphs == 1 && b.gpu.kernels == 0 && b.gpu.unjoined == 0);
    CHECK_NEAR(b.gpu.compute, 4e-3, 2e-9);
    CHECK_NEAR(b.gpu.memory, 1e-3, 2e-9);
    pb_profile_run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_divided),
        cmocka_unit_test(graphs_are_recorded_as_wholes),
        cmocka_unit_test(a_gpu_is_divided_and_its_work_joined),
        cmocka_unit_test(events_of_a_gpu_are_those_that_tools_expect),
        cmocka_unit_test(a_limit_holds_for_the_records_of_a_gpu),
        cmocka_unit_test(files_that_are_cut_off_are_named),
        cmocka_unit_test(a_trace_is_refused_wherever_it_is_cut),
        cmocka_unit_test(a_trace_of_another_job_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
