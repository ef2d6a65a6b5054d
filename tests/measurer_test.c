/* measurer_test.c - the measurer itself, on a device and a host whose clocks are a script: what it reports is what was
 * scripted, to the bit, whatever the distribution; what is no sample is not timed; what goes wrong is one error. */
#include "bench/stats/distributions.h"
#include "bench/stats/stats.h"
#include "tests/scripted.h"
#include "tests/test.h"

static bool interrupted; /* in place of the flag that signals raise */

bool pb_interrupted(void) { return interrupted; }
static void interrupt(void) { interrupted = true; }

static pb_timing measure(scripted *s, const pb_measure_opts *o)
{
    pb_timing t;
    CHECK_OK(scripted_measure(s, o, &t));
    return t;
}

static void median_of_odd_and_even(void **state)
{
    double one[] = {3}, odd[] = {9, 1, 5}, even[] = {8, 2, 4, 1};
    (void)state;
    CHECK_NEAR(pb_median(one, 1), 3, 0);
    CHECK_NEAR(pb_median(odd, 3), 5, 0);
    CHECK_NEAR(pb_median(even, 4), 3, 0);
}

/* ---- known distributions ------------------------------------------------------------------------ */

enum { N = 1000, WARM = 3, LENGTH = WARM + N };
static const double unit = 1.0 / (1 << 20); /* of all times, so that no sum is rounded */
static const double level = 1.0 / 64;

typedef struct noise {
    uint64_t seed, i;
    double before; /* the value before, of a process with memory */
} noise;

static double uniform(noise *s) { return pb_uniform(s->seed, s->i++); }
static double gauss(noise *s) { return pb_normal_quantile(1 - (uniform(s) + 0x1p-60)); }

/* In units of the level; k counts from the first call of the warm-up. */
static double constant(noise *s, int k) { return (void)s, (void)k, 1; }
static double normal(noise *s, int k) { return (void)k, 1 + 0.1 * gauss(s); }
static double exponential(noise *s, int k) { return (void)k, -log(1 - uniform(s)); }
static double bimodal(noise *s, int k) { return (void)k, (uniform(s) < 0.5 ? 1 : 2) + 0.01 * gauss(s); }
static double correlated(noise *s, int k)
{
    (void)k;
    s->before = 0.9 * s->before + sqrt(1 - 0.81) * gauss(s);
    return 1 + 0.05 * s->before;
}
static double warming(noise *s, int k) { return 1 + 0.5 * (LENGTH - k) / LENGTH + 0.01 * gauss(s); }
static double spiked(noise *s, int k) { return (void)k, 1 + 0.01 * gauss(s) + (uniform(s) < 0.01 ? 1000 : 0); }

typedef double (*draw)(noise *s, int k);

static void write_script(draw d, uint64_t seed, double *script, int n)
{
    noise s = {.seed = seed};
    for (int k = 0; k < n; k++) {
        const double x = floor(d(&s, k) * level / unit) * unit;
        script[k] = x >= unit ? x : unit;
    }
}

static const struct {
    const char *name;
    draw draw;
    double mean, sd, median; /* in units of the level; sd 0: not known in closed form */
} known[] = {
    {"constant", constant, 1, 0, 1},
    {"normal", normal, 1, 0.1, 1},
    {"exponential", exponential, 1, 1, 0.693147},
    {"bimodal", bimodal, 1.5, 0.5001, 1.5},
    {"correlated", correlated, 1, 0.05, 1},
    {"warming", warming, 1.25, 0.1447, 1.25},
    {"spiked", spiked, 11, 99.5, 1},
};
enum { KNOWN = sizeof known / sizeof *known };

/* The value of rank k, from 0, by counting. */
static double of_rank(const double *v, int n, int k)
{
    for (int i = 0; i < n; i++) {
        int less = 0, equal = 0;
        for (int j = 0; j < n; j++) less += v[j] < v[i], equal += v[j] == v[i];
        if (less <= k && k < less + equal) return v[i];
    }
    fail_msg("no value of rank %d", k);
    return 0;
}

