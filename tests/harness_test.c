/* harness_test.c - keys, medians, the measurer on a device with a scripted clock, and the writer of rows. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

#include "cli/interrupt.h"
#include "bench/results.h"
#include "tests/test.h"

/* ---- keys ------------------------------------------------------------------------------------- */

static void keys_are_sorted_and_come_back(void **state)
{
    pb_case c = {.suite = "backward", .name = "step"}, d;
    (void)state;
    CHECK_OK(pb_case_set(&c, "tuning", "lora"));
    CHECK_OK(pb_case_set(&c, "batch", "1"));
    CHECK_OK(pb_case_set(&c, "seq", "128"));
    CHECK_OK(pb_case_set(&c, "batch", "16"));
    pb_case_finish(&c);
    assert_string_equal(c.key, "backward/step?batch=16&seq=128&tuning=lora");
    CHECK_OK(pb_case_parse(c.key, &d));
    assert_memory_equal(&c, &d, sizeof c);
    long batch = 0;
    CHECK_OK(pb_case_int(&d, "batch", &batch));
    assert_int_equal(batch, 16);
    CHECK_FAILS(pb_case_int(&d, "tuning", &batch), PB_EINVAL, "tuning=lora");
    CHECK_FAILS(pb_case_int(&d, "steps", &batch), PB_EINVAL, "no axis 'steps'");
    assert_null(pb_case_get(&d, "steps"));
    CHECK_OK(pb_case_parse("ceiling/copy", &d));
    assert_int_equal(d.n, 0);
    assert_string_equal(d.name, "copy");
}

static void what_is_no_key_is_refused(void **state)
{
    static const char *const bad[] = {"",         "copy",      "/copy",  "a/",          "a/b?",
                                      "a/b?x",    "a/b?x=",    "a/b?=1", "a/b?y=1&x=2", "a/b?x=1&x=1",
                                      "a/b?x=1&", "a/b?x=1=2", "a/b/c",  "a/b?x=1 2",   NULL};
    pb_case c;
    (void)state;
    for (int i = 0; bad[i]; i++)
        if (pb_case_parse(bad[i], &c) != PB_EINVAL) fail_msg("'%s' was taken for a key", bad[i]);
    c = (pb_case){.suite = "s", .name = "c"};
    char name[16], value[PB_AXIS_TEXT];
    memset(value, 'v', sizeof value);
    CHECK_FAILS(pb_case_set(&c, "x", "1,2"), PB_EINVAL, "without space");
    value[sizeof value - 1] = 0;
    pb_status s = PB_OK; /* the key, not only an axis, has a limit */
    for (int i = 0; i < PB_CASE_AXES && s == PB_OK; i++) {
        snprintf(name, sizeof name, "axis%d", i);
        s = pb_case_set(&c, name, value);
    }
    assert_int_equal(s, PB_EINVAL);
    assert_non_null(strstr(pb_error(), "the key would pass"));
    pb_case_finish(&c);
    CHECK_OK(pb_case_parse(c.key, &c));
}

static void the_graver_exit_code_stands(void **state)
{
    static const pb_exit order[] = {PB_EXIT_OK,           PB_EXIT_INCONCLUSIVE, PB_EXIT_REGRESSION,
                                    PB_EXIT_INCOMPARABLE, PB_EXIT_USAGE,        PB_EXIT_HARNESS};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) assert_int_equal(pb_worse_exit(order[i], order[j]), order[i > j ? i : j]);
}

static void median_of_odd_and_even(void **state)
{
    double one[] = {3}, odd[] = {9, 1, 5}, even[] = {8, 2, 4, 1};
    (void)state;
    CHECK_NEAR(pb_median(one, 1), 3, 0);
    CHECK_NEAR(pb_median(odd, 3), 5, 0);
    CHECK_NEAR(pb_median(even, 4), 3, 0);
}

/* ---- a device whose clock is a script ---------------------------------------------------------- */

