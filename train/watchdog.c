/* watchdog.c - the thread that watches the progress of training. */
#include "train/watchdog.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "kernels/engine/clock.h"
#include "os/where.h"

static void end_process(const pb_watchdog *w, const pb_where *at)
{
    char line[256];
    const int n =
        snprintf(line, sizeof line, "train: step %lld made no progress for %g s (--step-timeout), in phase %s%s%s\n",
                 (long long)at->step + 1, w->seconds, at->phase ? at->phase : "none",
                 at->collective ? ", collective " : "", at->collective ? at->collective : "");
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) { /* a closed standard error: the exit code remains */
    }
    _exit(pb_status_exit(PB_EDEVICE));
}

/* Waits for `stop`, but at most a tenth of the time limit. The caller holds the lock. */
static void wait_a_while(pb_watchdog *w)
{
    const double most = w->seconds < 10 ? w->seconds / 10 : 1;
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(most * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

static pb_status watch(void *self)
{
    pb_watchdog *w = self;
    pb_where at;
    pb_where_read(&at);
    uint64_t progress = at.progress;
    double since = pb_clock_seconds();
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        wait_a_while(w);
        pb_where_read(&at);
        const double now = pb_clock_seconds();
        if (at.progress != progress) progress = at.progress, since = now;
        else if (!w->stop && now - since >= w->seconds) end_process(w, &at);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return PB_OK;
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
    const pb_status s = pb_task_start(&w->task, watch, w);
    if (s != PB_OK) w->seconds = 0;
    return s;
}

void pb_watchdog_stop(pb_watchdog *w)
{
    if (!(w->seconds > 0)) return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->wake);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pb_task_join(&w->task);
    (void)pthread_cond_destroy(&w->wake);
    (void)pthread_mutex_destroy(&w->lock);
    w->seconds = 0;
}
