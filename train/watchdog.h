/* watchdog.h - ends a training process that hangs. A thread reads this process's progress (os/where.h): phases of
 * steps, replayed graphs, collectives, batches of evaluations, and checkpoints. After the given time without progress,
 * the thread prints one line with step, phase and collective, and ends the process at once with exit code 125. Time in
 * which the process is stopped does not count. Checkpoints get their names when they are complete, so those that have
 * one stay valid.
 *
 * Nothing else is saved or closed, because the thread that trains may hold any lock. Of several ranks, the monitor
 * (launch/monitor.h) sees that the connection of this one closed, and ends the job. */
#ifndef PB_WATCHDOG_H
#define PB_WATCHDOG_H
#include "os/task.h"

typedef struct pb_watchdog {
    pb_task task;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* signals that `stop` was set */
    double seconds;      /* the longest time without progress; 0: not watching */
    bool stop;           /* protected by `lock` */
} pb_watchdog;

/* Starts to watch. seconds 0: does nothing. EIO: no thread could be started. */
pb_status pb_watchdog_start(pb_watchdog *w, double seconds);
/* Stops watching, and waits for the thread. Does nothing if it is not watching, as with {0}. */
void pb_watchdog_stop(pb_watchdog *w);
#endif