/* Nothing added, nothing lost, in order, and the median by its definition. */
static void same_to_the_bit(const char *name, const pb_timing *t, const double *want, int n)
{
    if (t->n != n) fail_msg("%s: %d samples, want %d", name, t->n, n);
    for (int i = 0; i < n; i++)
        if (!(t->seconds[i] == want[i]))
            fail_msg("%s: sample %d took %.17g s, the script says %.17g", name, i, t->seconds[i], want[i]);
    CHECK_NEAR(t->median, (of_rank(want, n, (n - 1) / 2) + of_rank(want, n, n / 2)) / 2, 0);
}

static void what_is_scripted_is_measured(void **state)
{
    (void)state;
    for (int k = 0; k < KNOWN; k++) {
        double script[LENGTH];
        write_script(known[k].draw, 7 + (uint64_t)k, script, LENGTH);
        for (int odd = 0; odd < 2; odd++) {
            pb_measure_opts o = {.warmup = WARM, .min_samples = N - odd, .max_samples = N - odd};
            scripted cpu = {.script = script},
                     gpu = {.script = script, .async = true, .enqueue = 8 * unit, .marking = 2 * unit};
            pb_timing t = measure(&cpu, &o);
            same_to_the_bit(known[k].name, &t, script + WARM, N - odd);
            CHECK_NEAR(t.host_median, t.median, 0); /* the work is the host's */
            o.flush = o.queued = true;
            t = measure(&gpu, &o);
            same_to_the_bit(known[k].name, &t, script + WARM, N - odd);
            CHECK_NEAR(t.host_median, 12 * unit, 0); /* one call and two marks, whatever the work takes */
        }
    }
}

/* The scripts are what they are said to be: mean and standard deviation within 4 standard errors, those of the
 * correlated ones with the 19 of (1+0.9)/(1-0.9) in place of each. A median away from a gap lies near the known one. */
static void the_distributions_are_the_known_ones(void **state)
{
    (void)state;
    for (int k = 0; k < KNOWN; k++) {
        double script[LENGTH];
        write_script(known[k].draw, 7 + (uint64_t)k, script, LENGTH);
        scripted s = {.script = script};
        pb_timing t = measure(&s, &(pb_measure_opts){.warmup = WARM, .min_samples = N, .max_samples = N});
        const pb_sample got = pb_sample_of(t.seconds, t.n);
        const double sd = known[k].sd * level, wide = known[k].draw == correlated ? 19 : 1;
        CHECK_NEAR(got.mean, known[k].mean * level, 4 * sd * sqrt(wide / N) + unit);
        CHECK_NEAR(got.sd, sd, (known[k].draw == spiked ? 0.6 : 0.15 * sqrt(wide)) * sd + unit);
        if (known[k].draw != bimodal)
            CHECK_NEAR(t.median, known[k].median * level,
                       (known[k].draw == spiked ? 0.01 : 5 * known[k].sd * sqrt(wide / N)) * level + unit);
    }
}

/* ---- what the measurer adds ---------------------------------------------------------------------- */

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

/* What `queued` is for: an idle device waits for the host in every sample, one that is kept busy does not. */
static void an_idle_device_waits_for_the_host(void **state)
{
    static const double script[16] = {1, 1, 1, 1, 1, 1, 1, 1};
    pb_measure_opts o = {.warmup = 2, .min_samples = 5, .max_samples = 5};
    scripted idle = {.script = script, .async = true, .enqueue = 0.25}, busy = idle, behind = idle;
    (void)state;
    CHECK_NEAR(measure(&idle, &o).median, 1.25, 0);
    o.queued = true;
    pb_timing t = measure(&behind, &o);
    CHECK_NEAR(t.seconds[0], 1.25, 0); /* nothing keeps the device busy before the first of a batch */
    CHECK_NEAR(t.seconds[1], 1, 0);
    o.flush = true;
    t = measure(&busy, &o);
    CHECK_NEAR(t.seconds[0], 1, 0);
    CHECK_NEAR(t.median, 1, 0);
}

/* ---- how many samples ---------------------------------------------------------------------------- */

