/* task.c - starts and joins the thread of a task. */
#include "os/task.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void *work(void *self)
{
    pb_task *t = self;
    t->status = t->fn(t->self);
    if (t->status != PB_OK) snprintf(t->why, sizeof t->why, "%s", pb_error());
    atomic_store(&t->ended, true);
    return NULL;
}

pb_status pb_task_start(pb_task *t, pb_status (*fn)(void *self), void *self)
{
    sigset_t all, before;
    t->fn = fn;
    t->self = self;
    *t->why = 0;
    atomic_store(&t->ended, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&t->thread, NULL, work, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t->running = error == 0;
    return error ? pb_fail(PB_EIO, "no thread could be started: %s", strerror(error)) : PB_OK;
}

bool pb_task_ended(const pb_task *t) { return !t->running || atomic_load(&t->ended); }

pb_status pb_task_join(pb_task *t)
{
    if (!t->running) return PB_OK;
    pthread_join(t->thread, NULL);
    t->running = false;
    return t->status == PB_OK ? PB_OK : pb_fail(t->status, "%s", t->why);
}
