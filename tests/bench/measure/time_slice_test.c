/* time_slice_test.c - two processes that work in alternating time slices: never both at once, neither ahead by a case,
 * and neither stuck when the other ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure/time_slice.h"
#include "os/interrupt.h"
#include "tests/test.h"

enum { CASES = 4, STEPS = 12 };

/* Memory shared by both processes. */
typedef struct shared {
    atomic_int working, overlaps, ahead, turns[2], begun[2], processors[2], last[2];
} shared;

static shared *share(void)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    return s;
}

typedef struct ends {
    int from[2], to[2];
} ends;

static void join(ends *e)
{
    int there[2], back[2];
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    *e = (ends){{back[0], there[0]}, {there[1], back[1]}};
}

/* Opens the time slices of process `who`. It closes its copies of the other process's pipe ends, so that the end of
 * that process is noticed. */
static pb_status open_slices(const ends *e, int who, int next, long threads, pb_heartbeat *heartbeat,
                             pb_time_slices *out)
{
    char text[96];
    close(e->from[1 - who]), close(e->to[1 - who]);
    snprintf(text, sizeof text, "0.001:%d:%d:%d", e->from[who], e->to[who], who == 0);
    return pb_time_slice_open(text, next, threads, heartbeat, out);
}

static void work(shared *s)
{
    if (atomic_fetch_add(&s->working, 1) != 0) s->overlaps++;
    usleep(300);
    atomic_fetch_sub(&s->working, 1);
}

/* Cases of different lengths: the second process has three times as many steps. */
static _Noreturn void run(const ends *e, int who, int cases, shared *s)
{
    pb_time_slices t;
    if (open_slices(e, who, 0, 1, NULL, &t) != PB_OK) _exit(1);
    work(s);
    for (int i = 0; i < cases; i++) {
        pb_time_slice_case(&t, i);
        s->begun[who] = i + 1;
        if (t.from >= 0 && s->begun[1 - who] < i + (who == 0)) s->ahead++;
        for (int k = 0; k < STEPS * (1 + 2 * who); k++) {
            work(s);
            if (pb_time_slice_pass(&t)) s->turns[who]++;
        }
    }
    cpu_set_t may;
    sched_getaffinity(0, sizeof may, &may);
    s->processors[who] = CPU_COUNT(&may);
    s->last[who] = sched_getcpu();
    pb_time_slice_close(&t);
    _exit(0);
}

static void both(int cases_of_first, int cases_of_second, shared *s)
{
    ends e;
    pid_t pid[2];
    join(&e);
    for (int who = 0; who < 2; who++) {
        pid[who] = fork();
        if (pid[who] == 0) run(&e, who, who ? cases_of_second : cases_of_first, s);
    }
    for (int who = 0; who < 2; who++) close(e.from[who]), close(e.to[who]);
    for (int who = 0; who < 2; who++) {
        int status;
        assert_int_equal(waitpid(pid[who], &status, 0), pid[who]);
        assert_int_equal(status, 0);
    }
}

static void one_works_at_a_time_and_none_is_a_case_ahead(void **state)
{
    shared *s = share();
    (void)state;
    both(CASES, CASES, s);
    assert_int_equal(s->overlaps, 0);
    assert_int_equal(s->ahead, 0);
    assert_int_equal(s->begun[0], CASES);
    assert_int_equal(s->begun[1], CASES);
    assert_true(s->turns[0] >= CASES && s->turns[1] >= CASES); /* the processes also alternate within a case */
    assert_int_equal(s->processors[0], 1);
    assert_int_equal(s->processors[1], 1);
    assert_int_equal(s->last[0], s->last[1]);
}

static void one_goes_on_alone_when_the_other_has_ended(void **state)
{
    (void)state;
    for (int shorter = 0; shorter < 2; shorter++) {
        shared *s = share();
        both(shorter == 0 ? 1 : CASES, shorter == 1 ? 1 : CASES, s);
        assert_int_equal(s->overlaps, 0);
        assert_int_equal(s->begun[1 - shorter], CASES);
    }
}

/* A waiting process sends heartbeats, so that it is not taken for a hanging one. */
static void waiting_gives_signs_of_life(void **state)
{
    ends e;
    int said[2];
    char bytes[64];
    (void)state;
    join(&e);
    assert_int_equal(pipe2(said, O_NONBLOCK), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        pb_heartbeat heartbeat = {.fd = said[1], .every = 0.05};
        pb_time_slices t;
        _exit(open_slices(&e, 1, 0, 0, &heartbeat, &t) != PB_OK);
    }
    usleep(500000);
    assert_int_equal(write(e.to[0], &(int){1}, sizeof(int)), sizeof(int));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(read(said[0], bytes, sizeof bytes) >= 2);
}

static void a_signal_ends_the_wait(void **state)
{
    ends e;
    (void)state;
    join(&e);
    const pid_t pid = fork();
    if (pid == 0) {
        pb_time_slices t;
        alarm(20);
        pb_interrupt_watch();
        _exit(open_slices(&e, 1, 0, 0, NULL, &t) != PB_OK || !pb_interrupted());
    }
    usleep(200000);
    kill(pid, SIGTERM);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A process that replaces a hung one, which held the time slice, starts with the slice. */
static void the_successor_of_a_process_has_its_turn(void **state)
{
    ends e;
    pb_time_slices t;
    char text[96];
    (void)state;
    join(&e); /* the other process's pipe ends stay open here, as if it were waiting */
    snprintf(text, sizeof text, "0.001:%d:%d:0", e.from[1], e.to[1]);
    assert_int_equal(pb_time_slice_open(text, 3, 0, NULL, &t), PB_OK);
    assert_true(t.from >= 0);
    pb_time_slice_close(&t);
    close(e.from[0]), close(e.to[0]);
}

static void without_turns_nothing_happens(void **state)
{
    pb_time_slices t;
    (void)state;
    assert_int_equal(pb_time_slice_open(NULL, 0, 1, NULL, &t), PB_OK);
    assert_true(pb_time_slice_over(&t));
    assert_false(pb_time_slice_pass(&t));
    pb_time_slice_case(&t, 5);
    pb_time_slice_close(&t);
    assert_true(pb_time_slice_over(NULL));
    assert_false(pb_time_slice_pass(NULL));
}

static void a_text_that_says_no_turns_is_refused(void **state)
{
    static const char *const texts[] = {"",          "0.002",     "0.002:3:4",  "0:3:4:1",   "-1:3:4:1",
                                        "nan:3:4:1", "inf:3:4:1", "0.1:-1:4:1", "0.1:3:4:1:"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pb_time_slices t = {.length = 7};
        assert_int_equal(pb_time_slice_open(texts[i], 0, 0, NULL, &t), PB_EINVAL);
        CHECK_NEAR(t.length, 7, 0);
    }
}

int main(void)
{
    alarm(100); /* waiting for a time slice has no timeout */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_works_at_a_time_and_none_is_a_case_ahead),
        cmocka_unit_test(one_goes_on_alone_when_the_other_has_ended),
        cmocka_unit_test(waiting_gives_signs_of_life),
        cmocka_unit_test(a_signal_ends_the_wait),
        cmocka_unit_test(the_successor_of_a_process_has_its_turn),
        cmocka_unit_test(without_turns_nothing_happens),
        cmocka_unit_test(a_text_that_says_no_turns_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
