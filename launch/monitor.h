/* monitor.h - watches the ranks of a job: a thread that listens on a TCP socket, reads the heartbeats of the ranks, and
 * names on stderr, in one line each, a rank that is
 *     dead     its connection closed although it did not say that it ends, or it was silent for 10 s (or the timeout
 *              for ranks, if that is shorter)
 *     hung     another rank has waited in a collective for the timeout, and this one made no progress for as long and
 *              has entered fewer collectives, or is in none: it is the one for which the others wait. Not while a
 *              heartbeat is overdue
 *     ended    it ended with another exit code than 0, and others still run the timeout later (10 s, if that is shorter)
 *     lagging  in three steps running, a phase took more than twice the median over the ranks; only reported
 * A dead or hung rank ends the job: all ranks hear that it is lost; on this host a dead or hung rank gets SIGKILL at
 * once, the others PB_RANK_GRACE + 1 seconds later, if they have not ended. Two seconds later the starter is ended,
 * which kills what is left on other hosts. */
#ifndef PB_MONITOR_H
#define PB_MONITOR_H
#include <stdbool.h>

#include "launch/member.h"

typedef struct pb_monitor pb_monitor;
typedef struct pb_monitor_options {
    const char *program; /* before messages */
    const char *listen;  /* address at which to listen; NULL: all interfaces */
    const char *given;   /* address that ranks get; NULL: `listen` */
    int port;            /* 0: any */
    int size;            /* ranks of the job */
    double timeout;      /* seconds, as --rank-timeout */
    int self;            /* this process is that rank, and never gets a signal; -1: it is none */
} pb_monitor_options;

/* Starts the thread. EIO: the socket cannot be opened; the message names the port. EINVAL: `listen` is no address. */
pb_status pb_monitor_open(const pb_monitor_options *o, pb_monitor **out);
/* The address for pb_launch_join. */
void pb_monitor_address(const pb_monitor *m, char out[PB_LAUNCH_ADDRESS]);
/* Asks every rank to stop cleanly, with this signal. */
void pb_monitor_stop(pb_monitor *m, int sig);
/* A descriptor that becomes readable 3 seconds after every rank has ended or can only be ended by mpirun, unless mpirun
 * ends before. */
int pb_monitor_wake(const pb_monitor *m);
/* The program that started the ranks has ended: ranks that are still connected 10 seconds later have lost their job.
 * Waits until all ranks have ended, and returns the job's exit code: see launch.h. *joined: how many ranks ever
 * connected. */
int pb_monitor_finish(pb_monitor *m, int *joined);
/* True if rank r was lost, or ended with another exit code than 0. After pb_monitor_finish. */
bool pb_monitor_failed(const pb_monitor *m, int r);
/* Why the job was lost: the text that names the lost rank. "": it was not lost. After pb_monitor_finish. */
const char *pb_monitor_loss(const pb_monitor *m);
/* For which rank the others waited when the ranks were asked to stop: "the others wait for rank 1 on host (cpu), ...",
 * or "all ranks wait in the same collective: rank 0 on ...". "": no rank waited, or nothing asked them to stop. After
 * pb_monitor_finish. */
const char *pb_monitor_behind(const pb_monitor *m);
void pb_monitor_close(pb_monitor *m); /* may be NULL */
#endif
