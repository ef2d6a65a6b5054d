/* supervise_test.c - supervision of one or two child processes that end, hang, stop, ignore signals or exceed their
 * time: which signals they get, and how their end is reported. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/heartbeat.h"
#include "launch/start.h"
#include "launch/supervise.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"
#include "tests/test.h"

/* Long enough for a busy machine, where a child may begin to run late. */
enum { GRACE_MS = 200, LIMIT_MS = 400, DEADLINE_MS = 400, CHILD_MS = 1500, LONG_MS = 20000 };

typedef enum act { ENDS, BEATS, WAITS, IGNORES, STOPS, DIES, LEAVES_A_CHILD, LEAVES_A_LONG_ONE } act;

/* Memory shared by the test, the supervising process and its children. */
static struct shared {
    /* ready: number of children that can be signalled; begun: number of cases begun; last: index of the last such
     * case */
    atomic_int ready, begun, last;
    pb_child child[PB_CHILDREN];
} * shared;

static void nap(int ms) { nanosleep(&(struct timespec){ms / 1000, 1000000L * (ms % 1000)}, NULL); }

static void say(int fd, char what)
{
    if (write(fd, &what, 1) != 1) _exit(99);
}

static void perform(const void *self, int fd)
{
    const act what = *(const act *)self;
    if (what == IGNORES) signal(SIGTERM, SIG_IGN), signal(SIGINT, SIG_IGN);
    if (what == LEAVES_A_LONG_ONE) { /* the first signal must not end what it leaves */
        signal(SIGINT, SIG_IGN);
        if (fork() == 0) { /* ctest would wait for its output */
            close(1), close(2), nap(LONG_MS);
            _exit(0);
        }
    }
    shared->ready++;
    if (what == BEATS) say(fd, PB_SAYS_BEGIN), say(fd, PB_SAYS_NO_MEMORY), say(fd, PB_SAYS_BEGIN);
    for (int i = 0; what == BEATS && i < 3 * LIMIT_MS / 10; i++) nap(10), say(fd, PB_SAYS_ALIVE);
    if (what == STOPS) raise(SIGSTOP);
    if (what == DIES) raise(SIGKILL);
    if (what == LEAVES_A_CHILD && fork() == 0) nap(CHILD_MS);
    if (what == WAITS || what == IGNORES) nap(LONG_MS);
    _exit(7);
}

static void begins(void *user, int at)
{
    (void)user;
    shared->begun++;
    shared->last = at;
}

/* One scenario: what the children do, by which rules, and the signals that the supervising process gets. */
typedef struct play {
    int n;
    act what[PB_CHILDREN];
    bool heartbeats, abandon;
    int forward, signals[2];
    int deadline_ms, end_ms; /* from now; 0: none */
    int grace_ms;            /* 0: GRACE_MS */
} play;

static _Noreturn void supervise(const play *p)
{
    static const double limit[] = {1e-3 * LIMIT_MS, 1e-3 * LIMIT_MS, 1e-3 * LIMIT_MS};
    const pb_child_cases cases = {0, 2, limit, begins, NULL};
    pb_child c[PB_CHILDREN] = {0};
    pb_interrupt_watch();
    for (int i = 0; i < p->n; i++) {
        c[i].cases = p->heartbeats ? &cases : NULL;
        if (pb_start(perform, &p->what[i], &c[i].pid, &c[i].pipe) != PB_OK) _exit(99);
    }
    const double now = pb_clock_seconds();
    pb_supervise(&(pb_supervision){.deadline = p->deadline_ms ? now + 1e-3 * p->deadline_ms : 0,
                                   .end = p->end_ms ? now + 1e-3 * p->end_ms : 0,
                                   .grace = 1e-3 * (p->grace_ms ? p->grace_ms : GRACE_MS),
                                   .forward = p->forward,
                                   .abandon = p->abandon},
                 c, p->n);
    memcpy(shared->child, c, sizeof c);
    _exit(0);
}

/* Runs a scenario in a process of its own, because signals are counted per process. Returns the seconds it took; the
 * results of the children are in shared->child. */
static double played(play p)
{
    const double began = pb_clock_seconds();
    int status;
    memset(shared, 0, sizeof *shared);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) supervise(&p);
    for (int i = 0; i < 2 && p.signals[i]; i++) {
        while (shared->ready < p.n) nap(1);
        nap(50);
        kill(pid, p.signals[i]);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return pb_clock_seconds() - began;
}

static int ended_by(int i) { return WIFSIGNALED(shared->child[i].status) ? WTERMSIG(shared->child[i].status) : 0; }
static int code_of(int i) { return WIFEXITED(shared->child[i].status) ? WEXITSTATUS(shared->child[i].status) : -1; }

static void test_ends(void **state)
{
    (void)state;
    for (int heartbeats = 0; heartbeats < 2; heartbeats++) {
        played((play){.n = 2, .what = {ENDS, DIES}, .heartbeats = heartbeats});
        assert_int_equal(code_of(0), 7);
        assert_int_equal(ended_by(1), SIGKILL);
        for (int i = 0; i < 2; i++) {
            const pb_child *c = &shared->child[i];
            assert_false(c->hung || c->late || c->killed || c->signalled || c->abandoned || c->no_memory);
            assert_int_equal(c->at, -1);
        }
    }
}

