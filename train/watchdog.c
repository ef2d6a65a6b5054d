/* watchdog.c - the thread that watches the progress of training. */
#include "train/watchdog.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

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

/* Waits for `stop`, but at most so many seconds. The caller holds the lock. */
static void wait_for_stop(pb_watchdog *w, double seconds)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(seconds * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

/* Reads the progress ten times in the time limit or more often. It counts readings instead of comparing times, because
 * while the process is stopped (SIGSTOP, a suspended machine) time passes in which nothing can progress. */
static pb_status watch(void *self)
{
    pb_watchdog *w = self;
    pb_where at;
    pb_where_read(&at);
    uint64_t progress = at.progress;
    const double every = w->seconds < 10 ? w->seconds / 10 : 1;
    (void)pthread_mutex_lock(&w->lock);
    for (int same = 0; !w->stop;) {
        wait_for_stop(w, every);
        pb_where_read(&at);
        same = at.progress == progress ? same + 1 : 0;
        progress = at.progress;
        if (!w->stop && same * every >= w->seconds) end_process(w, &at);
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
