/* worker.c - a queue of jobs and the thread that runs them. */
#include "kernels/comm/worker.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    pb_job jobs[PB_WORKER_JOBS];
    uint64_t added, ended; /* job i is in jobs[(i - 1) % PB_WORKER_JOBS] */
    int users;
    bool stop;
} q = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *work(void *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&q.lock);
    while (!q.stop || q.ended < q.added) {
        if (q.ended == q.added) {
            (void)pthread_cond_wait(&q.changed, &q.lock);
            continue;
        }
        const pb_job job = q.jobs[q.ended % PB_WORKER_JOBS];
        (void)pthread_mutex_unlock(&q.lock);
        job.run(job.comm, &job.call);
        (void)pthread_mutex_lock(&q.lock);
        q.ended++;
        (void)pthread_cond_broadcast(&q.changed);
    }
    (void)pthread_mutex_unlock(&q.lock);
    return NULL;
}

pb_status pb_worker_start(void)
{
    pb_status s = PB_OK;
    (void)pthread_mutex_lock(&q.lock);
    if (q.users == 0) {
        q.stop = false;
        if (pthread_create(&q.thread, NULL, work, NULL) != 0) s = pb_fail(PB_EIO, "no thread for communication");
    }
    q.users += s == PB_OK;
    (void)pthread_mutex_unlock(&q.lock);
    return s;
}

void pb_worker_stop(void)
{
    (void)pthread_mutex_lock(&q.lock);
    const bool last = --q.users == 0;
    q.stop = last;
    (void)pthread_cond_broadcast(&q.changed);
    (void)pthread_mutex_unlock(&q.lock);
    if (last) (void)pthread_join(q.thread, NULL);
}

uint64_t pb_worker_add(pb_job job)
{
    (void)pthread_mutex_lock(&q.lock);
    while (q.added - q.ended == PB_WORKER_JOBS) (void)pthread_cond_wait(&q.changed, &q.lock);
    q.jobs[q.added % PB_WORKER_JOBS] = job;
    const uint64_t number = ++q.added;
    (void)pthread_cond_broadcast(&q.changed);
    (void)pthread_mutex_unlock(&q.lock);
    return number;
}

void pb_worker_wait(uint64_t number)
{
    (void)pthread_mutex_lock(&q.lock);
    while (q.ended < number) (void)pthread_cond_wait(&q.changed, &q.lock);
    (void)pthread_mutex_unlock(&q.lock);
}
