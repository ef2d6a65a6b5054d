/* start.h - reads from environment variables how this process was started: alone, by mpirun or srun, or with the
 * variables of torchrun. Used by world.c; the environment is a parameter, for tests. */
#ifndef PB_RANKS_START_H
#define PB_RANKS_START_H
#include <stdbool.h>

#include "os/status.h"

typedef enum pb_start_kind {
    PB_START_ALONE, /* one rank */
    PB_START_MPI,   /* MPI_Init_thread says which rank this is */
    PB_START_STORE  /* rank 0 listens at address:port */
} pb_start_kind;

typedef struct pb_start {
    pb_start_kind kind;
    int size;              /* ranks of the job */
    int rank;              /* PB_START_STORE only */
    const char *by;        /* for messages: "mpirun", "srun" or "WORLD_SIZE" */
    const char *address;   /* PB_START_STORE: MASTER_ADDR */
    int port;              /* PB_START_STORE: MASTER_PORT */
    bool port_is_occupied; /* torchrun itself listens at MASTER_PORT, so rank 0 uses a later one */
} pb_start;

/* `get` is getenv or a stand-in; its strings must outlive *out. mpi: communicators of the CPU will be opened, which
 * torchrun's variables cannot start. EINVAL: variables that are missing, no numbers, or contradict each other. */
pb_status pb_start_read(const char *(*get)(const char *name), bool mpi, pb_start *out);
/* The rank that the starting program gave this process, as far as the variables say; 0 otherwise. For deciding who
 * prints, before the ranks are connected. */
int pb_start_rank(const char *(*get)(const char *name));
#endif