typedef struct fake {
    const double *script; /* seconds that call i takes; the warm-up calls come first */
    double clock, at[64], delayed;
    int calls, prepared, flushes, syncs, stop_at;
} fake;

static pb_status fake_sync(pb_ctx *ctx)
{
    ((fake *)ctx->priv)->syncs++;
    return PB_OK;
}
static pb_status fake_mark(pb_ctx *ctx, int slot)
{
    fake *f = ctx->priv;
    f->at[slot] = f->clock;
    return PB_OK;
}
static pb_status fake_between(pb_ctx *ctx, int from, int to, double *seconds)
{
    fake *f = ctx->priv;
    *seconds = f->at[to] - f->at[from];
    return PB_OK;
}
static pb_status fake_flush(pb_ctx *ctx)
{
    fake *f = ctx->priv;
    f->clock += 100; /* untimed, or the test sees it */
    f->flushes++;
    return PB_OK;
}
static pb_status fake_delay(pb_ctx *ctx, double seconds)
{
    fake *f = ctx->priv;
    f->clock += seconds;
    f->delayed += seconds;
    return PB_OK;
}
static pb_status fake_record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    PB_TRY(fn(ctx, self));
    *out = (pb_graph *)ctx->priv;
    return PB_OK;
}
static pb_status fake_work(pb_ctx *ctx, void *self)
{
    fake *f = self;
    if (ctx->recording) return f->stop_at == -1 ? pb_fail(PB_EUNSUPPORTED, "a host wait") : PB_OK;
    ctx->counts.launches += 3;
    ctx->counts.waits += 1;
    f->clock += f->script[f->calls++];
    if (f->calls == f->stop_at) raise(SIGINT);
    return PB_OK;
}
static pb_status fake_replay(pb_ctx *ctx, pb_graph *g)
{
    fake *f = (fake *)g;
    (void)ctx;
    f->clock += f->script[f->calls++] / 2;
    return PB_OK;
}
static size_t fake_nodes(const pb_graph *g)
{
    (void)g;
    return 7;
}
static void fake_free(pb_graph *g) { (void)g; }
static pb_status fake_before(pb_ctx *ctx, void *self)
{
    fake *f = self;
    (void)ctx;
    f->clock += 1000;
    f->prepared++;
    return PB_OK;
}

static const pb_backend fake_backend = {.name = "fake",
                                        .sync = fake_sync,
                                        .mark = fake_mark,
                                        .between = fake_between,
                                        .flush_cache = fake_flush,
                                        .delay = fake_delay,
                                        .record = fake_record,
                                        .replay = fake_replay,
                                        .graph_nodes = fake_nodes,
                                        .graph_free = fake_free};

static const double script[64] = {50, 40, 1, 5, 2, 4, 3, 9, 9, 9};

static pb_timing measure(fake *f, pb_measure_opts o)
{
    pb_timing t;
    pb_ctx ctx = {.be = &fake_backend, .priv = f};
    f->script = script;
    o.before_self = f;
    CHECK_OK(pb_measure(&ctx, fake_work, f, &o, &t));
    return t;
}

static void samples_come_in_order_after_the_warm_up(void **state)
{
    fake f = {0};
    (void)state;
    pb_timing t = measure(&f, (pb_measure_opts){.warmup = 2, .min_samples = 5, .max_samples = 5, .min_time = 1e9});
    assert_int_equal(t.n, 5);
    for (int i = 0; i < 5; i++) CHECK_NEAR(t.seconds[i], script[2 + i], 0);
    CHECK_NEAR(t.median, 3, 0);
    CHECK_NEAR(t.launches, 3, 0);
    CHECK_NEAR(t.waits, 1, 0); /* the work's own, not the measurer's */
    assert_int_equal(t.nodes, 0);
}

