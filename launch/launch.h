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
 * stops cleanly; a second signal kills the ranks. No process is left when pb_launch returns. */
#ifndef PB_LAUNCH_H
#define PB_LAUNCH_H
#include "launch/member.h"

typedef struct pb_launch_job {
    const char *program; /* "train" or "bench", before messages */
    int ranks;           /* at least 1 */
    double rank_timeout; /* seconds without progress after which a rank counts as hung; 0: PB_RANK_TIMEOUT */
    char **argv;         /* the command line of the ranks, argv[0] included, which is replaced by this executable */
} pb_launch_job;

/* Runs the job and writes its exit code. EUNSUPPORTED: mpirun is not installed. EIO: the socket cannot be opened (the
 * port is in use), or mpirun cannot be started. EINVAL: PB_LAUNCH_PORT is not a port. */
pb_status pb_launch(const pb_launch_job *job, int *exit_code);
#endif
