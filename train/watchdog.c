/* watchdog.c - the thread that watches the progress of training. */
#include "train/watchdog.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "os/where.h"

enum { MACHINE_FAILED = 125 };

static double seconds_of(const struct timespec *t) { return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec; }

static struct timespec now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}

static void end_process(const pb_watchdog *w, const pb_where *at)
{
    char line[256];
    const int n = snprintf(line, sizeof line,
                           "train: step %lld made no progress for %g s (--step-timeout), in phase %s%s%s; the last "
                           "checkpoint stays valid\n",
                           (long long)at->step + 1, w->seconds, at->phase ? at->phase : "none",
                           at->collective ? ", collective " : "", at->collective ? at->collective : "");
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) { /* a closed standard error: the exit code remains */
    }
    _exit(MACHINE_FAILED);
}

/* Waits for `stop`, at most a tenth of the time limit. The caller holds the lock. */
static void wait_a_while(pb_watchdog *w)
{
    const double most = w->seconds < 10 ? w->seconds / 10 : 1;
    struct timespec t = now();
    t.tv_nsec += (long)(most * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

static void *watch(void *self)
{
    pb_watchdog *w = self;
    pb_where at;
    pb_where_read(&at);
    uint64_t progress = at.progress;
    struct timespec since = now(), t;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        wait_a_while(w);
        pb_where_read(&at);
        t = now();
        if (at.progress != progress) progress = at.progress, since = t;
        else if (!w->stop && seconds_of(&t) - seconds_of(&since) >= w->seconds) end_process(w, &at);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, so that they still interrupt the thread that trains. */
static int start(pb_watchdog *w)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int e = pthread_create(&w->thread, NULL, watch, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

pb_status pb_watchdog_start(pb_watchdog *w, double seconds)
{
    *w = (pb_watchdog){.seconds = seconds};
    if (!(seconds > 0)) return PB_OK;
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_mutex_init(&w->lock, NULL);
    const int e = start(w);
    if (!e) return PB_OK;
    w->seconds = 0;
    return pb_fail(PB_EIO, "--step-timeout: no thread could be started: %s", strerror(e));
}

void pb_watchdog_stop(pb_watchdog *w)
{
    if (!(w->seconds > 0)) return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->wake);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    w->seconds = 0;
}
