/* sampled_phases_test.c - sampled hardware counters: read from a trace, and divided among the parts of its steps, with
 * weights that were computed by hand. */
#include "bench/analyze/intervals.h"
#include "bench/analyze/samples.h"
#include "os/draft.h"
#include "tests/folder_test.h"
#include "tests/test.h"

/* Times in seconds, an interval of 1. Two steps, 1 to 5 and 7 to 12. The samples that would begin at 6 and 7 are lost.
 * `forward` works from 1.5 to 2.25 and, on another stream, 2 to 2.5; `backward` from 2.5 to 4.5 and, after it began
 * outside the step, from 7 to 9; work of no phase runs from 10 to 10.5, work outside the steps from 5.5 to 6. Idle are
 * 1 to 1.5, 4.5 to 5, 9 to 10, and 10.5 to 12. */
static void samples_are_weighted_by_the_time_of_a_part(void **state)
{
    (void)state;
    enum { METRICS = 2 };
    pb_trace_event events[] = {{.kind = PB_RANGE_step, .tid = 3, .begin = 1, .end = 5},
                               {.kind = PB_RANGE_phase, .tid = 3, .begin = 1, .end = 5},
                               {.kind = PB_RANGE_step, .tid = 3, .begin = 7, .end = 12},
                               {.kind = PB_RANGE_step, .tid = 4, .begin = 0, .end = 20}}; /* not the training thread */
    pb_gpu_span work[] = {
        {.phase = "backward", .begin = 2.5, .end = 4.5}, {.phase = "forward", .begin = 1.5, .end = 2.25},
        {.phase = "forward", .begin = 2, .end = 2.5},    {.phase = "backward", .begin = 6.5, .end = 9},
        {.phase = "backward", .begin = 5.5, .end = 6},   {.begin = 10, .end = 10.5}};
    double begin[] = {1, 2, 3, 4, 5, 8, 9, 10.25}; /* the one at 9 ends at 10.25, at less than 1.5 intervals */
    double value[] = {10, 1, 20, (double)NAN, 30, 3, 40, 4, 50, 5, 80, 8, 90, 9, 100, 10};
    const pb_trace t = {
        .events = events,
        .n = sizeof events / sizeof *events,
        .gpu = work,
        .ngpu = sizeof work / sizeof *work,
        .samples = {
            .interval = 1, .metrics = METRICS, .begin = begin, .value = value, .n = sizeof begin / sizeof *begin}};
    /* The sums of w_i v_i and of w_i, of the second metric without the sample at 2. */
    static const struct {
        const char *name;
        double seconds, sampled, weighted[METRICS], weight[METRICS];
        long pieces; /* the pause from 10 to 10.5 is shorter than an interval */
    } want[] = {
        /* step: 1 to 5; 7 to 8 is lost; 8 to 9 of the sample at 8; 9 to 10.25; 10.25 to 11.25, the end of the last */
        {"step", 9, 7.25, {100 + 80 + 112.5 + 100, 8 + 8 + 11.25 + 10}, {7.25, 6.25}, 2},
        /* idle: half of the samples at 1 and 4; 9 to 10; 10.5 to 11.25 */
        {"idle", 3.5, 2.75, {5 + 20 + 90 + 75, 0.5 + 2 + 9 + 7.5}, {2.75, 2.75}, 3},
        {"no phase", 0.5, 0.5, {0.25 * 90 + 0.25 * 100, 0.25 * 9 + 0.25 * 10}, {0.5, 0.5}, 1},
        /* backward: the sample at 2 reaches over the border of the phases, so both have a half of it */
        {"backward", 4, 3, {10 + 30 + 20 + 80, 3 + 2 + 8}, {3, 2.5}, 2},
        {"forward", 1, 1, {5 + 10, 0.5}, {1, 0.5}, 1},
    };
    pb_sampled s;
    CHECK_OK(pb_samples_divide(&t, &s));
    assert_int_equal(s.n, sizeof want / sizeof *want);
    for (size_t i = 0; i < s.n; i++) {
        assert_string_equal(s.part[i].name, want[i].name);
        CHECK_NEAR(s.part[i].seconds, want[i].seconds, 1e-12);
        assert_int_equal(s.part[i].pieces, want[i].pieces);
        CHECK_NEAR(s.part[i].sampled, want[i].sampled, 1e-12);
        for (int m = 0; m < METRICS; m++) {
            CHECK_NEAR(s.part[i].weighted[m], want[i].weighted[m], 1e-12);
            CHECK_NEAR(s.part[i].weight[m], want[i].weight[m], 1e-12);
        }
    }
    pb_sampled_free(&s);
}

