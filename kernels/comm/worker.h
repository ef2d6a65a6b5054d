/* worker.h - one thread of the process that runs jobs in the order in which they were added. All MPI calls of
 * communicators run on it, so collectives overlap with computing and keep one order. */
#ifndef PB_COMM_WORKER_H
#define PB_COMM_WORKER_H
#include <stdint.h>

#include "kernels/comm/backend.h"

/* A job: a function and its arguments, copied. */
typedef struct pb_job {
    void (*run)(pb_comm *c, const pb_comm_call *call);
    pb_comm *comm;
    pb_comm_call call;
} pb_job;

/* Starts the thread if no user has yet, and ends it with the last user. */
pb_status pb_worker_start(void);
void pb_worker_stop(void);
/* Adds a job and returns its number, 1, 2, 3, ... If WORKER_JOBS are waiting, it waits for the first of them to end. */
enum { PB_WORKER_JOBS = 1024 };
uint64_t pb_worker_add(pb_job job);
/* Waits until job `number` and all before it have ended. */
void pb_worker_wait(uint64_t number);
#endif