static void sampling_stops_at_the_time_asked_for(void **state)
{
    fake f = {0}, g = {0};
    (void)state;
    pb_timing t = measure(&f, (pb_measure_opts){.warmup = 2, .min_samples = 1, .max_samples = 50, .min_time = 8});
    assert_int_equal(t.n, 3); /* 1 + 5 + 2 */
    t = measure(&g, (pb_measure_opts){.warmup = 2, .min_samples = 4, .max_samples = 50, .min_time = 0});
    assert_int_equal(t.n, 4);
    CHECK_NEAR(t.median, 3, 0); /* of 1 5 2 4 */
}

static void preparation_is_not_timed(void **state)
{
    fake f = {0};
    (void)state;
    pb_timing t = measure(
        &f, (pb_measure_opts){.warmup = 2, .min_samples = 5, .max_samples = 5, .flush = true, .before = fake_before});
    CHECK_NEAR(t.median, 3, 0);
    assert_int_equal(f.prepared, 7);
    assert_int_equal(f.flushes, 7);
}

/* One wait a batch, one for the warm-up; every sample has its own two marks. */
static void queued_samples_follow_each_other_without_a_wait(void **state)
{
    fake f = {0}, g = {0};
    (void)state;
    pb_measure_opts o = {.warmup = 2, .min_samples = 5, .max_samples = 5, .flush = true, .queued = true};
    pb_timing t = measure(&f, o);
    assert_int_equal(t.n, 5);
    for (int i = 0; i < 5; i++) CHECK_NEAR(t.seconds[i], script[2 + i], 0);
    CHECK_NEAR(t.launches, 3, 0);
    assert_int_equal(f.flushes, 7);
    assert_int_equal(f.syncs, 2);
    o.max_samples = 20;
    t = measure(&g, o);
    assert_int_equal(t.n, 16); /* a whole batch, though 5 would do */
    CHECK_NEAR(t.seconds[15], script[17], 0);
    assert_true(t.host_median >= 0);
}

static void a_slowdown_is_a_share_of_each_call_on_a_cpu(void **state)
{
    fake f = {0};
    (void)state;
    pb_timing t = measure(
        &f,
        (pb_measure_opts){
            .warmup = 2, .min_samples = 5, .max_samples = 5, .slowdown = 0.02, .flush = true, .before = fake_before});
    assert_int_equal(f.calls, 7);
    for (int i = 0; i < 5; i++) {
        CHECK_NEAR(t.seconds[i], 1.02 * script[2 + i], 1e-9);
        CHECK_NEAR(t.own[i], script[2 + i], 1e-9);
    }
    CHECK_NEAR(t.median, 1.02 * 3, 1e-9);
    CHECK_NEAR(t.slowed, 0.02, 1e-9);
    CHECK_NEAR(f.delayed, 0.02 * 15, 1e-9); /* not of the warm-up */
}

/* A device is still at it when the wait is enqueued: a share of what 16 calls of the warm-up took. */
static void a_slowdown_is_a_share_of_the_usual_call_on_a_device(void **state)
{
    static double seconds[64];
    fake f = {.script = seconds};
    pb_ctx ctx = {.be = &fake_backend, .id = PB_CUDA, .priv = &f};
    pb_timing t;
    (void)state;
    for (int i = 0; i < 64; i++) seconds[i] = i < 1 ? 90 : i < 17 ? (i % 2 ? 3 : 5) : 10; /* the usual one: 4 */
    CHECK_OK(pb_measure(
        &ctx, fake_work, &f,
        &(pb_measure_opts){.warmup = 1, .min_samples = 20, .max_samples = 20, .queued = true, .slowdown = 0.5}, &t));
    assert_int_equal(t.n, 20);
    assert_int_equal(f.calls, 37);
    for (int i = 0; i < 20; i++) {
        CHECK_NEAR(t.seconds[i], 12, 1e-9);
        CHECK_NEAR(t.own[i], 10, 1e-9);
    }
    CHECK_NEAR(t.slowed, 0.2, 1e-9);
    CHECK_NEAR(t.launches, 3, 0);
}