/* More phases than the list has room for at first, so that it grows. */
static void many_phases_have_a_part_each(void **state)
{
    (void)state;
    enum { PHASES = 100 };
    static char names[PHASES][8];
    static pb_gpu_span work[PHASES];
    pb_trace_event step = {.kind = PB_RANGE_step, .begin = 0, .end = PHASES};
    double begin = 0, value = 7;
    pb_trace t = {.events = &step, .n = 1, .gpu = work, .ngpu = PHASES};
    t.samples = (pb_trace_samples){.interval = PHASES, .metrics = 1, .begin = &begin, .value = &value, .n = 1};
    for (int i = 0; i < PHASES; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        work[i] = (pb_gpu_span){.phase = names[i], .begin = i, .end = i + 0.5};
    }
    pb_sampled s;
    CHECK_OK(pb_samples_divide(&t, &s));
    assert_int_equal(s.n, PB_SAMPLED_PHASES + PHASES);
    for (int i = 0; i < PHASES; i++) {
        assert_string_equal(s.part[PB_SAMPLED_PHASES + i].name, names[i]);
        CHECK_NEAR(s.part[PB_SAMPLED_PHASES + i].weighted[0], 3.5, 1e-12);
    }
    pb_sampled_free(&s);
}

static void intervals_are_cut(void **state)
{
    (void)state;
    pb_interval a[] = {{0, 4}, {6, 8}, {9, 10}}, b[] = {{1, 2}, {3, 7}, {9, 11}}, got[6];
    static const pb_interval both[] = {{1, 2}, {3, 4}, {6, 7}, {9, 10}}, only[] = {{0, 1}, {2, 3}, {7, 8}};
    const pb_intervals x = {a, 3}, y = {b, 3};
    pb_intervals out = {got, 0};
    pb_intervals_cut(&x, &y, &out);
    assert_int_equal(out.n, 4);
    for (size_t i = 0; i < out.n; i++) assert_true(got[i].begin == both[i].begin && got[i].end == both[i].end);
    pb_intervals_without(&x, &y, &out);
    assert_int_equal(out.n, 3);
    for (size_t i = 0; i < out.n; i++) assert_true(got[i].begin == only[i].begin && got[i].end == only[i].end);
}

/* Writes a job of one trace with these events; its window begins at 7434866606474920 ns after the zero of the times. */
static void write_job(const char *events)
{
    static const char manifest[] = "{\"format\": 1, \"ranks\": 1, \"topology\": \"dp=1\", \"profiled\": [0], \"why\": "
                                   "\"w\", \"hosts\": [\"a\"]}";
    char text[4000];
    const int n = snprintf(
        text, sizeof text,
        "{\"distributedInfo\": {\"rank\": 0}, \"baseTimeNanoseconds\": 1788480000000000000, \"traceEvents\": [%s], "
        "\"plumb\": {\"steps\": [1, 1], \"window_ns\": [1795914866606474920, 1795914867606474920], "
        "\"sample_interval_us\": 50}}",
        events);
    assert_in_range(n, 1, sizeof text - 1);
    CHECK_OK(pb_file_replace(in_folder("manifest.json"), manifest, sizeof manifest - 1));
    (void)pb_disk_posix.mkdir(NULL, in_folder("traces"));
    (void)pb_disk_posix.mkdir(NULL, in_folder("traces/step1-1"));
    CHECK_OK(pb_file_replace(in_folder("traces/step1-1/rank0.json.gz"), text, (size_t)n));
}
#define COUNT(name, ts, value)                                                                                         \
    "{\"ph\":\"C\",\"cat\":\"hardware_counters\",\"name\":\"" name "\",\"pid\":0,\"ts\":" ts                           \
    ",\"args\":{\"value\":" value "}}"

