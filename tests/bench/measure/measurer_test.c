/* measurer_test.c - tests of the measurement loop on the scripted device of scripted.h: only the work is timed,
 * sampling ends at the requested time or number of samples, and a failure of any call ends the measurement with its
 * error. */
#include "tests/bench/measure/measured.h"
#include "bench/measure/slowdown.h"
#include "bench/measure/time_slice.h"
#include "os/interrupt.h"

static const double unit = SCRIPTED_UNIT;

static bool interrupted; /* replaces the flag that signal handlers set */

bool pb_interrupted(void) { return interrupted; }
static void interrupt(void) { interrupted = true; }

static void median_of_odd_and_even(void **state)
{
    double one[] = {3}, odd[] = {9, 1, 5}, even[] = {8, 2, 4, 1};
    (void)state;
    CHECK_NEAR(pb_median(one, 1), 3, 0);
    CHECK_NEAR(pb_median(odd, 3), 5, 0);
    CHECK_NEAR(pb_median(even, 4), 3, 0);
}

/* ---- overhead that the measurement adds to a sample ---------------------------------------------- */

static void a_sample_holds_one_mark_at_most(void **state)
{
    static const double script[16] = {1, 1, 1, 1, 1, 1, 1, 1};
    const pb_measure_opts o = {.warmup = 2, .min_samples = 5, .max_samples = 5};
    scripted cpu = {.script = script, .marking = unit}, gpu = {.script = script, .async = true, .marking = unit};
    (void)state;
    pb_timing t = measure(&cpu, &o);
    for (int i = 0; i < 5; i++) {
        CHECK_NEAR(t.seconds[i], 1 + unit, 0);
        CHECK_NEAR(t.host[i], 1 + 2 * unit, 0);
    }
    t = measure(&gpu, &o);
    for (int i = 0; i < 5; i++) CHECK_NEAR(t.seconds[i], 1, 0);
}

/* Shows why the option `queued` exists: without it the device is idle when a sample begins, so that each sample
 * includes the host's time to enqueue; with it, only the first sample of a batch does. */
static void an_idle_device_waits_for_the_host(void **state)
{
    static const double script[16] = {1, 1, 1, 1, 1, 1, 1, 1};
    pb_measure_opts o = {.warmup = 2, .min_samples = 5, .max_samples = 5};
    scripted idle = {.script = script, .async = true, .enqueue = 0.25}, busy = idle, behind = idle;
    (void)state;
    CHECK_NEAR(measure(&idle, &o).median, 1.25, 0);
    o.queued = true;
    pb_timing t = measure(&behind, &o);
    CHECK_NEAR(t.seconds[0], 1.25, 0); /* 1 s of work and 0.25 s to enqueue it, because the device is idle */
    CHECK_NEAR(t.seconds[1], 1, 0);
    o.flush = true;
    t = measure(&busy, &o);
    CHECK_NEAR(t.seconds[0], 1, 0);
    CHECK_NEAR(t.median, 1, 0);
}

/* ---- the number of samples ----------------------------------------------------------------------- */

