/* supervise.h - supervises child processes: forwards signals to them, limits how long they run and how long they are
 * silent, and reports how they ended.
 *
 * A child was started by pb_start() (start.h) and is connected to this process by a pipe, which is one of two kinds:
 *   heartbeat pipe     the child writes heartbeats (heartbeat.h). It has ended when waitpid() says so.
 *   end-of-file pipe   nothing is written to it. The child has ended when it and every process that inherited its end
 *                      of the pipe have ended, so that none of them measures any longer. After a SIGKILL,
 *                      pb_supervise() waits only for the child itself: the signal does not reach the processes that the
 *                      child started, and they may keep running.
 *
 * What happens, to each child that has not ended:
 *   the first SIGINT, SIGTERM or SIGHUP of this process (os/interrupt.h)   it is forwarded
 *   every further one                                                      the child gets SIGKILL
 *   the child is silent for longer than its limit, or the deadline passes  it gets SIGTERM
 *   it runs `grace` seconds after that SIGTERM, or at `end`                it gets SIGKILL
 *   it survives SIGKILL for `grace` seconds                                it is abandoned, where the caller allows it
 * A process survives SIGKILL while it is inside a driver call that never returns. A caller that abandons such a process
 * therefore never blocks forever. A stopped child (SIGSTOP) is silent; SIGKILL ends it. */
#ifndef PB_SUPERVISE_H
#define PB_SUPERVISE_H
#include <stdbool.h>
#include <sys/types.h>

#define PB_GRACE 5.0 /* seconds: enough to finish the current sample of most cases and to clean up */

enum { PB_CHILDREN = 2 }; /* the most children that one call of pb_supervise() handles */

/* The cases of a child with a heartbeat pipe. */
typedef struct pb_child_cases {
    /* first: index of the first case to measure; n: number of cases, and the index of the suite's conclusions */
    int first, n;
    /* [n + 1], seconds of silence allowed per case; [n] is for the conclusions and for the time before the first
     * case */
    const double *limit;
    void (*begins)(void *user, int at); /* called when case `at` begins */
    void *user;
} pb_child_cases;

typedef struct pb_child {
    /* Set by the caller. */
    pid_t pid;
    int pipe;                    /* read end, which the caller closes after pb_supervise() */
    const pb_child_cases *cases; /* NULL: `pipe` is an end-of-file pipe, and silence has no limit */
    /* Set by pb_supervise(). */
    int at;         /* index of the last case begun; first - 1: none */
    double took;    /* seconds since that case began, or since the start of pb_supervise() */
    double silent;  /* seconds since the last byte received */
    bool hung;      /* it was silent for too long and got SIGTERM */
    bool late;      /* the deadline ended it, by itself (PB_SAYS_OUT_OF_TIME) or by SIGTERM */
    bool no_memory; /* a case ran out of memory */
    int disturbed;  /* measurements that said PB_SAYS_DISTURBED */
    bool signalled; /* a signal that this process received was forwarded to it */
    bool killed;    /* this process sent SIGKILL, for any reason */
    bool abandoned; /* it survived SIGKILL; `status` is not set */
    int status;     /* exit status as of waitpid() */
} pb_child;

typedef struct pb_supervision {
    double deadline; /* when children get SIGTERM, on pb_clock_seconds(); 0: never */
    double end;      /* when children get SIGKILL even if `grace` after SIGTERM is not over; 0: never before that */
    double grace;    /* seconds */
    int forward;     /* signal sent to the children when this process receives its first signal; 0: the received one */
    int wake;        /* a descriptor: once it is readable, every child gets SIGKILL; 0: none */
    /* Called in place of sending a child its first signal, or the SIGTERM of a limit; NULL: it is sent. */
    void (*stop)(void *user, int sig);
    void *user;
    bool abandon; /* a child that survives SIGKILL is abandoned; false: wait for it */
} pb_supervision;

/* Returns when each of the n <= PB_CHILDREN children has ended, and was reaped, or was abandoned. The first three
 * members of each child are input, the others output. Call pb_interrupt_watch() before. There are no errors: what went
 * wrong is in *child. */
void pb_supervise(const pb_supervision *s, pb_child *child, int n);
/* Sends SIGKILL to n children, for a caller that could not start all of them. Reap them with pb_supervise(). */
void pb_kill_children(const pb_child *child, int n);
#endif