static void samples_are_read_with_units_and_gaps(void **state)
{
    (void)state;
    pb_profile_run r;
    /* In another order than that of time, another counter track between them; the second sample lacks a metric. */
    write_job(COUNT("busy (%)", "7434866606625.001", "3") "," COUNT(
        "busy (%)", "7434866606474.92", "1") ","
                                             "{\"ph\":\"C\",\"cat\":\"other\",\"name\":\"x\",\"ts\":1,\"args\":{}}," //
              COUNT("rate (B/s)", "7434866606474.92", "1e9") "," COUNT(
                  "rate (B/s)", "7434866606625.001", "2.5e9") "," COUNT("rate (B/s)", "7434866606524.921", "4"));
    CHECK_OK(pb_profile_run_read(test_folder, &r));
    assert_int_equal(r.n, 1);
    const pb_trace_samples *s = &r.traces[0].samples;
    CHECK_NEAR(s->interval, 5e-5, 1e-18);
    assert_int_equal(s->n, 3);
    assert_int_equal(s->metrics, 2);
    assert_string_equal(s->metric[0].name, "busy");
    assert_string_equal(s->metric[0].unit, "%");
    assert_string_equal(s->metric[1].name, "rate");
    assert_string_equal(s->metric[1].unit, "B/s");
    static const double begin[] = {0, 50.001e-6, 150.081e-6}, rate[] = {1e9, 4, 2.5e9};
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(s->begin[i], begin[i], 1e-12); /* exact: a double of ts alone is half a nanosecond off */
        CHECK_NEAR(s->value[2 * i + 1], rate[i], 0);
    }
    assert_true(s->value[0] == 1 && isnan(s->value[2]) && s->value[4] == 3);
    pb_profile_run_free(&r);
}

static void samples_that_are_no_samples_are_refused(void **state)
{
    (void)state;
    pb_profile_run r;
    write_job(COUNT("busy (%)", "1", "\"x\""));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "event 0, a sample, has no name, ts or value");
    pb_profile_run_free(&r);
    write_job(COUNT("busy (%)", "1e300", "1"));
    CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "event 0, a sample: need a ts between -1e15 and 1e15");
    pb_profile_run_free(&r);
    char many[3000];
    size_t n = 0;
    for (int i = 0; i <= PB_GROUP_METRICS; i++) {
        const char *form =
            "%s{\"ph\":\"C\",\"cat\":\"hardware_counters\",\"name\":\"%c\",\"ts\":1,\"args\":{\"value\":1}}";
        n += (size_t)snprintf(many + n, sizeof many - n, form, i ? "," : "", 'a' + i);
        if (i < PB_GROUP_METRICS - 1) continue;
        write_job(many);
        if (i < PB_GROUP_METRICS) CHECK_OK(pb_profile_run_read(test_folder, &r));
        else CHECK_FAILS(pb_profile_run_read(test_folder, &r), PB_EINVAL, "more than 24 sampled metrics");
        pb_profile_run_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_weighted_by_the_time_of_a_part),
        cmocka_unit_test(many_phases_have_a_part_each),
        cmocka_unit_test(intervals_are_cut),
        cmocka_unit_test(samples_are_read_with_units_and_gaps),
        cmocka_unit_test(samples_that_are_no_samples_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
