/* launch.h - starts the ranks of a job on this host, and watches them: `train --ranks N`, `bench --ranks N`.
 *
 * The calling process becomes the launcher. It listens on a TCP socket of the loopback interface, starts
 *     mpirun -q -np N --oversubscribe ... PROGRAM ARGUMENTS
 * passes the address and a random token in the variable PB_LAUNCH, and waits. Environment:
 *     PB_MPIRUN        the program in place of mpirun
 *     PB_LAUNCH_HOST   the address at which to listen, for ranks on several hosts (default: 127.0.0.1)
 *     PB_LAUNCH_PORT   the port (default: one that is free)
 * and for its ranks it sets, unless the user has set them: OMP_NUM_THREADS=1 and OMPI_MCA_mpi_yield_when_idle=1 if the
 * ranks outnumber the processors.
 *
 * Exit codes: that of the first rank that ended by itself with another one than 0; 125, the machine's, if a rank died,
 * hung, or never came; else 0. SIGINT, SIGTERM and SIGHUP reach every rank as one signal of the same number, so that it
 * stops cleanly; a second signal kills the ranks. No process is left when pb_launch returns.
 *
 * pb_launch() does all of this. A program that supervises the processes it starts by itself (bench/run) uses the parts:
 *     pb_launch_open      listens, and makes the command line and the environment of mpirun
 *     pb_start            with a function that calls pb_launch_become in the forked process
 *     pb_supervise        with pb_launch_wake as .wake, pb_launch_stop as .stop and the launch as .user
 *     pb_launch_finish    waits for the ranks, and says how the job ended */
#ifndef PB_LAUNCH_H
#define PB_LAUNCH_H
#include "launch/member.h"

typedef struct pb_launch_job {
    const char *program; /* "train" or "bench", before messages */
    int ranks;           /* at least 1 */
    double rank_timeout; /* seconds without progress after which a rank counts as hung; 0: PB_RANK_TIMEOUT */
    /* The command line of the ranks, argv[0] included, which is replaced by this executable. The strings are read when
     * mpirun starts; the array is copied. */
    const char *const *argv;
    /* More variables of the ranks, "NAME=value", in place of those of this process, ended by NULL; NULL: none. */
    const char *const *environment;
} pb_launch_job;

/* Runs the job and writes its exit code. EUNSUPPORTED: mpirun is not installed. EIO: the socket cannot be opened (the
 * port is in use), or mpirun cannot be started. EINVAL: PB_LAUNCH_PORT is not a port. */
pb_status pb_launch(const pb_launch_job *job, int *exit_code);

typedef struct pb_launch_state pb_launch_state;
/* Prepares a job; pb_launch_close() frees it, after pb_launch_finish() if mpirun was started. EIO, EINVAL as above;
 * ENOMEM. */
pb_status pb_launch_open(const pb_launch_job *job, pb_launch_state **out);
/* Becomes mpirun, in a forked process. It allocates nothing, because another thread may have held the allocator's lock
 * during the fork. */
_Noreturn void pb_launch_become(const pb_launch_state *l);
int pb_launch_wake(const pb_launch_state *l); /* see pb_monitor_wake */
void pb_launch_stop(void *launch, int sig);   /* sends the signal to every rank */
/* mpirun has ended with this status of waitpid(): waits until every rank has ended, prints what failed ranks wrote, and
 * writes the exit code of the job. EUNSUPPORTED, EIO as above: no rank ever ran. */
pb_status pb_launch_finish(pb_launch_state *l, int status, int *exit_code);
/* After pb_launch_finish: why the job was lost, such as "rank 1 on host (cpu) died: ...". "": it was not. */
const char *pb_launch_loss(const pb_launch_state *l);
/* The same for pb_monitor_behind (monitor.h): the rank for which the others waited when they were asked to stop. */
const char *pb_launch_behind(const pb_launch_state *l);
void pb_launch_close(pb_launch_state *l); /* may be NULL */
#endif
