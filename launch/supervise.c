/* supervise.c - the loop that waits for child processes, reads their heartbeats, and ends those that hang or are out of
 * time. */
#include "launch/supervise.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/heartbeat.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"

typedef struct state {
    const pb_supervision *rules;
    pb_child *child;
    bool over;            /* the child was reaped or abandoned */
    bool closed;          /* its end of the pipe is closed */
    double began, heard;  /* began: start of the current case; heard: time of the last byte received */
    double asked, killed; /* asked: time of SIGTERM; killed: time of SIGKILL; 0: not sent */
    int passed;           /* number of signals received by this process that were forwarded to the child */
} state;

/* ---- sending signals to the children ---------------------------------------------------------------- */

static void kill_it(state *r, double now)
{
    kill(r->child->pid, SIGKILL);
    r->child->killed = true;
    if (!(r->killed > 0)) r->killed = now;
}

static void send_it(const state *r, int sig)
{
    if (r->rules->stop) r->rules->stop(r->rules->user, sig);
    else kill(r->child->pid, sig);
}

static void forward_it(state *r)
{
    send_it(r, r->rules->forward ? r->rules->forward : pb_interrupt_signal());
    r->child->signalled = true;
}

/* Returns the time from which the child counts as hung if it sends no byte until then. */
static double silent_at(const state *r)
{
    const pb_child_cases *c = r->child->cases;
    if (!c) return (double)INFINITY;
    const int at = r->child->at;
    return r->heard + c->limit[at >= c->first && at < c->n ? at : c->n];
}

/* Sends SIGTERM if the child has reached its deadline or has been silent for too long. Returns the time at which that
 * happens. */
static double ask_it(state *r, double now)
{
    /* A child with `late` has announced that it ends; it may take until the end of the budget. */
    const double last = r->child->late ? r->rules->end : r->rules->deadline;
    const double silent = silent_at(r), due = last > 0 && last < silent ? last : silent;
    if (now < due) return due;
    if (due < silent) r->child->late = true;
    else r->child->hung = true;
    send_it(r, SIGTERM);
    r->asked = now;
    return due;
}

/* Sends the signals that are due. Returns the time at which the next one may be due. */
static double signal_it(state *r, double now)
{
    const double end = r->rules->end;
    for (; r->passed < pb_interrupt_count(); r->passed++) {
        if (r->passed) kill_it(r, now);
        else forward_it(r);
    }
    if (r->killed > 0) {
        r->child->abandoned = r->rules->abandon && now >= r->killed + r->rules->grace;
        return r->rules->abandon ? r->killed + r->rules->grace : (double)INFINITY;
    }
    if (!(r->asked > 0)) {
        const double due = ask_it(r, now);
        if (!(r->asked > 0)) return due;
    }
    const double grace = r->asked + r->rules->grace, due = end > 0 && end < grace ? end : grace;
    if (now >= due) kill_it(r, now);
    return due;
}

/* ---- reading the pipes -------------------------------------------------------------------------------- */

static void hear(state *r, char what)
{
    const pb_child_cases *c = r->child->cases;
    if (!c) return;
    r->heard = pb_clock_seconds();
    if (what == PB_SAYS_OUT_OF_TIME) r->child->late = true;
    if (what == PB_SAYS_NO_MEMORY) r->child->no_memory = true;
    if (what == PB_SAYS_DISTURBED) r->child->disturbed++;
    if (what != PB_SAYS_BEGIN) return;
    r->began = r->heard;
    r->child->at++;
    if (r->child->at < c->n) c->begins(c->user, r->child->at);
}

/* Reads what is in the pipe, which poll() has found readable. */
static void listen_to(state *r)
{
    char said[64];
    const ssize_t n = read(r->child->pipe, said, sizeof said);
    for (ssize_t i = 0; i < n; i++) hear(r, said[i]);
    if (n > 0 || (n < 0 && errno == EINTR)) return;
    r->closed = true;
    /* A closed pipe sends no more heartbeats, so the limit of silence begins again: cleaning up may take that long. */
    if (!(r->asked > 0)) r->heard = pb_clock_seconds();
}

