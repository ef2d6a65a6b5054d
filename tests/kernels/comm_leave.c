/* comm_leave.c - a program for comm_leave_test.sh: a collective that one rank never calls, and a process that ends
 * after it. Its exit code is 7 if all went well.
 *
 * usage: mpirun -np N comm_leave abort     rank 0 calls nothing; a thread of each other rank aborts its communicator
 *        comm_leave stuck                  freeing graphs never returns */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/comm/comm.h"

enum { AS_EXPECTED = 7 };

/* Waits until the collective has begun. */
static void *abort_soon(void *comm)
{
    char text[80] = "";
    while (!text[0]) {
        (void)usleep(20000);
        pb_comm_current(comm, text, sizeof text);
    }
    fprintf(stderr, "in %s\n", text);
    pb_comm_abort(comm);
    return NULL;
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, pb_error());
    _exit(1);
}

static int run_abort(void)
{
    float x[4] = {0};
    pb_ctx ctx;
    pb_world *w;
    pb_comm *c;
    pthread_t thread;
    if (pb_world_open(&(pb_world_options){.mpi = true, .timeout = 30}, &w) != PB_OK) return failed("world");
    if (pb_ctx_open(&ctx, PB_CPU, 0) != PB_OK) return failed("context");
    if (pb_comm_open(w, &ctx, "dp", 0, 0, &c) != PB_OK) return failed("communicator");
    const pb_comm_all_reduce_args a = {.comm = c, .x = x, .y = x, .count = 4, .overlap = true};
    if (pb_world_rank(w) > 0) {
        if (pthread_create(&thread, NULL, abort_soon, c) != 0) return failed("thread");
        if (pb_comm_all_reduce(&ctx, &a) != PB_OK) return failed("all_reduce");
        if (pb_comm_wait(&ctx, &(pb_comm_wait_args){c}) != PB_EDEVICE) return failed("wait");
        fprintf(stderr, "%s\n", pb_error());
        if (pb_comm_all_reduce(&ctx, &a) != PB_EDEVICE) return failed("a later call");
        (void)pthread_join(thread, NULL);
    }
    /* No rank ends before the others have seen the abort: mpirun would end them. */
    if (pb_world_barrier(w, "the end") != PB_OK) return failed("barrier");
    pb_comm_abandon(&c, 1, NULL, NULL, AS_EXPECTED);
}

static void never_return(void *self)
{
    (void)self;
    for (;;) (void)sleep(1000);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "abort") == 0) return run_abort();
    if (argc == 2 && strcmp(argv[1], "stuck") == 0) pb_comm_abandon(NULL, 0, never_return, NULL, AS_EXPECTED);
    return 2;
}
