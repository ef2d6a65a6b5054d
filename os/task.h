/* task.h - a task: one call of a function on a thread of its own, while the caller continues. */
#ifndef PB_TASK_H
#define PB_TASK_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "os/status.h"

/* Initialise with {0}: no task runs. One thread at a time uses a pb_task. */
typedef struct pb_task {
    pthread_t thread;
    bool running; /* started and not yet joined */
    atomic_bool ended;
    pb_status (*fn)(void *self);
    void *self;
    pb_status status;
    char why[512]; /* the message of a failure, which pb_error() keeps per thread */
} pb_task;

/* Calls fn(self) on a new thread, in which all signals are blocked, so that they still interrupt the caller. The task
 * that ran before has been joined. EIO: no thread could be started. */
pb_status pb_task_start(pb_task *t, pb_status (*fn)(void *self), void *self);
/* True if the function has returned, or if no task runs. Does not wait. */
bool pb_task_ended(const pb_task *t);
/* Waits for the function and returns its status; pb_error() is then its message. PB_OK if no task runs. */
pb_status pb_task_join(pb_task *t);
#endif
