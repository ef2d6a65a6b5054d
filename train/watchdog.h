/* watchdog.h - ends a training process that hangs. A thread reads this process's progress (os/where.h): phases of steps,
 * replayed graphs, collectives, batches of evaluations, and checkpoints. If it stands still for the given time, the
 * thread prints one line that says where, and ends the process at once with exit code 125, as `train` does for every
 * failure of the machine. Checkpoints get their names when they are complete, so the last one stays valid.
 *
 * Nothing is rescued, because the thread that trains may hold any lock. Of several ranks, the monitor (launch/monitor.h)
 * sees that the connection of this one closed, and ends the job. */
#ifndef PB_WATCHDOG_H
#define PB_WATCHDOG_H
#include <pthread.h>
#include <stdbool.h>

#include "os/status.h"

typedef struct pb_watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* `stop` was set */
    double seconds;      /* without progress; 0: no thread runs */
    bool stop;           /* protected by `lock` */
} pb_watchdog;

/* Starts to watch. seconds 0: does nothing. EIO: no thread could be started. */
pb_status pb_watchdog_start(pb_watchdog *w, double seconds);
/* Stops watching, and waits for the thread. {0}: does nothing. */
void pb_watchdog_stop(pb_watchdog *w);
#endif
