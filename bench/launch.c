/* launch.c - the parent's side of a launch: start it, show how far it is, pass signals on, say how it ended. */
#define _GNU_SOURCE
#include "bench/launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/progress.h"
#include "bench/results.h"
#include "cli/interrupt.h"
#include "kernels/core/clock.h"

/* ---- progress ------------------------------------------------------------------------------------- */

/* Weighs cases by what they are expected to take; the pace is that of this command so far. */
static double left(const pb_launch *l, const int *order, int at)
{
    double all = 0, done = -l->before, spent = pb_clock_seconds() - l->started;
    for (int i = 0; i < l->plan->n; i++) {
        double e = pb_plan_expect(l->plan, &l->plan->cases[order[i]]);
        all += e;
        done += i < at ? e : 0;
    }
    done += all * l->number;
    const double rest = all * (double)l->launches - l->before - done;
    return done > 0 ? rest * spent / done : rest;
}

static void show(const pb_launch *l, const int *order, int at)
{
    if (l->options->quiet || !isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Klaunch %d of %ld, case %d of %d, about %.0f s left: %.60s", l->number + 1, l->launches,
            at + 1, l->plan->n, left(l, order, at), l->plan->cases[order[at]].key);
}

static void clear(const pb_launch *l)
{
    if (!l->options->quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

/* ---- the child -------------------------------------------------------------------------------------- */

/* The options that make this program such a child, in front of those the user gave. */
static _Noreturn void become_child(const pb_launch *l, int pipe_fd)
{
    char number[32], first[32], deadline[32], fd[32], seed[32], threads[32];
    const pb_options *o = l->options;
    const char *own[] = {"bench",           "run",         "--child-dir",    l->dir, "--child-run",      l->run_id,
                         "--child-machine", l->machine_id, "--child-launch", number, "--child-pipe",     fd,
                         "--child-seed",    seed,          "--child-first",  first,  "--child-deadline", deadline};
    enum { OWN = sizeof own / sizeof *own };
    const char **argv = calloc((size_t)o->argc + OWN + 1, sizeof *argv);
    if (!argv) _exit(PB_EXIT_HARNESS);
    snprintf(number, sizeof number, "%d", l->number);
    snprintf(first, sizeof first, "%d", l->first);
    snprintf(deadline, sizeof deadline, "%.3f", l->deadline);
    snprintf(fd, sizeof fd, "%d", pipe_fd);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)l->seed);
    memcpy(argv, own, sizeof own);
    for (int i = 0; i < o->argc; i++) argv[OWN + i] = o->argv[i];
    if (o->threads > 0) {
        snprintf(threads, sizeof threads, "%ld", o->threads);
        setenv("OMP_NUM_THREADS", threads, 1);
    }
    /* libgomp's threads spin for milliseconds at a barrier by default. Where anything else runs, that takes the
     * processor from the very thread they wait for: steps then take ten times as long. A wait of this many
     * turns outlasts every barrier of a quiet machine. An environment that says otherwise has its way. */
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "20000", 0);
    setpgid(0, 0); /* the terminal's Ctrl-C reaches the parent alone, which passes it on once */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execv("/proc/self/exe", (char *const *)argv);
    fprintf(stderr, "bench: /proc/self/exe: %s\n", strerror(errno));
    _exit(PB_EXIT_HARNESS);
}

static pb_status start(const pb_launch *l, pid_t *pid, int *from_child)
{
    int ends[2];
    if (pipe(ends) != 0) return pb_fail(PB_EIO, "a launch cannot be started: %s", strerror(errno));
    sigset_t stops, before;
    sigemptyset(&stops), sigaddset(&stops, SIGINT), sigaddset(&stops, SIGTERM);
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &stops, &before); /* so that none is noted in the child and lost by exec */
    *pid = fork();
    if (*pid == 0) {
        signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(ends[0]);
        become_child(l, ends[1]);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    *from_child = ends[0];
    if (*pid > 0) return PB_OK;
    close(ends[0]);
    return pb_fail(PB_EIO, "a launch cannot be started: %s", strerror(errno));
}

