/* harness_test.c - keys of cases, exit codes, and the writer of result rows. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

#include "os/interrupt.h"
#include "bench/measure/emit.h"
#include "bench/rows/write_csv.h"
#include "tests/bench/measure/scripted.h"
#include "tests/test.h"

/* ---- keys of cases: suite/name?axis=value&... ------------------------------------------------- */

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
    CHECK_FAILS(pb_case_set(&c, "x", "1,2"), PB_EINVAL, "no blank");
    value[sizeof value - 1] = 0;
    pb_status s = PB_OK; /* the whole key has a length limit, not only each axis */
    for (int i = 0; i < PB_CASE_AXES && s == PB_OK; i++) {
        snprintf(name, sizeof name, "axis%d", i);
        s = pb_case_set(&c, name, value);
    }
    assert_int_equal(s, PB_EINVAL);
    assert_non_null(strstr(pb_error(), "the key would be longer than"));
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

/* ---- the writer of result rows ------------------------------------------------------------------ */

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

static pb_emitter *emitter(void)
{
    static pb_emitter s;
    char path[128];
    snprintf(path, sizeof path, "%s/results.csv", dir), unlink(path);
    snprintf(path, sizeof path, "%s/samples.csv", dir), unlink(path);
    CHECK_OK(pb_results_create(dir));
    CHECK_FAILS(pb_results_create(dir), PB_EPATH, "results.csv");
    CHECK_OK(pb_emitter_open(dir, &s));
    s.run_id = "r1", s.machine_id = "m1", s.commit = "c1", s.host = "lab/0a1b2c3d", s.process = 2;
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
    pb_emitter *s = emitter();
    (void)state;
    CHECK_OK(pb_emit(s, a_case(), "kernel_time", 0.1234567891234, 5, PB_ROW_OK, "said \"no\", twice\nover"));
    CHECK_OK(pb_emit(s, a_case(), "error", (double)NAN, 0, PB_ROW_OK, ""));
    CHECK_OK(pb_emit(s, a_case(), "copy_rate", (double)INFINITY, 0, PB_ROW_WRONG, "why"));
    CHECK_FAILS(pb_emit(s, a_case(), "speed", 1, 0, PB_ROW_OK, ""), PB_EINVAL, "speed");
    CHECK_OK(pb_emit(s, a_case(), "copy_rate", 2e10, 3, PB_ROW_OK, NULL));
    double v;
    assert_true(pb_emitted_by_suite(s, "ceiling", "copy_rate", &v));
    CHECK_NEAR(v, 2e10, 0);
    assert_false(pb_emitted_by_suite(s, "ceiling", "matmul_rate", &v));
    assert_false(pb_emitted_by_suite(s, "ceil", "copy_rate", &v));
    pb_emitter_close(s);
    assert_string_equal(
        slurp("results.csv"),
        "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note,commit,host\n"
        "2,r1,m1,2,ceiling/copy?n=1,kernel_time,s,lower,0.123456789,5,ok,\"said \"\"no\"\", twice "
        "over\",c1,lab/0a1b2c3d\n"
        "2,r1,m1,2,ceiling/copy?n=1,error,1,none,,0,failed,the value is not finite,c1,lab/0a1b2c3d\n"
        "2,r1,m1,2,ceiling/copy?n=1,copy_rate,B/s,higher,,0,wrong,why,c1,lab/0a1b2c3d\n"
        "2,r1,m1,2,ceiling/copy?n=1,copy_rate,B/s,higher,2e+10,3,ok,,c1,lab/0a1b2c3d\n");
}

