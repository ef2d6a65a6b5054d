/* samples_test.c - samples of hardware counters: which belong to a window and how many are missing, the file of
 * records, and the tracks of a trace. */
#include <jansson.h>
#include <math.h>
#include <zlib.h>

#include "tests/folder_test.h"
#include "trace/records.h"

enum { US = 1000, INTERVAL_US = 1000, SAMPLES = 5 };
static const int64_t start_ns = 1795455939000000000; /* of the window */
#define MS(n) (start_ns + (n)*1000000)

static const pb_ring_window ranges = {.begin_ns = MS(0), .end_ns = MS(7), .tsc = true};
static const pb_trace_about about = {
    .ranks = 1, .host = "h", .topology = "dp=1", .version = "v", .backend = "cuda", .device = "cuda:0"};

/* Samples that begin at these milliseconds of the window; the caller frees them. Metric 1 of sample 2 has no value. */
static pb_gpu_samples samples_at(const int *ms, size_t n)
{
    pb_gpu_samples s = {.device = 3, .interval_us = INTERVAL_US, .metrics = 2, .n = n, .decode_s = 1};
    s.metric[0] = (pb_sampled_metric){"sm_busy", "%"};
    s.metric[1] = (pb_sampled_metric){"pcie_read_rate", "B/s"};
    s.sample = calloc(n + 1, sizeof *s.sample);
    s.value = calloc(2 * n + 1, sizeof *s.value);
    for (size_t i = 0; i < n; i++) {
        s.sample[i] = (pb_gpu_sample){MS(ms[i]), MS(ms[i] + 1)};
        s.value[2 * i] = 10.5 + (double)i;
        s.value[2 * i + 1] = i == 2 ? (double)NAN : 1e9 * (double)i;
    }
    return s;
}