static const double script[64] = {50, 40, 1, 5, 2, 4, 3, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void samples_come_in_order_after_the_warm_up(void **state)
{
    scripted s = {.script = script};
    (void)state;
    pb_timing t = measure(&s, &(pb_measure_opts){.warmup = 2, .min_samples = 5, .max_samples = 5, .min_time = 1e9});
    same_to_the_bit("short script", &t, script + 2, 5);
    CHECK_NEAR(t.median, 3, 0);
    CHECK_NEAR(t.launches, SCRIPTED_LAUNCHES, 0);
    CHECK_NEAR(t.waits, SCRIPTED_WAITS, 0); /* the work's own, not the measurer's */
    assert_int_equal(t.nodes, 0);
    CHECK_NEAR(t.record_seconds, 0, 0);
    assert_int_equal(s.count[STEP_MARK], 10);
}

static void sampling_stops_at_the_time_asked_for(void **state)
{
    scripted f = {.script = script}, g = f, h = f;
    (void)state;
    pb_timing t = measure(&f, &(pb_measure_opts){.warmup = 2, .min_samples = 1, .max_samples = 50, .min_time = 8});
    assert_int_equal(t.n, 3); /* 1 + 5 + 2: the time of samples, exactly enough */
    t = measure(&g, &(pb_measure_opts){.warmup = 2, .min_samples = 4, .max_samples = 50, .min_time = 0});
    assert_int_equal(t.n, 4);
    CHECK_NEAR(t.median, 3, 0); /* of 1 5 2 4 */
    t = measure(&h, &(pb_measure_opts){.warmup = 2, .min_samples = 1, .max_samples = 6, .min_time = 1e9});
    assert_int_equal(t.n, 6);
}

/* What the measurer makes of times drawn anew for each of 4000 measurements: mean median and mean last sample. */
static void over_many(draw d, const pb_measure_opts *o, double *median, double *last)
{
    enum { TIMES = 4000, LONGEST = 128 };
    double length[LONGEST];
    *median = *last = 0;
    for (int k = 0; k < TIMES; k++) {
        write_script(d, 1000 + (uint64_t)k, length, LONGEST);
        scripted s = {.script = length};
        const pb_timing t = measure(&s, o);
        *median += t.median / level / TIMES;
        *last += t.seconds[t.n - 1] / level / TIMES;
    }
}

/* Exponential times, mean 1. A fixed number of samples is unbiased: the median of 5 is 1/5+1/4+1/3 on average, the last
 * one 1. Stopping at a time is not: the sample that crosses time T is 2 - e^-T long on average (the inspection paradox;
 * Feller II, I.4), and a median of few comes out high, by some 1/n. With a spread of 10 % nothing of it is left. */
static void stopping_at_a_time_prefers_long_last_samples(void **state)
{
    double five, fixed, median, last;
    (void)state;
    over_many(exponential, &(pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 5}, &five, &last);
    CHECK_NEAR(five, 1.0 / 5 + 1.0 / 4 + 1.0 / 3, 0.03);
    CHECK_NEAR(last, 1, 0.06);
    pb_measure_opts timed = {.warmup = 1, .min_samples = 1, .max_samples = 120, .min_time = 4 * level};
    over_many(exponential, &timed, &median, &last);
    CHECK_NEAR(last, 2 - exp(-4), 0.08);
    assert_true(median > 1.2 * five);
    over_many(normal, &timed, &median, &last);
    CHECK_NEAR(median, 1, 0.005);
    over_many(exponential, &(pb_measure_opts){.warmup = 1, .min_samples = 69, .max_samples = 69}, &fixed, &last);
    timed.min_time = 68 * level;
    over_many(exponential, &timed, &median, &last);
    CHECK_NEAR(median / fixed, 1 + 1.0 / 69, 0.007);
}

/* ---- what is not timed --------------------------------------------------------------------------- */

static void preparation_is_not_timed(void **state)
{
    const pb_measure_opts o = {
        .warmup = 2, .min_samples = 5, .max_samples = 5, .flush = true, .before = scripted_before};
    (void)state;
    for (int async = 0; async < 2; async++) {
        scripted s = {.script = script, .async = async, .marking = async ? unit : 0};
        pb_timing t = measure(&s, &o);
        same_to_the_bit("prepared", &t, script + 2, 5);
        CHECK_NEAR(t.waits, SCRIPTED_WAITS, 0);
        assert_int_equal(s.count[STEP_BEFORE], 7);
        assert_int_equal(s.count[STEP_FLUSH], 7);
    }
}

/* One wait a batch, one for the warm-up; every sample has its own two marks. */
static void queued_samples_follow_each_other_without_a_wait(void **state)
{
    scripted f = {.script = script}, g = f;
    (void)state;
    pb_measure_opts o = {.warmup = 2, .min_samples = 5, .max_samples = 5, .flush = true, .queued = true};
    pb_timing t = measure(&f, &o);
    same_to_the_bit("queued", &t, script + 2, 5);
    CHECK_NEAR(t.launches, SCRIPTED_LAUNCHES, 0);
    assert_int_equal(f.count[STEP_FLUSH], 7);
    assert_int_equal(f.count[STEP_SYNC], 2);
    o.max_samples = 20;
    t = measure(&g, &o);
    same_to_the_bit("queued", &t, script + 2, 16); /* a whole batch, though 5 would do */
}

static void a_graph_is_recorded_once_and_replayed(void **state)
{
    scripted s = {.script = script, .recording = 0.5, .enqueue = unit};
    (void)state;
    pb_timing t = measure(&s, &(pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 5, .graph = true});
    assert_int_equal(s.calls, 1 + 1 + 5); /* eager, first replay, samples */
    assert_int_equal(s.count[STEP_RECORD], 1);
    assert_int_equal(s.count[STEP_FREE], 1);
    CHECK_NEAR(t.median, 1.5 + unit, 0);
    CHECK_NEAR(t.launches, 1, 0);
    CHECK_NEAR(t.waits, 0, 0);
    CHECK_NEAR(t.record_seconds, 0.5, 0);
    assert_int_equal(t.nodes, SCRIPTED_NODES);
}

/* ---- what goes wrong ----------------------------------------------------------------------------- */

/* Fails, says why, and leaves the caller's timing alone. */
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

/* Every step at its first call, in the middle and at its last. No graph is left behind. */
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
                    assert_int_equal(s.count[step], at); /* nothing more was asked of it */
                    assert_int_equal(s.count[STEP_FREE], graph && (s.count[STEP_RECORD] && step != STEP_RECORD));
                }
        }
}