static const double script[64] = {50, 40, 1, 5, 2, 4, 3, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void samples_come_in_order_after_the_warm_up(void **state)
{
    scripted s = {.script = script};
    (void)state;
    pb_timing t = measure(&s, &(pb_measure_opts){.warmup = 2, .min_samples = 5, .max_samples = 5, .min_time = 1e9});
    same_to_the_bit("short script", &t, script + 2, 5);
    CHECK_NEAR(t.median, 3, 0);
    CHECK_NEAR(t.kernel_launches, SCRIPTED_LAUNCHES, 0);
    CHECK_NEAR(t.host_syncs, SCRIPTED_WAITS, 0); /* host syncs of the work itself, not of the measurement */
    CHECK_NEAR(t.searches, SCRIPTED_SEARCHES, 0);
    assert_int_equal(t.nodes, 0);
    CHECK_NEAR(t.record_seconds, 0, 0);
    assert_int_equal(s.count[STEP_MARK], 10);
}

static void sampling_stops_at_the_time_asked_for(void **state)
{
    scripted f = {.script = script}, g = f, h = f;
    (void)state;
    pb_timing t = measure(&f, &(pb_measure_opts){.warmup = 2, .min_samples = 1, .max_samples = 50, .min_time = 8});
    assert_int_equal(t.n, 3); /* 1 + 5 + 2: the samples reach exactly 8 s */
    t = measure(&g, &(pb_measure_opts){.warmup = 2, .min_samples = 4, .max_samples = 50, .min_time = 0});
    assert_int_equal(t.n, 4);
    CHECK_NEAR(t.median, 3, 0); /* median of 1 5 2 4 */
    t = measure(&h, &(pb_measure_opts){.warmup = 2, .min_samples = 1, .max_samples = 6, .min_time = 1e9});
    assert_int_equal(t.n, 6);
}

/* Measures for 8 s in time slices of 2 s, with calls of 0.25 s. Each slice has one call to warm the caches, two of the
 * eight samples, and five untimed calls. */
static void turns_spread_the_samples_over_their_time(void **state)
{
    static double quarters[64];
    pb_time_slices alone = {.length = 2, .from = -1, .to = -1};
    scripted f = {.script = quarters}, g = f;
    (void)state;
    for (int i = 0; i < 64; i++) quarters[i] = 0.25;
    pb_measure_opts o = {
        .warmup = 2, .min_samples = 5, .max_samples = 8, .min_time = 8, .round_hook = pb_time_slice_hook(&alone)};
    pb_timing t = measure(&f, &o);
    assert_int_equal(t.n, 8);
    /* three slices of 8 calls; the last slice ends with the last sample, after 3 calls */
    assert_int_equal(f.calls, 8 + 2 * 8 + 3);
    o.max_samples = 64, o.min_time = 7.5, alone.began = 0;
    t = measure(&g, &o);
    assert_int_equal(t.n, 5 + 3 * 7); /* min_time ends the measurement before it has 64 samples */
    assert_int_equal(g.calls, 4 * 8);
}

/* When a call is longer than a slice, a slice is one call, and no extra call warms the caches. */
static void a_turn_is_one_call_where_calls_are_longer(void **state)
{
    static double threes[16];
    pb_time_slices alone = {.length = 2, .from = -1, .to = -1};
    scripted f = {.script = threes};
    (void)state;
    for (int i = 0; i < 16; i++) threes[i] = 3;
    const pb_measure_opts o = {
        .warmup = 1, .min_samples = 4, .max_samples = 64, .min_time = 8, .round_hook = pb_time_slice_hook(&alone)};
    const pb_timing t = measure(&f, &o);
    assert_int_equal(t.n, 4);
    /* 1 warm-up call; 1 more in the first slice, when the length of a call is not known yet; 4 samples */
    assert_int_equal(f.calls, 1 + 1 + 4);
}

/* Calls longer than a slice but below 0.1 s: a slice is two calls, of which the second is timed. */
static void a_turn_is_two_calls_where_the_caches_matter(void **state)
{
    static double sixteenths[32];
    pb_time_slices alone = {.length = 0x1p-9, .from = -1, .to = -1};
    scripted f = {.script = sixteenths};
    (void)state;
    for (int i = 0; i < 32; i++) sixteenths[i] = 0x1p-4;
    const pb_measure_opts o = {
        .warmup = 1, .min_samples = 4, .max_samples = 64, .min_time = 1, .round_hook = pb_time_slice_hook(&alone)};
    const pb_timing t = measure(&f, &o);
    assert_int_equal(t.n, 8); /* 8 slices of 2/16 s */
    assert_int_equal(f.calls, 1 + 2 * 8);
}

/* ---- preparation, host syncs and delays that must not be in a sample's time ---------------------- */

static void preparation_is_not_timed(void **state)
{
    const pb_measure_opts o = {
        .warmup = 2, .min_samples = 5, .max_samples = 5, .flush = true, .before = scripted_before};
    (void)state;
    for (int async = 0; async < 2; async++) {
        scripted s = {.script = script, .async = async, .marking = async ? unit : 0};
        pb_timing t = measure(&s, &o);
        same_to_the_bit("prepared", &t, script + 2, 5);
        for (int i = 0; i < 5; i++) CHECK_NEAR(t.host[i], async ? 2 * unit : script[2 + i], 0);
        CHECK_NEAR(t.host_syncs, SCRIPTED_WAITS, 0);
        assert_int_equal(s.count[STEP_BEFORE], 7);
        assert_int_equal(s.count[STEP_FLUSH], 7);
    }
}

/* Queued samples need one host sync per batch, and one for the warm-up; each sample has its own two event records. */
static void queued_samples_follow_each_other_without_a_wait(void **state)
{
    scripted f = {.script = script}, g = f;
    (void)state;
    pb_measure_opts o = {.warmup = 2, .min_samples = 5, .max_samples = 5, .flush = true, .queued = true};
    pb_timing t = measure(&f, &o);
    same_to_the_bit("queued", &t, script + 2, 5);
    CHECK_NEAR(t.kernel_launches, SCRIPTED_LAUNCHES, 0);
    assert_int_equal(f.count[STEP_FLUSH], 7);
    assert_int_equal(f.count[STEP_SYNC], 2);
    o.max_samples = 20;
    t = measure(&g, &o);
    /* a batch of 16 samples is always completed, although 5 are enough */
    same_to_the_bit("queued", &t, script + 2, 16);
}

static void a_slowdown_is_a_share_of_each_call_on_a_cpu(void **state)
{
    scripted s = {.script = script};
    pb_slowdown quarter = {.share = 0.25};
    const pb_measure_opts o = {.warmup = 2,
                               .min_samples = 5,
                               .max_samples = 5,
                               .call_hook = pb_slowdown_hook(&quarter),
                               .flush = true,
                               .before = scripted_before};
    (void)state;
    const pb_timing t = measure(&s, &o);
    assert_int_equal(s.calls, 7);
    for (int i = 0; i < 5; i++) {
        CHECK_NEAR(t.seconds[i], 1.25 * script[2 + i], 0);
        CHECK_NEAR(t.own[i], script[2 + i], 0);
    }
    CHECK_NEAR(t.median, 1.25 * 3, 0);
    CHECK_NEAR(t.slowed, 0.25, 0);
    CHECK_NEAR(s.delayed, 0.25 * 15, 0); /* the warm-up has no delay */
}

/* An injected delay has the requested length although the event records and clock reads around it take time. Without
 * compensation, a call of 1 us would be slowed down by twice the requested share. */
static void a_slowdown_is_as_long_as_asked_whatever_a_mark_takes(void **state)
{
    scripted s = {.script = script, .marking = unit};
    pb_slowdown quarter = {.share = 0.25};
    (void)state;
    const pb_timing t = measure(
        &s,
        &(pb_measure_opts){.warmup = 2, .min_samples = 5, .max_samples = 5, .call_hook = pb_slowdown_hook(&quarter)});
    for (int i = 0; i < 5; i++) CHECK_NEAR(t.seconds[i], 1.25 * t.own[i], 1e-12);
    CHECK_NEAR(t.slowed, 0.25, 1e-12);
}

/* On a device the host enqueues the delay before it knows how long the call takes. The delay is therefore a share of
 * the usual call, estimated in rounds of 16 extra warm-up calls. */
static void a_slowdown_is_a_share_of_the_usual_call_on_a_device(void **state)
{
    static double seconds[128];
    scripted s = {.script = seconds, .async = true, .gpu = true, .enqueue = SCRIPTED_UNIT};
    pb_slowdown half = {.share = 0.5};
    const pb_measure_opts o = {.warmup = 1,
                               .min_samples = 20,
                               .max_samples = 20,
                               .queued = true,
                               .flush = true,
                               .call_hook = pb_slowdown_hook(&half)};
    (void)state;
    for (int i = 0; i < 128; i++) /* calibration calls: median 4 */
        seconds[i] = i < 1 ? 90 : i < 1 + 16 * PB_SLOWDOWN_ROUNDS ? (i % 2 ? 3 : 5) : 10;
    const pb_timing t = measure(&s, &o);
    assert_int_equal(t.n, 20);
    assert_int_equal(s.calls, 1 + 16 * PB_SLOWDOWN_ROUNDS + 20);
    for (int i = 0; i < 20; i++) {
        CHECK_NEAR(t.seconds[i], 12, 0);
        CHECK_NEAR(t.own[i], 10, 0);
    }
    CHECK_NEAR(t.slowed, 0.2, 1e-15);
    CHECK_NEAR(t.kernel_launches, SCRIPTED_LAUNCHES, 0);
}

/* An injected delay on a device has the requested length, although its kernel has an overhead and a shortest possible
 * length. */
static void a_slowdown_on_a_device_is_as_long_as_asked_whatever_a_kernel_takes(void **state)
{
    static double seconds[128];
    scripted s = {
        .script = seconds, .async = true, .gpu = true, .enqueue = SCRIPTED_UNIT, .waiting = 0.5, .shortest = 1};
    scripted g = s;
    pb_slowdown delay = {.share = 0.5};
    pb_measure_opts o = {.warmup = 1,
                         .min_samples = 20,
                         .max_samples = 20,
                         .queued = true,
                         .flush = true,
                         .call_hook = pb_slowdown_hook(&delay)};
    (void)state;
    for (int i = 0; i < 128; i++) seconds[i] = 4;
    const pb_timing t = measure(&s, &o);
    for (int i = 0; i < 20; i++) CHECK_NEAR(t.seconds[i], 6, 0);
    CHECK_NEAR(t.slowed, 0.5, 1e-15);
    delay.share = 0.125; /* asks for half of the shortest possible delay (1 s), and gets the shortest */
    CHECK_NEAR(measure(&g, &o).slowed, 0.25, 1e-15);
}

static void a_graph_is_recorded_once_and_replayed(void **state)
{
    scripted s = {.script = script, .recording = 0.5, .enqueue = unit};
    (void)state;
    pb_timing t = measure(&s, &(pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 5, .graph = true});
    assert_int_equal(s.calls, 1 + 1 + 5); /* eager warm-up, first replay, samples */
    assert_int_equal(s.count[STEP_RECORD], 1);
    assert_int_equal(s.count[STEP_FREE], 1);
    CHECK_NEAR(t.median, 1.5 + unit, 0);
    CHECK_NEAR(t.kernel_launches, 1, 0);
    CHECK_NEAR(t.host_syncs, 0, 0);
    CHECK_NEAR(t.record_seconds, 0.5, 0);
    assert_int_equal(t.nodes, SCRIPTED_NODES);
}

/* ---- errors and interrupts ----------------------------------------------------------------------- */

/* Checks that the measurement fails with status `want` and message `text`, and that it leaves *out unchanged. */
static void fails(scripted *s, const pb_measure_opts *o, pb_status want, const char *text)
{
    static pb_timing t, before;
    memset(&t, 42, sizeof t);
    memcpy(&before, &t, sizeof t);
    CHECK_FAILS(scripted_measure(s, o, &t), want, text);
    assert_null(strchr(pb_error(), '\n'));
    assert_memory_equal(&t, &before, sizeof t);
}

static void what_cannot_be_measured_says_so(void **state)
{
    scripted s = {.script = script, .cannot_record = true};
    pb_measure_opts o = {.warmup = 1, .min_samples = 5, .max_samples = 5, .graph = true};
    (void)state;
    fails(&s, &o, PB_EUNSUPPORTED, "a host wait");
    o.warmup = 0;
    fails(&s, &o, PB_EINVAL, "warm-up");
    o.warmup = 1, o.max_samples = PB_MAX_SAMPLES + 1;
    fails(&s, &o, PB_EINVAL, "samples");
    o.max_samples = 4;
    fails(&s, &o, PB_EINVAL, "samples");
}

/* Makes every kind of call (scripted_step) fail at its first, second, ... occurrence. The measurement must return the
 * error and free its graph. */
static void an_error_ends_the_measurement(void **state)
{
    (void)state;
    for (int graph = 0; graph < 2; graph++)
        for (int queued = 0; queued < 2; queued++) {
            const pb_measure_opts o = {.warmup = 2,
                                       .min_samples = 18,
                                       .max_samples = 18,
                                       .graph = graph,
                                       .flush = true,
                                       .queued = queued,
                                       .before = scripted_before};
            double ones[64];
            for (int i = 0; i < 64; i++) ones[i] = 1;
            scripted whole = {.script = ones, .recording = 1};
            measure(&whole, &o);
            for (int step = 0; step < STEP_FREE; step++)
                for (int at = 1; at <= whole.count[step]; at++) {
                    char text[64];
                    scripted s = {.script = ones, .recording = 1, .fail_step = (scripted_step)step, .fail_at = at};
                    snprintf(text, sizeof text, "scripted: step %d, call %d", step, at);
                    fails(&s, &o, PB_EDEVICE, text);
                    assert_int_equal(s.count[step], at); /* the step was not called again */
                    assert_int_equal(s.count[STEP_FREE], graph && (s.count[STEP_RECORD] && step != STEP_RECORD));
                }
        }
}

/* A time that is not finite and positive is an error that names the sample and the clock; it never becomes a row. */
static void a_broken_clock_is_an_error(void **state)
{
    static const double bad[] = {(double)NAN, -1, 0, (double)INFINITY};
    static const char *const said[] = {"took nan s", "took -1 s", "took 0 s", "took inf s"};
    pb_measure_opts o = {.warmup = 1, .min_samples = 9, .max_samples = 9};
    (void)state;
    for (int i = 0; i < 4; i++) {
        double broken[16];
        for (int k = 0; k < 16; k++) broken[k] = k == 1 + 4 ? bad[i] : 1;
        scripted s = {.script = broken};
        fails(&s, &o, PB_EDEVICE, said[i]);
        assert_non_null(strstr(pb_error(), "sample 4"));
        assert_non_null(strstr(pb_error(), "clock of the script"));
    }
    for (int back = 0; back < 2; back++) {
        scripted s = {.script = script, .async = true, .enqueue = -back};
        fails(&s, &o, PB_EDEVICE, back ? "sample 0 took -1 s by the clock of the host" : "sample 0 took 0 s");
    }
    o.graph = true;
    scripted s = {.script = script, .recording = -2};
    fails(&s, &o, PB_EDEVICE, "recording 0 took -2 s by the clock of the host");
    assert_int_equal(s.count[STEP_FREE], 1);
}

static pb_timing stopped_at(int call, pb_measure_opts o, scripted *s)
{
    *s = (scripted){.script = script, .recording = 1, .stop_at = call, .stop = interrupt};
    interrupted = false;
    const pb_timing t = measure(s, &o);
    interrupted = false;
    return t;
}

/* When an interrupt arrives during a call, that call is the last one; the samples before it are kept. */
static void an_interrupt_keeps_what_is_measured(void **state)
{
    pb_measure_opts o = {.warmup = 2, .min_samples = 20, .max_samples = 20};
    scripted s;
    (void)state;
    pb_timing t = stopped_at(2 + 3, o, &s);
    same_to_the_bit("interrupted", &t, script + 2, 3);
    CHECK_NEAR(t.kernel_launches, SCRIPTED_LAUNCHES, 0);
    assert_int_equal(s.calls, 5);
    for (int call = 1; call <= 2; call++) { /* during the warm-up */
        t = stopped_at(call, o, &s);
        assert_int_equal(t.n, 0);
        assert_int_equal(s.calls, call);
        assert_true(isnan(t.median) && isnan(t.host_median));
    }
    o.queued = true;
    t = stopped_at(2 + 3, o, &s);
    same_to_the_bit("interrupted", &t, script + 2, 16); /* a batch that is enqueued is completed */
    o.graph = true;
    t = stopped_at(1, o, &s);
    assert_int_equal(t.n, 0);
    assert_int_equal(s.count[STEP_RECORD], 0);
    t = stopped_at(3, o, &s); /* during the first replay */
    assert_int_equal(t.n, 0);
    assert_int_equal(s.count[STEP_FREE], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median_of_odd_and_even),
        cmocka_unit_test(a_sample_holds_one_mark_at_most),
        cmocka_unit_test(an_idle_device_waits_for_the_host),
        cmocka_unit_test(samples_come_in_order_after_the_warm_up),
        cmocka_unit_test(sampling_stops_at_the_time_asked_for),
        cmocka_unit_test(turns_spread_the_samples_over_their_time),
        cmocka_unit_test(a_turn_is_one_call_where_calls_are_longer),
        cmocka_unit_test(a_turn_is_two_calls_where_the_caches_matter),
        cmocka_unit_test(preparation_is_not_timed),
        cmocka_unit_test(queued_samples_follow_each_other_without_a_wait),
        cmocka_unit_test(a_slowdown_is_a_share_of_each_call_on_a_cpu),
        cmocka_unit_test(a_slowdown_is_as_long_as_asked_whatever_a_mark_takes),
        cmocka_unit_test(a_slowdown_is_a_share_of_the_usual_call_on_a_device),
        cmocka_unit_test(a_slowdown_on_a_device_is_as_long_as_asked_whatever_a_kernel_takes),
        cmocka_unit_test(a_graph_is_recorded_once_and_replayed),
        cmocka_unit_test(what_cannot_be_measured_says_so),
        cmocka_unit_test(an_error_ends_the_measurement),
        cmocka_unit_test(a_broken_clock_is_an_error),
        cmocka_unit_test(an_interrupt_keeps_what_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
