/* contention_test.c - tests that samples during which other work took CPU time are taken again, by a scripted device
 * and a script of what each call lost; and that the kernel tells how long this process's threads wait for a CPU. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/measure/contention.h"
#include "tests/bench/measure/measured.h"

/* ---- a scripted loss ------------------------------------------------------------------------------ */

enum { CALLS = 400 };
static const scripted *device;
static const double *taken; /* seconds that other work took from the process during call i */
static bool unknown;

static bool scripted_loss(const pb_contention *c, double *seconds)
{
    (void)c;
    *seconds = 0;
    for (int i = 0; i < device->calls; i++) *seconds += taken[i];
    return !unknown;
}

/* Measures with one warm-up call, which loses nothing. */
static pb_timing measure_with(pb_contention *c, scripted *s, const double *loss, pb_measure_opts o)
{
    device = s, taken = loss;
    o.warmup = 1, o.contention = c;
    return measure(s, &o);
}

static pb_contention scripted_contention(void)
{
    return (pb_contention){.lost = scripted_loss, .threads = 1, .patience = PB_PATIENCE};
}

static void a_disturbed_sample_is_taken_again(void **state)
{
    static const double script[CALLS] = {9, 1, 2, 3, 4, 5, 6, 7, 8}, want[] = {1, 3, 6, 7, 8};
    static const double loss[CALLS] = {0, 0.05, 0.11, 0.1, 3, 0.26};
    scripted s = {.script = script};
    pb_contention c = scripted_contention();
    (void)state;
    pb_timing t = measure_with(&c, &s, loss, (pb_measure_opts){.min_samples = 5, .max_samples = 5});
    same_to_the_bit("three of eight disturbed", &t, want, 5);
    CHECK_NEAR(t.kernel_launches, SCRIPTED_LAUNCHES, 0);
    CHECK_NEAR(t.host_syncs, SCRIPTED_WAITS, 0);
    CHECK_NEAR(t.searches, SCRIPTED_SEARCHES, 0);
    assert_false(c.gave_up);
    CHECK_NEAR(c.patience, PB_PATIENCE, 0);
}

/* Only samples that are kept count towards min_time. */
static void the_time_asked_for_is_undisturbed(void **state)
{
    static const double script[CALLS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, loss[CALLS] = {0, 1, 1, 1, 0, 1};
    scripted s = {.script = script};
    pb_contention c = scripted_contention();
    (void)state;
    pb_timing t = measure_with(&c, &s, loss, (pb_measure_opts){.min_samples = 1, .max_samples = 9, .min_time = 4});
    assert_int_equal(t.n, 4);
    assert_int_equal(s.calls, 9);
}

/* Short samples are judged together, as many as take PB_STRETCH seconds. */
static void a_stretch_is_judged_as_a_whole(void **state)
{
    static double script[CALLS], loss[CALLS];
    const double each = 0x1p-9;
    for (int i = 0; i < CALLS; i++) script[i] = each * (1 + i % 2);
    loss[3] = 0.04 * 6 * each; /* of calls 1 to 4, which take 2, 1, 2, 1 times `each`, together 11.7 ms */
    loss[7] = 0.06 * 6 * each; /* of calls 5 to 8 */
    scripted s = {.script = script};
    pb_contention c = scripted_contention();
    (void)state;
    pb_timing t = measure_with(&c, &s, loss, (pb_measure_opts){.min_samples = 20, .max_samples = 20});
    assert_int_equal(t.n, 20);
    assert_int_equal(s.calls, 1 + 20 + 4);
}

static void endless_other_work_is_given_up(void **state)
{
    static double script[CALLS], loss[CALLS];
    int ends[2];
    char said[8];
    for (int i = 0; i < CALLS; i++) script[i] = loss[i] = 1;
    assert_int_equal(pipe(ends), 0);
    pb_heartbeat heartbeat = {.fd = ends[1], .every = 1e9};
    const pb_measure_opts five = {.min_samples = 5, .max_samples = 5, .heartbeat = &heartbeat};
    pb_contention c = scripted_contention();
    scripted s = {.script = script};
    (void)state;
    assert_int_equal(measure_with(&c, &s, loss, five).n, 5);
    assert_int_equal(s.calls, 1 + 25 + 5);
    s = (scripted){.script = script};
    measure_with(&c, &s, loss, five);
    assert_int_equal(s.calls, 1 + 7 + 5); /* its patience is 25 / 4 s */
    assert_int_equal(read(ends[0], said, sizeof said), 2);
    assert_memory_equal(said, "dd", 2);
    memset(loss, 0, sizeof loss);
    s = (scripted){.script = script};
    measure_with(&c, &s, loss, five);
    CHECK_NEAR(c.patience, PB_PATIENCE, 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(read(ends[0], said, sizeof said), -1); /* nothing more was said */
    close(ends[0]);
    close(ends[1]);
}

static void an_unknown_loss_disturbs_nothing(void **state)
{
    static const double script[CALLS] = {1, 1, 2, 3}, loss[CALLS] = {1, 1, 1, 1};
    scripted s = {.script = script};
    pb_contention c = scripted_contention();
    (void)state;
    unknown = true;
    pb_timing t = measure_with(&c, &s, loss, (pb_measure_opts){.min_samples = 3, .max_samples = 3});
    unknown = false;
    same_to_the_bit("unknown", &t, script + 1, 3);
}

/* ---- the kernel's numbers ------------------------------------------------------------------------- */

static atomic_bool stop;

static void *compute(void *self)
{
    while (!atomic_load(&stop)) {
    }
    return self;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Two threads that share a CPU wait for each other, about half of the time each. */
static void threads_that_share_a_cpu_wait(void **state)
{
    pb_contention c;
    cpu_set_t usable, one;
    pthread_t other;
    double before = 0, after = 0;
    (void)state;
    if (access("/proc/self/schedstat", R_OK) != 0) skip();
    assert_int_equal(sched_getaffinity(0, sizeof usable, &usable), 0);
    assert_true(pb_contention_open(&c, 1));
    assert_true(pb_contention_open(&c, CPU_COUNT(&usable)));
    assert_false(pb_contention_open(&c, CPU_COUNT(&usable) + 1));
    assert_true(pb_contention_open(&c, 1));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &usable)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0); /* the new thread inherits it */
    assert_true(c.lost(&c, &before));
    assert_int_equal(pthread_create(&other, NULL, compute, NULL), 0);
    for (const double began = now(); now() - began < 0.5;) {
    }
    assert_true(c.lost(&c, &after));
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    sched_setaffinity(0, sizeof usable, &usable);
    if (!(after - before > 0.2)) fail_msg("two threads on one CPU waited %g s of 0.5 s each", after - before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disturbed_sample_is_taken_again), cmocka_unit_test(the_time_asked_for_is_undisturbed),
        cmocka_unit_test(a_stretch_is_judged_as_a_whole),    cmocka_unit_test(endless_other_work_is_given_up),
        cmocka_unit_test(an_unknown_loss_disturbs_nothing),  cmocka_unit_test(threads_that_share_a_cpu_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