/* True if the end of the child might not be seen on the pipe: the pipe is closed already, or the child was told to end
 * and a process that it started may hold the pipe open. */
static bool quiet(const state *r)
{
    return !r->over && (r->closed || r->killed > 0 || (r->child->cases && r->asked > 0));
}

/* Waits until a pipe is readable, a signal of the mask `open` arrives, or the time `due` has come. Reads the available
 * bytes. */
static void listen_until(state *r, int n, double due, const sigset_t *open)
{
    struct pollfd p[PB_CHILDREN + 1];
    const int wake = r[0].rules->wake;
    double rest = due - pb_clock_seconds();
    for (int i = 0; i < n; i++) {
        p[i] = (struct pollfd){.fd = r[i].over || r[i].closed ? -1 : r[i].child->pipe, .events = POLLIN};
        if (quiet(&r[i]) && rest > 0.002) rest = 0.002; /* calls waitpid() every 2 ms */
    }
    rest = rest < 0 ? 0 : rest > 3600 ? 3600 : rest;
    const struct timespec t = {(time_t)rest, (long)(1e9 * (rest - (double)(time_t)rest))};
    p[n] = (struct pollfd){.fd = wake > 0 ? wake : -1, .events = POLLIN};
    if (ppoll(p, (nfds_t)n + 1, &t, open) <= 0) return;
    for (int i = 0; p[n].revents && i < n; i++)
        if (!r[i].over && !(r[i].killed > 0)) kill_it(&r[i], pb_clock_seconds());
    for (int i = 0; i < n; i++)
        if (p[i].revents) listen_to(&r[i]);
}

/* ---- reaping children that have ended ----------------------------------------------------------------- */

/* Reaps the child if it has ended, and reads the bytes still in the pipe. Returns true if it was reaped. */
static bool reaped(state *r)
{
    int status = 0;
    if (!r->child->cases && !r->closed && !(r->killed > 0)) return false;
    if (waitpid(r->child->pid, &status, WNOHANG) != r->child->pid) return false;
    r->child->status = status;
    struct pollfd p = {.fd = r->child->pipe, .events = POLLIN};
    char what;
    while (!r->closed && poll(&p, 1, 0) > 0 && read(r->child->pipe, &what, 1) == 1) hear(r, what);
    return true;
}

/* Reaps the children that have ended and sends signals to the others. Returns the number of children that have not
 * ended. *due: the time at which the next signal may be due. */
static int attend(state *r, int n, double *due)
{
    int left = 0;
    *due = (double)INFINITY;
    for (int i = 0; i < n; i++) {
        if (r[i].over) continue;
        r[i].over = reaped(&r[i]);
        if (!r[i].over) {
            *due = fmin(*due, signal_it(&r[i], pb_clock_seconds()));
            r[i].over = r[i].child->abandoned;
        }
        left += !r[i].over;
        r[i].child->took = pb_clock_seconds() - r[i].began;
        r[i].child->silent = pb_clock_seconds() - r[i].heard;
    }
    return left;
}

void pb_supervise(const pb_supervision *s, pb_child *child, int n)
{
    const double start = pb_clock_seconds();
    state r[PB_CHILDREN];
    sigset_t stops, open;
    double due;
    for (int i = 0; i < n; i++) {
        const pb_child_cases *cases = child[i].cases;
        child[i] = (pb_child){.pid = child[i].pid, .pipe = child[i].pipe, .cases = cases};
        child[i].at = cases ? cases->first - 1 : -1;
        r[i] = (state){.rules = s, .child = &child[i], .began = start, .heard = start};
    }
    /* Signals are blocked except while waiting. Otherwise one could arrive between the check of the count and the wait,
     * and the wait would not notice it. */
    sigemptyset(&stops), sigaddset(&stops, SIGINT), sigaddset(&stops, SIGTERM), sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, &open);
    while (attend(r, n, &due)) listen_until(r, n, due, &open);
    sigprocmask(SIG_SETMASK, &open, NULL);
}

void pb_kill_children(const pb_child *child, int n)
{
    for (int i = 0; i < n; i++) kill(child[i].pid, SIGKILL);
}
