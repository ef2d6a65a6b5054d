/* supervise.h - supervises a measuring process: reads its heartbeat, limits its silence, and reports how it ended.
 *
 * A process that is silent for longer than its limit, or still running at the deadline, gets SIGTERM, and SIGKILL
 * PB_GRACE seconds later, or at the end of the budget if that is earlier. A process that survives SIGKILL for PB_GRACE
 * seconds, because it is inside a driver call that never returns, is abandoned. The supervising process therefore never
 * blocks forever. */
#ifndef PB_SUPERVISE_H
#define PB_SUPERVISE_H
#include <stdbool.h>
#include <sys/types.h>

#define PB_GRACE 5.0 /* seconds: enough to finish the current sample of most cases and to clean up */

typedef struct pb_watch {
    pid_t pid;
    int pipe; /* read end of the heartbeat pipe (heartbeat.h) */
    /* indices in the order: the first case to measure; the number of cases. Index n means the suite's conclusions */
    int first, n;
    /* [n + 1], seconds of silence allowed per case; [n] is for the conclusions and for the time before the first
     * case */
    const double *limit;
    double deadline; /* when the process gets SIGTERM, on pb_clock_seconds(); 0: never */
    double end;      /* when it gets SIGKILL, even within PB_GRACE of SIGTERM; 0: not earlier than that */
    void (*begins)(void *user, int at); /* called when case `at` begins */
    void *user;
} pb_watch;

typedef struct pb_watched {
    pid_t pid;
    int at;         /* index of the last case begun; first - 1: none */
    double took;    /* seconds since that case began, or since the start */
    double silent;  /* seconds since the last byte received */
    bool hung;      /* it was silent for too long and got SIGTERM */
    bool late;      /* it ended early because of the deadline, by itself or by SIGTERM */
    bool no_memory; /* a case ran out of memory */
    bool stuck;     /* it survived SIGKILL; `status` is not set */
    bool killed;    /* this process sent SIGKILL, for any reason */
    int status;     /* exit status as of waitpid() */
} pb_watched;

/* Returns when the process has ended or was abandoned. The first SIGINT, SIGTERM or SIGHUP of this process
 * (os/interrupt.h) is forwarded unchanged, every further one as SIGKILL. Does not close the pipe. */
void pb_watch_process(const pb_watch *w, pb_watched *out);
#endif
