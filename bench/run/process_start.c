/* process_start.c - the command line of a measuring process, and the process that executes it: alone or under
 * mpirun. */
#define _GNU_SOURCE
#include "bench/run/process_start.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/rows/rows.h"
#include "bench/run/counting.h"
#include "cli/threads.h"
#include "launch/launch.h"
#include "launch/start.h"

/* Everything is allocated before the fork: while a job runs, another thread watches its ranks, and may have held the
 * allocator's lock during the fork. */
struct pb_process_start {
    const pb_process *process;
    pb_launch_state *launch; /* NULL: one rank */
    char number[32], first[32], deadline[32], pipe[64], seed[32], threads[64];
    const char *environment[3], **argv;
};

/* Makes the command line: this program with the internal --child-* options, followed by the user's options. */
static pb_status make_command(pb_process_start *s)
{
    const pb_process *l = s->process;
    const pb_options *o = l->options;
    const char *own[] = {"bench",
                         "run",
                         "--child-dir",
                         l->dir,
                         "--child-run",
                         l->run_id,
                         "--child-machine",
                         l->machine_id,
                         "--child-process",
                         s->number,
                         "--child-seed",
                         s->seed,
                         "--child-first",
                         s->first,
                         "--child-host",
                         l->host,
                         "--child-deadline",
                         s->deadline,
                         o->ranks > 1 ? "--child-ranks-pipe" : "--child-pipe",
                         s->pipe};
    enum { OWN = sizeof own / sizeof *own };
    s->argv = calloc((size_t)o->argc + OWN + 1, sizeof *s->argv);
    if (!s->argv) return pb_fail(PB_ENOMEM, "no memory for the command line of a process");
    snprintf(s->number, sizeof s->number, "%d", l->number);
    snprintf(s->first, sizeof s->first, "%d", l->first);
    snprintf(s->deadline, sizeof s->deadline, "%.3f", l->deadline);
    snprintf(s->seed, sizeof s->seed, "%llu", (unsigned long long)l->seed);
    memcpy(s->argv, own, sizeof own);
    for (int i = 0; i < o->argc; i++) s->argv[OWN + i] = o->argv[i];
    return PB_OK;
}

/* Replaces the forked child by this program. */
static _Noreturn void become_child(const void *self, int pipe_fd)
{
    const pb_process_start *s = self;
    const long threads = s->process->options->threads;
    char number[32];
    snprintf((char *)s->pipe, sizeof s->pipe, "%d", pipe_fd); /* in the child's own copy of the memory */
    if (threads > 0) {
        snprintf(number, sizeof number, "%ld", threads);
        setenv("OMP_NUM_THREADS", number, 1);
    }
    pb_threads_set_waiting();
    pb_counting_exec(s->process->options, s->process->dir, s->argv);
    fprintf(stderr, "bench: a measuring process cannot be started: %s\n", strerror(errno));
    _exit(PB_EXIT_HARNESS);
}

/* Replaces the forked child by mpirun, which closes inherited descriptors in its ranks, but not in itself. Rank 0
 * therefore opens the pipe by its path in /proc. */
static _Noreturn void become_ranks(const void *self, int pipe_fd)
{
    const pb_process_start *s = self;
    snprintf((char *)s->pipe, sizeof s->pipe, "/proc/%d/fd/%d", (int)getpid(), pipe_fd);
    pb_launch_become(s->launch);
}

static pb_status open_launch(pb_process_start *s)
{
    const pb_options *o = s->process->options;
    int n = 0;
    snprintf(s->threads, sizeof s->threads, "OMP_NUM_THREADS=%ld", o->threads);
    if (o->threads > 0) s->environment[n++] = s->threads;
    s->environment[n] = pb_threads_waiting();
    /* The supervisor judges how long a case may be silent, so the monitor looks for dead ranks only. */
    const pb_launch_job job = {"bench", (int)o->ranks, 1e6, s->argv, s->environment};
    return pb_launch_open(&job, &s->launch);
}

static void free_all(pb_process_start *s)
{
    pb_launch_close(s->launch);
    free(s->argv);
    free(s);
}

pb_status pb_process_begin(const pb_process *l, pb_child *child, pb_supervision *rules, pb_process_start **out)
{
    pb_process_start *s = calloc(1, sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "no memory for the command line of a process");
    s->process = l;
    pb_status e = make_command(s);
    if (e == PB_OK && l->options->ranks > 1) e = open_launch(s);
    if (e == PB_OK) e = pb_start(s->launch ? become_ranks : become_child, s, &child->pid, &child->pipe);
    if (e == PB_OK && s->launch)
        rules->wake = pb_launch_wake(s->launch), rules->stop = pb_launch_stop, rules->user = s->launch;
    if (e == PB_OK) *out = s;
    else free_all(s);
    return e;
}

pb_status pb_process_finish(pb_process_start *start, pb_child *child, char loss[PB_LOSS_TEXT])
{
    pb_status e = PB_OK;
    int code = 0;
    close(child->pipe);
    *loss = 0;
    if (start->launch) {
        e = pb_launch_finish(start->launch, child->status, &code);
        snprintf(loss, PB_LOSS_TEXT, "%s",
                 child->hung ? pb_launch_behind(start->launch) : pb_launch_loss(start->launch));
        child->killed &= child->hung || child->late; /* else the monitor ended mpirun after the ranks had ended */
        child->status = child->killed ? child->status : W_EXITCODE(code, 0);
    }
    free_all(start);
    return e;
}