/* Whether there is something to read, after a wait that a signal or the deadline ends; *late: it has passed. */
static bool readable(int fd, double deadline, bool *late)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const double rest = deadline - pb_clock_seconds();
    *late = deadline > 0 && rest <= 0;
    if (*late) return false;
    return poll(&p, 1, deadline > 0 && rest < 86400 ? (int)(1e3 * rest) + 1 : -1) > 0;
}

/* Reads one byte for every case that begins, and PB_OUT_OF_TIME for one that is not begun, until the child closes the
 * pipe. The first signal goes on to the child, which ends after its sample; the second kills it. The deadline ends it
 * as a signal does. Returns the position of the last case. */
static int follow(const pb_launch *l, pid_t pid, int from_child, const int *order, bool *stopped)
{
    int at = l->first - 1, passed = 0;
    for (;;) {
        char byte;
        bool late;
        const bool ready = readable(from_child, *stopped ? 0 : l->deadline, &late);
        for (; passed < pb_interrupt_count(); passed++) kill(pid, passed ? SIGKILL : pb_interrupt_signal());
        if (late) *stopped = true, kill(pid, SIGTERM);
        if (!ready) continue;
        ssize_t n = read(from_child, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return at;
        if (byte == PB_OUT_OF_TIME) *stopped = true;
        else if (++at < l->plan->n) show(l, order, at);
    }
}

static int reap(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

/* How a launch ended that did not end as pb_launch_child does, in words; false: it did. A library or a
 * sanitizer that calls exit counts as a death too. */
static bool died(int status, char *how, size_t n)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (WIFSIGNALED(status))
        snprintf(how, n, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else snprintf(how, n, "ended by exit code %d", code);
    return code != PB_EXIT_OK && code != PB_EXIT_USAGE && code != PB_EXIT_INCOMPARABLE && code != PB_EXIT_NO_MEMORY &&
           code != PB_EXIT_HARNESS;
}

/* A launch that died cannot say so itself: its case gets a row. */
static pb_status report_death(const pb_launch *l, const int *order, int at, const char *how)
{
    char note[160];
    pb_sink sink;
    const pb_case *c = at >= 0 && at < l->plan->n ? &l->plan->cases[order[at]] : NULL;
    snprintf(note, sizeof note, "the launch was %s", how);
    if (!pb_interrupted())
        fprintf(stderr, "bench: launch %d: %s %s%s; what it measured before stays\n", l->number, how,
                c ? "in " : "before its first case", c ? c->key : "");
    if (!c) return PB_OK;
    PB_TRY(pb_sink_open(l->dir, &sink));
    sink.run_id = l->run_id, sink.machine_id = l->machine_id, sink.launch = l->number;
    pb_status s = pb_emit_outcome(&sink, c, pb_interrupted() ? "truncated" : "failed", note);
    pb_sink_close(&sink);
    return s;
}

/* A launch that died is not taken up again. */
static pb_status after_death(const pb_launch *l, const int *order, int at, const char *how)
{
    PB_TRY(report_death(l, order, at, how));
    return pb_interrupted() ? PB_OK : pb_progress_mark(l->dir, (pb_place){l->number + 1, 0});
}

pb_status pb_launch_run(const pb_launch *l, pb_exit *code, bool *stopped)
{
    char how[96];
    pid_t pid = -1;
    bool late = false;
    int from_child = -1, *order = malloc((size_t)l->plan->n * sizeof *order);
    if (!order) return pb_fail(PB_ENOMEM, "no memory for the order of %d cases", l->plan->n);
    pb_plan_order(l->plan, l->seed, l->number, order);
    pb_status s = start(l, &pid, &from_child);
    if (s == PB_OK) {
        int at = follow(l, pid, from_child, order, &late), status = reap(pid);
        close(from_child);
        clear(l);
        const bool dead = died(status, how, sizeof how);
        *code = dead ? PB_EXIT_INCOMPARABLE : (pb_exit)WEXITSTATUS(status);
        if (dead) s = after_death(l, order, at, how);
        *stopped = late && !dead && *code != PB_EXIT_OK;
    }
    free(order);
    return s;
}