static void a_graph_is_recorded_once_and_replayed(void **state)
{
    fake f = {0};
    (void)state;
    pb_timing t = measure(&f, (pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 5, .graph = true});
    assert_int_equal(f.calls, 1 + 1 + 5); /* eager, first replay, samples */
    CHECK_NEAR(t.median, 1.5, 0);
    CHECK_NEAR(t.launches, 1, 0);
    CHECK_NEAR(t.waits, 0, 0);
    assert_int_equal(t.nodes, 7);
    assert_true(t.record_seconds >= 0);
}

static void what_cannot_be_measured_says_so(void **state)
{
    fake f = {.script = script, .stop_at = -1};
    pb_ctx ctx = {.be = &fake_backend, .priv = &f};
    pb_timing t = {.n = 42};
    (void)state;
    pb_measure_opts o = {.warmup = 1, .min_samples = 5, .max_samples = 5, .graph = true};
    CHECK_FAILS(pb_measure(&ctx, fake_work, &f, &o, &t), PB_EUNSUPPORTED, "a host wait");
    o.warmup = 0;
    CHECK_FAILS(pb_measure(&ctx, fake_work, &f, &o, &t), PB_EINVAL, "warm-up");
    o.warmup = 1, o.max_samples = PB_MAX_SAMPLES + 1;
    CHECK_FAILS(pb_measure(&ctx, fake_work, &f, &o, &t), PB_EINVAL, "samples");
    assert_int_equal(t.n, 42);
}

/* ---- the writer --------------------------------------------------------------------------------- */

static char dir[] = "/tmp/pb_harness_XXXXXX";

static char *slurp(const char *file)
{
    static char text[65536];
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static pb_sink *sink(void)
{
    static pb_sink s;
    char path[128];
    snprintf(path, sizeof path, "%s/results.csv", dir), unlink(path);
    snprintf(path, sizeof path, "%s/samples.csv", dir), unlink(path);
    CHECK_OK(pb_results_create(dir));
    CHECK_FAILS(pb_results_create(dir), PB_EIO, "results.csv");
    CHECK_OK(pb_sink_open(dir, &s));
    s.run_id = "r1", s.machine_id = "m1", s.launch = 2;
    return &s;
}

static const pb_case *a_case(void)
{
    static pb_case c;
    CHECK_OK(pb_case_parse("ceiling/copy?n=1", &c));
    return &c;
}

static void rows_are_quoted_and_never_hold_nan(void **state)
{
    pb_sink *s = sink();
    (void)state;
    CHECK_OK(pb_emit(s, a_case(), "kernel_time", 0.1234567891234, 5, "ok", "said \"no\", twice\nover"));
    CHECK_OK(pb_emit(s, a_case(), "error", (double)NAN, 0, "ok", ""));
    CHECK_OK(pb_emit(s, a_case(), "copy_rate", (double)INFINITY, 0, "wrong", "why"));
    CHECK_FAILS(pb_emit(s, a_case(), "speed", 1, 0, "ok", ""), PB_EINVAL, "speed");
    CHECK_OK(pb_emit(s, a_case(), "copy_rate", 2e10, 3, "ok", NULL));
    CHECK_NEAR(pb_sink_ceiling(s, "copy_rate"), 2e10, 0);
    CHECK_NEAR(pb_sink_ceiling(s, "matmul_rate"), 0, 0);
    pb_sink_close(s);
    assert_string_equal(
        slurp("results.csv"),
        "bench_version,run_id,machine_id,launch,key,metric,unit,better,value,samples,status,note\n"
        "1,r1,m1,2,ceiling/copy?n=1,kernel_time,s,lower,0.123456789,5,ok,\"said \"\"no\"\", twice over\"\n"
        "1,r1,m1,2,ceiling/copy?n=1,error,1,none,,0,failed,the value is not finite\n"
        "1,r1,m1,2,ceiling/copy?n=1,copy_rate,B/s,higher,,0,wrong,why\n"
        "1,r1,m1,2,ceiling/copy?n=1,copy_rate,B/s,higher,2e+10,3,ok,\n");
}

static void timings_leave_their_samples(void **state)
{
    pb_sink *s = sink();
    pb_timing t = {.n = 2, .seconds = {0.5, 0.25}, .median = 0.375};
    (void)state;
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, NULL));
    CHECK_OK(pb_emit_rate(s, a_case(), "copy_rate", 3, &t, NULL));
    pb_sink_close(s);
    assert_string_equal(slurp("samples.csv"), "run_id,launch,key,metric,index,value\n"
                                              "r1,2,ceiling/copy?n=1,kernel_time,0,0.5\n"
                                              "r1,2,ceiling/copy?n=1,kernel_time,1,0.25\n"
                                              "r1,2,ceiling/copy?n=1,copy_rate,0,6\n"
                                              "r1,2,ceiling/copy?n=1,copy_rate,1,12\n");
    assert_non_null(strstr(slurp("results.csv"), "kernel_time,s,lower,0.375,2,ok"));
    assert_non_null(strstr(slurp("results.csv"), "copy_rate,B/s,higher,8,2,ok"));
}