static void test_heartbeats(void **state)
{
    (void)state;
    played((play){.n = 1, .what = {BEATS}, .heartbeats = true}); /* runs for three times its limit */
    assert_int_equal(code_of(0), 7);
    assert_int_equal(shared->child[0].at, 1);
    assert_int_equal(shared->begun, 2);
    assert_int_equal(shared->last, 1);
    assert_true(shared->child[0].no_memory && !shared->child[0].hung);
    assert_true(shared->child[0].took > 2e-3 * LIMIT_MS && shared->child[0].silent < 1e-3 * LIMIT_MS);
}

static void test_hangs(void **state)
{
    (void)state;
    played((play){.n = 2, .what = {WAITS, IGNORES}, .heartbeats = true});
    assert_int_equal(ended_by(0), SIGTERM);
    assert_int_equal(ended_by(1), SIGKILL);
    assert_true(shared->child[0].hung && !shared->child[0].killed && !shared->child[0].late);
    assert_true(shared->child[1].hung && shared->child[1].killed);
    assert_true(shared->child[1].silent > 1e-3 * (LIMIT_MS + GRACE_MS));
}

static void test_stopped(void **state)
{
    (void)state;
    played((play){.n = 1, .what = {STOPS}, .heartbeats = true}); /* SIGTERM waits until it continues */
    assert_int_equal(ended_by(0), SIGKILL);
    assert_true(shared->child[0].hung && shared->child[0].killed);
    played((play){.n = 1, .what = {STOPS}, .deadline_ms = DEADLINE_MS});
    assert_int_equal(ended_by(0), SIGKILL);
    assert_true(shared->child[0].late && shared->child[0].killed);
}

static void test_deadline(void **state)
{
    (void)state;
    played((play){.n = 2, .what = {WAITS, IGNORES}, .deadline_ms = DEADLINE_MS});
    assert_int_equal(ended_by(0), SIGTERM);
    assert_int_equal(ended_by(1), SIGKILL);
    assert_true(shared->child[0].late && shared->child[1].late && !shared->child[0].killed);
    assert_true(shared->child[1].took > 1e-3 * DEADLINE_MS); /* by most of the grace */
    /* The grace would last LONG_MS, but `end` is earlier: the child is killed at `end`. */
    played(
        (play){.n = 1, .what = {IGNORES}, .deadline_ms = DEADLINE_MS, .end_ms = DEADLINE_MS + 50, .grace_ms = LONG_MS});
    assert_int_equal(ended_by(0), SIGKILL);
    assert_true(shared->child[0].took < 0.5e-3 * LONG_MS);
    /* A child that ends before the deadline is not late. */
    played((play){.n = 2, .what = {ENDS, WAITS}, .deadline_ms = DEADLINE_MS});
    assert_true(!shared->child[0].late && shared->child[1].late);
}

static void test_signals(void **state)
{
    (void)state;
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        played((play){.n = 2, .what = {WAITS, WAITS}, .signals = {stops[i]}});
        for (int k = 0; k < 2; k++) {
            assert_int_equal(ended_by(k), stops[i]);
            assert_true(shared->child[k].signalled && !shared->child[k].killed && !shared->child[k].late);
        }
        played((play){.n = 1, .what = {WAITS}, .signals = {stops[i]}, .forward = SIGTERM});
        assert_int_equal(ended_by(0), SIGTERM);
    }
    played((play){.n = 2, .what = {IGNORES, WAITS}, .signals = {SIGINT, SIGINT}});
    assert_int_equal(ended_by(0), SIGKILL);
    assert_int_equal(ended_by(1), SIGINT);
}

/* A child that sends no heartbeats counts as ended when its pipe reaches end of file. That is only when the processes
 * that the child started and left running have ended too. */
static void test_end_of_file(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) { /* with n = 2, the other child writes heartbeats, which must have no effect here */
        played((play){.n = n, .what = {LEAVES_A_CHILD, BEATS}});
        assert_int_equal(code_of(0), 7);
        assert_true(shared->child[0].took > 0.8e-3 * CHILD_MS);
        assert_int_equal(shared->begun, 0);
    }
    played((play){.n = 1, .what = {LEAVES_A_CHILD}, .heartbeats = true});
    assert_true(shared->child[0].took < 0.8e-3 * CHILD_MS);
    /* A second signal ends the wait for them. */
    played((play){.n = 1, .what = {LEAVES_A_LONG_ONE}, .signals = {SIGINT, SIGINT}});
    assert_true(shared->child[0].took < 0.5e-3 * LONG_MS);
}

/* true: kill() has no effect, as for a process inside a driver call that never returns. */
static bool no_kill;
int __real_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig) { return no_kill && sig == SIGKILL ? 0 : __real_kill(pid, sig); }

static void test_abandoned(void **state)
{
    (void)state;
    no_kill = true;
    const double took = played((play){.n = 1, .what = {IGNORES}, .heartbeats = true, .abandon = true});
    no_kill = false;
    const pb_child *c = &shared->child[0];
    assert_true(c->hung && c->killed && c->abandoned);
    assert_true(took < 1e-3 * LONG_MS);
    assert_int_equal(kill(c->pid, 0), 0); /* it still runs */
    kill(c->pid, SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),        cmocka_unit_test(test_heartbeats), cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_stopped),     cmocka_unit_test(test_deadline),   cmocka_unit_test(test_signals),
        cmocka_unit_test(test_end_of_file), cmocka_unit_test(test_abandoned),
    };
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