static void what_is_missing_is_counted(void **state)
{
    static const struct {
        int at[SAMPLES];
        size_t n, kept, lost, outside;
        int64_t last; /* milliseconds; the end of the last sample */
        const char *why;
    } cases[] = {
        {{1, 2, 3, 4, 5}, 5, 5, 0, 0, 6, NULL},    /* the first one was discarded: it began at 0 */
        {{1, 2, 4, 5, 6}, 5, 5, 1, 0, 7, NULL},    /* one in the middle */
        {{4, 5, 6}, 3, 3, 2, 0, 7, NULL},          /* two at the begin */
        {{1, 2, 3}, 3, 3, 2, 0, 4, NULL},          /* and at the end: 4 to 7 less the last, unfinished one */
        {{-40, 1, 2, 3, 4}, 5, 4, 40, 1, 5, NULL}, /* one of another time */
        {{90, 91}, 2, 0, 0, 2, 92, "none of 2 samples is in the window, and the first begins 0.09 s after its begin"},
        {{0}, 0, 0, 5, 0, 0, "the GPU completed none of the 5 samples of the window"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pb_gpu_samples s = samples_at(cases[i].at, cases[i].n);
        const pb_sampled_span span = {MS(0), MS(7), MS(0), MS(7), cases[i].n ? MS(cases[i].last) : 0};
        if (cases[i].why) CHECK_FAILS(pb_gpu_samples_fit(&s, &span), PB_EDEVICE, cases[i].why);
        else CHECK_OK(pb_gpu_samples_fit(&s, &span));
        assert_int_equal(s.n, cases[i].kept);
        assert_int_equal(s.lost, cases[i].lost);
        assert_int_equal(s.outside, cases[i].outside);
        if (s.n) CHECK_NEAR(s.value[2 * (s.n - 1)], 10.5 + (double)(cases[i].n - 1), 0); /* values move with samples */
        pb_gpu_samples_free(&s);
    }
}

static void samples_are_read_as_they_were_written(void **state)
{
    static const int at[] = {1, 2, 3};
    pb_gpu_window gpu = {.samples = samples_at(at, 3)};
    pb_records r;
    (void)state;
    gpu.samples.lost = 4, gpu.samples.outside = 5, gpu.samples.overflows = 6;
    CHECK_OK(pb_records_write(&pb_disk_posix, in_folder("s.records.gz"), &about, &ranges, &gpu));
    CHECK_OK(pb_records_read(in_folder("s.records.gz"), &r));
    const pb_gpu_samples *s = &r.gpu.samples, *of = &gpu.samples;
    assert_true(s->device == 3 && s->interval_us == INTERVAL_US && s->metrics == 2 && s->n == 3);
    assert_true(s->lost == 4 && s->outside == 5 && s->overflows == 6);
    assert_string_equal(s->metric[1].name, "pcie_read_rate");
    assert_string_equal(s->metric[1].unit, "B/s");
    for (size_t i = 0; i < 3; i++)
        assert_true(s->sample[i].begin_ns == of->sample[i].begin_ns && s->sample[i].end_ns == of->sample[i].end_ns);
    for (size_t i = 0; i < 6; i++)
        assert_true(isnan(of->value[i]) ? isnan(s->value[i]) : !(fabs(s->value[i] - of->value[i]) > 0));
    pb_records_free(&r);
    pb_gpu_samples_free(&gpu.samples);
}

static json_t *trace_of(const char *path)
{
    static char text[1 << 20];
    gzFile f = gzopen(path, "rb");
    assert_non_null(f);
    const int n = gzread(f, text, sizeof text);
    assert_true(n > 0 && n < (int)sizeof text);
    (void)gzclose(f);
    json_t *t = json_loadb(text, (size_t)n, 0, NULL);
    assert_non_null(t);
    return t;
}

static const char *text_of(const json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }

static void each_metric_is_a_track(void **state)
{
    static const int at[] = {1, 2, 3};
    pb_gpu_window gpu = {.samples = samples_at(at, 3)};
    pb_trace_size size;
    size_t i, n = 0;
    json_t *e;
    double last = 0;
    (void)state;
    gpu.samples.lost = 4;
    CHECK_OK(pb_trace_write(&pb_disk_posix, in_folder("t.json.gz"), &about, &ranges, &gpu, &size));
    json_t *t = trace_of(in_folder("t.json.gz"));
    json_array_foreach(json_object_get(t, "traceEvents"), i, e)
    {
        if (strcmp(text_of(e, "ph"), "C") != 0) continue;
        const double ts = json_number_value(json_object_get(e, "ts")),
                     v = json_number_value(json_object_get(json_object_get(e, "args"), "value"));
        const bool busy = strcmp(text_of(e, "name"), "sm_busy (%)") == 0;
        assert_true(busy || strcmp(text_of(e, "name"), "pcie_read_rate (B/s)") == 0);
        assert_int_equal(json_integer_value(json_object_get(e, "pid")), 3);
        if (busy) CHECK_NEAR(v, 10.5 + (double)(n / 2), 1e-9);
        if (n && busy) CHECK_NEAR(ts - last, 1000, 1e-3);
        if (busy) last = ts;
        n++;
    }
    assert_int_equal(n, 5); /* one has no value */
    const json_t *plumb = json_object_get(t, "plumb");
    assert_int_equal(json_integer_value(json_object_get(plumb, "samples")), 3);
    assert_int_equal(json_integer_value(json_object_get(plumb, "samples_lost")), 4);
    assert_int_equal(json_integer_value(json_object_get(plumb, "sample_interval_us")), INTERVAL_US);
    json_decref(t);
    pb_gpu_samples_free(&gpu.samples);
}

static void the_limit_cuts_samples_and_counts_them(void **state)
{
    enum { MANY = 500 };
    static int at[MANY];
    pb_trace_size size;
    pb_trace_about small = about;
    (void)state;
    for (int i = 0; i < MANY; i++) at[i] = i;
    pb_gpu_window gpu = {.samples = samples_at(at, MANY)};
    small.limit = 20000;
    CHECK_OK(pb_trace_write(&pb_disk_posix, in_folder("c.json.gz"), &small, &ranges, &gpu, &size));
    assert_true(size.json <= small.limit && size.samples > 0 && size.samples < MANY);
    assert_int_equal(size.events + size.omitted, 2 * MANY - 1);
    assert_true(size.omitted > 0);
    json_t *t = trace_of(in_folder("c.json.gz"));
    assert_true(json_is_true(json_object_get(json_object_get(t, "plumb"), "truncated")));
    json_decref(t);
    pb_gpu_samples_free(&gpu.samples);
}

/* Kernels that were launched and not recorded are noticed; host calls alone, such as waits, are no sign of them. */
static void kernels_that_are_missing_are_noticed(void **state)
{
    pb_gpu_event events[] = {{.kind = PB_GPU_CALL, .name = "cudaStreamSynchronize_v3020"},
                             {.kind = PB_GPU_CALL, .name = "cudaLaunchKernel_v7000"},
                             {.kind = PB_GPU_KERNEL, .name = "k"}};
    pb_gpu_window w = {.events = events};
    (void)state;
    for (w.n = 0; w.n <= 3; w.n++) assert_int_equal(pb_gpu_lacks_work(&w), w.n == 2);
    events[2].kind = PB_GPU_GRAPH;
    w.n = 3;
    assert_false(pb_gpu_lacks_work(&w));
    events[2].kind = PB_GPU_SYNC;
    assert_true(pb_gpu_lacks_work(&w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_that_are_missing_are_noticed),   cmocka_unit_test(what_is_missing_is_counted),
        cmocka_unit_test(samples_are_read_as_they_were_written),  cmocka_unit_test(each_metric_is_a_track),
        cmocka_unit_test(the_limit_cuts_samples_and_counts_them),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
