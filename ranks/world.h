/* world.h - the processes ("ranks") of one job: which of them this process is, and small collectives between them on
 * the host, which set up communicators (kernels/comm/comm.h) and agree on failures.
 *
 * A process is one of several ranks if it was started by
 *     mpirun or srun      Open MPI's and PMIx's variables (OMPI_COMM_WORLD_SIZE, PMIX_RANK) or SLURM_STEP_NUM_TASKS;
 *                         the world then calls MPI_Init_thread
 *     torchrun            RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; for GPUs only. Communicators of
 *                         the CPU need MPI, so there these variables alone are an error that names mpirun
 * and is the only rank otherwise. A world of one rank opens no socket and does not initialise MPI.
 *
 * The host collectives do not use MPI: every rank holds one TCP connection to rank 0 (the store). Therefore they work
 * the same way however the ranks were started, they end after a timeout with the names of the ranks that did not
 * arrive, and they notice at once when a rank has ended. All ranks call them in the same order. A world is used by one
 * thread at a time.
 *
 * After a collective has failed with EIO, the world is broken: every later call fails with the same message. */
#ifndef PB_RANKS_WORLD_H
#define PB_RANKS_WORLD_H
#include <stdbool.h>
#include <stddef.h>

#include "os/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_world pb_world; /* NULL means a world of one rank wherever a function below takes one */

typedef struct pb_world_options {
    const char *version; /* of the program, such as its commit; all ranks must have the same. NULL: not compared */
    bool mpi;            /* the communicators will be of the CPU backend: MPI is required for more than one rank */
    double timeout;      /* seconds to wait for the other ranks, here and in every collective; 0: 60 */
} pb_world_options;

/* How a rank is called in messages, and where it runs. */
typedef struct pb_world_member {
    char host[64];    /* host name */
    char machine[64]; /* names the running kernel (boot id), so that containers of one host are known as such */
    int local_rank;   /* 0.. among the ranks with the same host name, in the order of their ranks */
    int local_size;   /* number of ranks with that host name */
    int pid;
} pb_world_member;

/* Finds out how this process was started, connects to the other ranks and compares versions. *out is NULL for a single
 * rank. Fails on every rank with the same status if it fails on one: EINVAL for variables that contradict each other
 * and for versions that differ; EUNSUPPORTED if this build has no MPI; EIO for a rank that did not arrive in time. MPI
 * is initialised at most once in a process, also if worlds are opened and closed several times. */
pb_status pb_world_open(const pb_world_options *o, pb_world **out);
/* Closes the connections, without waiting for other ranks. MPI is finalised when the process ends, if no collective has
 * failed. Call it after closing the communicators. world may be NULL. */
void pb_world_close(pb_world *w);

int pb_world_rank(const pb_world *w); /* 0 for NULL */
int pb_world_size(const pb_world *w); /* 1 for NULL */
bool pb_world_has_mpi(const pb_world *w);
double pb_world_timeout(const pb_world *w); /* seconds; 60 for NULL */
const pb_world_member *pb_world_member_of(const pb_world *w, int rank);
/* The numeric address at which this rank has reached rank 0; on rank 0, and without a connection, "127.0.0.1". */
void pb_world_rank0_address(const pb_world *w, char *out, size_t n);
static inline int pb_world_local_rank(const pb_world *w) { return pb_world_member_of(w, pb_world_rank(w))->local_rank; }

/* Host collectives. `what` names the phase in messages, for example "opening the job". EIO: a rank did not call it
 * within the world's timeout, or has ended; the message names the rank and its host. EINVAL: the ranks called different
 * collectives, or with different sizes. */
pb_status pb_world_barrier(pb_world *w, const char *what);
pb_status pb_world_broadcast(pb_world *w, const char *what, int root, void *bytes, size_t n);
/* Every rank gives n bytes and gets the bytes of all ranks, in rank order: all[size][n]. */
pb_status pb_world_gather(pb_world *w, const char *what, const void *mine, size_t n, void *all);

/* Agrees on success: each rank passes the status of what it did (and, if that failed, the message is pb_error()).
 * Returns PB_OK on all ranks if all passed PB_OK. Otherwise every rank returns the status of the lowest failed rank,
 * and pb_error() on every rank is that rank's message, after "rank R on HOST: " if the world has more than one rank. So
 * all ranks end with the same exit code, and main() prints the message on rank 0 only (pb_world_speaks). */
pb_status pb_world_agree(pb_world *w, const char *what, pb_status mine);
/* True on the one rank that prints: rank 0, or a rank that found or lost no rank 0. NULL after pb_world_open has failed
 * gives the answer for that failure. */
bool pb_world_speaks(const pb_world *w);

/* Fails on every rank, with EINVAL, if `text` differs between ranks: "NAME differs: rank 0 has A, rank 3 on HOST has
 * B". For options, versions, sizes and hashes that must be equal. `text` is at most 255 bytes; longer text is cut. */
pb_status pb_world_same(pb_world *w, const char *name, const char *text);
/* Fails on every rank, with EINVAL, if two ranks of one machine use the same GPU. `bus` is the PCI address of this
 * rank's GPU (pb_device_facts.bus); "": it uses none. */
pb_status pb_world_check_devices(pb_world *w, const char *bus);
#ifdef __cplusplus
}
#endif
#endif
