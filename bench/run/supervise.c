/* supervise.c - the loop that reads the heartbeat of a measuring process and ends a process that hangs. */
#define _GNU_SOURCE
#include "bench/run/supervise.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure/heartbeat.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"

typedef struct watcher {
    const pb_watch *w;
    pb_watched *out;
    bool closed;          /* the process has closed its end of the pipe */
    double began, heard;  /* times of the current case's start and of the last byte received */
    double asked, killed; /* times of SIGTERM and SIGKILL; 0: not sent */
    int passed;           /* signals of this process that were forwarded */
} watcher;

static void kill_it(watcher *r, double now)
{
    kill(r->w->pid, SIGKILL);
    r->out->killed = true;
    if (!(r->killed > 0)) r->killed = now;
}

/* The time at which the process will have been silent for too long. */
static double silent_at(const watcher *r)
{
    const int at = r->out->at, n = r->w->n;
    return r->heard + r->w->limit[at >= r->w->first && at < n ? at : n];
}

/* Sends the signals that are due. Returns the time at which the next one may be due. */
static double signal_it(watcher *r, double now)
{
    for (; r->passed < pb_interrupt_count(); r->passed++) {
        if (r->passed) kill_it(r, now);
        else kill(r->w->pid, pb_interrupt_signal());
    }
    if (r->killed > 0) {
        r->out->stuck = now >= r->killed + PB_GRACE;
        return r->killed + PB_GRACE;
    }
    if (r->asked > 0) {
        const double end = r->w->end, grace = r->asked + PB_GRACE, due = end > 0 && end < grace ? end : grace;
        if (now >= due) kill_it(r, now);
        return due;
    }
    /* late: the process has announced that it is ending, for which it has until the end of the budget */
    const double last = r->out->late ? r->w->end : r->w->deadline;
    const double silent = silent_at(r), due = last > 0 && last < silent ? last : silent;
    if (now < due) return due;
    if (due < silent) r->out->late = true;
    else r->out->hung = true;
    kill(r->w->pid, SIGTERM);
    r->asked = now;
    return now + PB_GRACE;
}

static void hear(watcher *r, char what)
{
    r->heard = pb_clock_seconds();
    if (what == PB_SAYS_OUT_OF_TIME) r->out->late = true;
    if (what == PB_SAYS_NO_MEMORY) r->out->no_memory = true;
    if (what != PB_SAYS_BEGIN) return;
    r->began = r->heard;
    r->out->at++;
    if (r->out->at < r->w->n) r->w->begins(r->w->user, r->out->at);
}

/* Waits until the pipe is readable, a signal of the mask `open` arrives, or the time `due` has come. Reads the
 * available bytes. */
static void listen_until(watcher *r, double due, const sigset_t *open)
{
    struct pollfd p = {.fd = r->closed ? -1 : r->w->pipe, .events = POLLIN};
    char said[64];
    double rest = due - pb_clock_seconds();
    /* A process that closed its pipe, or left it to a child of its own, sends no more events: poll waitpid() every 2
     * ms. */
    if ((r->closed || r->asked > 0 || r->killed > 0) && rest > 0.002) rest = 0.002;
    rest = rest < 0 ? 0 : rest > 3600 ? 3600 : rest;
    const struct timespec t = {(time_t)rest, (long)(1e9 * (rest - (double)(time_t)rest))};
    if (ppoll(&p, 1, &t, open) <= 0) return;
    const ssize_t n = read(r->w->pipe, said, sizeof said);
    for (ssize_t i = 0; i < n; i++) hear(r, said[i]);
    if (n > 0 || (n < 0 && errno == EINTR)) return;
    r->closed = true;
    /* Closing the pipe restarts the limit: cleaning up may take as long again. */
    if (!(r->asked > 0)) r->heard = pb_clock_seconds();
}

/* True if the process has ended. Then the bytes still in the pipe are read too. */
static bool reaped(watcher *r)
{
    int status = 0;
    if (waitpid(r->w->pid, &status, WNOHANG) != r->w->pid) return false;
    r->out->status = status;
    struct pollfd p = {.fd = r->w->pipe, .events = POLLIN};
    char what;
    while (!r->closed && poll(&p, 1, 0) > 0 && read(r->w->pipe, &what, 1) == 1) hear(r, what);
    return true;
}

void pb_watch_process(const pb_watch *w, pb_watched *out)
{
    const double start = pb_clock_seconds();
    watcher r = {.w = w, .out = out, .began = start, .heard = start};
    sigset_t stops, open;
    *out = (pb_watched){.pid = w->pid, .at = w->first - 1};
    /* Signals are blocked except while waiting. Otherwise one could arrive between the check of the count and the wait,
     * and the wait would not notice it. */
    sigemptyset(&stops), sigaddset(&stops, SIGINT), sigaddset(&stops, SIGTERM), sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, &open);
    while (!reaped(&r)) {
        const double due = signal_it(&r, pb_clock_seconds());
        if (out->stuck) break;
        listen_until(&r, due, &open);
    }
    out->took = pb_clock_seconds() - r.began;
    out->silent = pb_clock_seconds() - r.heard;
    sigprocmask(SIG_SETMASK, &open, NULL);
}