static void a_full_disk_is_an_error(void **state)
{
    pb_sink *s = sink();
    (void)state;
    int kept = s->results;
    s->results = open("/dev/full", O_WRONLY);
    assert_true(s->results >= 0);
    CHECK_FAILS(pb_emit(s, a_case(), "copy_rate", 1, 0, "ok", ""), PB_EIO, "No space left");
    assert_true(s->write_failed);
    CHECK_NEAR(pb_sink_ceiling(s, "copy_rate"), 0, 0);
    close(s->results);
    s->results = kept;
    pb_sink_close(s);
}

/* Last: the flag stays up. */
static void an_interrupt_ends_the_current_sample_and_keeps_the_rest(void **state)
{
    fake f = {.stop_at = 5}, g = {0};
    (void)state;
    pb_interrupt_watch();
    assert_false(pb_interrupted());
    pb_timing t = measure(&f, (pb_measure_opts){.warmup = 2, .min_samples = 9, .max_samples = 9});
    assert_true(pb_interrupted());
    assert_int_equal(t.n, 3);
    CHECK_NEAR(t.median, 2, 0);
    pb_sink *s = sink();
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, "of no matter"));
    t = measure(&g, (pb_measure_opts){.warmup = 2, .min_samples = 9, .max_samples = 9});
    assert_int_equal(t.n, 0);
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, NULL));
    pb_sink_close(s);
    assert_non_null(strstr(slurp("results.csv"), "s,lower,2,3,truncated,interrupted after 3 samples\n"));
    assert_non_null(strstr(slurp("results.csv"), "s,lower,,0,truncated,interrupted after 0 samples\n"));
    assert_true(s->truncated);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/results.csv", dir), unlink(path);
    snprintf(path, sizeof path, "%s/samples.csv", dir), unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_sorted_and_come_back),
        cmocka_unit_test(what_is_no_key_is_refused),
        cmocka_unit_test(the_graver_exit_code_stands),
        cmocka_unit_test(median_of_odd_and_even),
        cmocka_unit_test(samples_come_in_order_after_the_warm_up),
        cmocka_unit_test(sampling_stops_at_the_time_asked_for),
        cmocka_unit_test(preparation_is_not_timed),
        cmocka_unit_test(queued_samples_follow_each_other_without_a_wait),
        cmocka_unit_test(a_slowdown_is_a_share_of_each_call_on_a_cpu),
        cmocka_unit_test(a_slowdown_is_a_share_of_the_usual_call_on_a_device),
        cmocka_unit_test(a_graph_is_recorded_once_and_replayed),
        cmocka_unit_test(what_cannot_be_measured_says_so),
        cmocka_unit_test(rows_are_quoted_and_never_hold_nan),
        cmocka_unit_test(timings_leave_their_samples),
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(an_interrupt_ends_the_current_sample_and_keeps_the_rest),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