/* No row with NaN, no rate of infinity: an error that names the sample and the clock. */
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

/* The call during which it comes is the last; what was measured stays. */
static void an_interrupt_keeps_what_is_measured(void **state)
{
    pb_measure_opts o = {.warmup = 2, .min_samples = 20, .max_samples = 20};
    scripted s;
    (void)state;
    pb_timing t = stopped_at(2 + 3, o, &s);
    same_to_the_bit("interrupted", &t, script + 2, 3);
    CHECK_NEAR(t.launches, SCRIPTED_LAUNCHES, 0);
    assert_int_equal(s.calls, 5);
    for (int call = 1; call <= 2; call++) { /* in the warm-up */
        t = stopped_at(call, o, &s);
        assert_int_equal(t.n, 0);
        assert_int_equal(s.calls, call);
        assert_true(isnan(t.median) && isnan(t.host_median));
    }
    o.queued = true;
    t = stopped_at(2 + 3, o, &s);
    same_to_the_bit("interrupted", &t, script + 2, 16); /* a batch that is on its way is waited for */
    o.graph = true;
    t = stopped_at(1, o, &s);
    assert_int_equal(t.n, 0);
    assert_int_equal(s.count[STEP_RECORD], 0);
    t = stopped_at(3, o, &s); /* the first replay */
    assert_int_equal(t.n, 0);
    assert_int_equal(s.count[STEP_FREE], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median_of_odd_and_even),
        cmocka_unit_test(what_is_scripted_is_measured),
        cmocka_unit_test(the_distributions_are_the_known_ones),
        cmocka_unit_test(a_sample_holds_one_mark_at_most),
        cmocka_unit_test(an_idle_device_waits_for_the_host),
        cmocka_unit_test(samples_come_in_order_after_the_warm_up),
        cmocka_unit_test(sampling_stops_at_the_time_asked_for),
        cmocka_unit_test(stopping_at_a_time_prefers_long_last_samples),
        cmocka_unit_test(preparation_is_not_timed),
        cmocka_unit_test(queued_samples_follow_each_other_without_a_wait),
        cmocka_unit_test(a_graph_is_recorded_once_and_replayed),
        cmocka_unit_test(what_cannot_be_measured_says_so),
        cmocka_unit_test(an_error_ends_the_measurement),
        cmocka_unit_test(a_broken_clock_is_an_error),
        cmocka_unit_test(an_interrupt_keeps_what_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
