/* supervise.h - following a launch from outside: what it says, how long it may be silent, how it ends.
 *
 * A launch that is silent for longer than its limit, or still there at the deadline, is asked to end by SIGTERM and
 * killed PB_GRACE seconds later. One that SIGKILL does not end within PB_GRACE (it is in a call of a driver that never
 * returns) is left behind: nothing here waits for ever. */
#ifndef PB_SUPERVISE_H
#define PB_SUPERVISE_H
#include <stdbool.h>
#include <sys/types.h>

#define PB_GRACE 5.0 /* seconds: several samples of most cases, and less than the budget keeps in reserve */

typedef struct pb_watch {
    pid_t pid;
    int pipe;            /* what it says (pulse.h) */
    int first, n;        /* places in the order: the next case; how many there are. Place n: the conclusions */
    const double *limit; /* [n + 1] seconds of silence that a place may last; [n] holds before the first case too */
    double deadline;     /* as pb_clock_seconds counts; 0: none */
    void (*begins)(void *user, int at); /* a case begins */
    void *user;
} pb_watch;

typedef struct pb_watched {
    pid_t pid;
    int at;         /* the last place that began; first - 1: none */
    double took;    /* seconds since it began, or since the start */
    double silent;  /* of these the last ones, in which it said nothing */
    bool hung;      /* it was silent for too long and told to end */
    bool late;      /* it ended early, or was told to, so as to keep the deadline */
    bool no_memory; /* a case lacked memory */
    bool stuck;     /* it was killed and is still there; `status` says nothing */
    bool killed;    /* by this process, for whatever reason */
    int status;     /* as of waitpid */
} pb_watched;

/* Until the launch has ended. SIGINT and SIGTERM of this process (os/interrupt.h) go on to it: the first as it is, the
 * second as SIGKILL. Does not close the pipe. */
void pb_watch_launch(const pb_watch *w, pb_watched *out);
#endif