static void timings_leave_their_samples(void **state)
{
    pb_emitter *s = emitter();
    pb_timing t = {.n = 2, .seconds = {0.5, 0.25}, .median = 0.375};
    (void)state;
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, NULL));
    CHECK_OK(pb_emit_rate(s, a_case(), "copy_rate", 3, &t, NULL));
    pb_emitter_close(s);
    assert_string_equal(slurp("samples.csv"), "run_id,process,key,metric,index,value\n"
                                              "r1,2,ceiling/copy?n=1,kernel_time,0,0.5\n"
                                              "r1,2,ceiling/copy?n=1,kernel_time,1,0.25\n"
                                              "r1,2,ceiling/copy?n=1,copy_rate,0,6\n"
                                              "r1,2,ceiling/copy?n=1,copy_rate,1,12\n");
    assert_non_null(strstr(slurp("results.csv"), "kernel_time,s,lower,0.375,2,ok"));
    assert_non_null(strstr(slurp("results.csv"), "copy_rate,B/s,higher,8,2,ok"));
}

static void a_warm_up_too_short_is_in_the_note(void **state)
{
    pb_emitter *s = emitter();
    pb_timing t = {.n = 15, .median = 2};
    (void)state;
    for (int i = 0; i < 15; i++) t.seconds[i] = 3 - i / 5;
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, NULL));
    CHECK_OK(pb_emit_rate(s, a_case(), "copy_rate", 3, &t, "of 2 MiB"));
    t.n = 14;
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, "of 14"));
    pb_emitter_close(s);
    assert_non_null(
        strstr(slurp("results.csv"),
               "s,lower,2,15,ok,warm-up suspect: first third 2e+02 % slower than the last,c1,lab/0a1b2c3d\n"));
    assert_non_null(
        strstr(slurp("results.csv"),
               "1.5,15,ok,of 2 MiB; warm-up suspect: first third 2e+02 % slower than the last,c1,lab/0a1b2c3d\n"));
    assert_non_null(strstr(slurp("results.csv"), "s,lower,2,14,ok,of 14,c1,lab/0a1b2c3d\n"));
}

static void a_full_disk_is_an_error(void **state)
{
    pb_emitter *s = emitter();
    (void)state;
    int kept = s->results;
    s->results = open("/dev/full", O_WRONLY);
    assert_true(s->results >= 0);
    CHECK_FAILS(pb_emit(s, a_case(), "copy_rate", 1, 0, PB_ROW_OK, ""), PB_EIO, "No space left");
    assert_true(s->write_failed);
    double v;
    assert_false(pb_emitted_by_suite(s, "ceiling", "copy_rate", &v));
    close(s->results);
    s->results = kept;
    pb_emitter_close(s);
    CHECK_FAILS(pb_emitter_open("/no/such", s), PB_EPATH, "/no/such/results.csv");
}

static void interrupt(void) { raise(SIGINT); }

/* Must run last: the interrupt flag stays set. */
static void an_interrupt_ends_the_current_sample_and_keeps_the_rest(void **state)
{
    static const double script[16] = {50, 40, 1, 5, 2, 4, 3, 9, 9, 9};
    const pb_measure_opts o = {.warmup = 2, .min_samples = 9, .max_samples = 9};
    scripted f = {.script = script, .stop_at = 5, .stop = interrupt}, g = {.script = script};
    pb_timing t;
    (void)state;
    pb_interrupt_watch();
    assert_false(pb_interrupted());
    CHECK_OK(scripted_measure(&f, &o, &t));
    assert_true(pb_interrupted());
    assert_int_equal(t.n, 3);
    CHECK_NEAR(t.median, 2, 0);
    pb_emitter *s = emitter();
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, "of no matter"));
    CHECK_OK(scripted_measure(&g, &o, &t));
    assert_int_equal(t.n, 0);
    CHECK_OK(pb_emit_timing(s, a_case(), "kernel_time", &t, NULL));
    pb_emitter_close(s);
    assert_non_null(
        strstr(slurp("results.csv"), "s,lower,2,3,truncated,interrupted after 3 samples,c1,lab/0a1b2c3d\n"));
    assert_non_null(strstr(slurp("results.csv"), "s,lower,,0,truncated,interrupted after 0 samples,c1,lab/0a1b2c3d\n"));
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
        cmocka_unit_test(rows_are_quoted_and_never_hold_nan),
        cmocka_unit_test(timings_leave_their_samples),
        cmocka_unit_test(a_warm_up_too_short_is_in_the_note),
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(an_interrupt_ends_the_current_sample_and_keeps_the_rest),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
