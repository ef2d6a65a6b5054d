/* mpi.h - initialises MPI for the world. mpi_none.c replaces mpi.c in a build without MPI. */
#ifndef PB_RANKS_MPI_H
#define PB_RANKS_MPI_H
#include <stdbool.h>
#include <stddef.h>

#include "os/status.h"

bool pb_mpi_built(void);
/* Calls MPI_Init_thread with MPI_THREAD_SERIALIZED, once in a process, and returns this process's place in
 * MPI_COMM_WORLD. MPI_Finalize is called when the process ends, unless pb_mpi_give_up was called. EUNSUPPORTED: not in
 * this build, or the library does not support threads. */
pb_status pb_mpi_start(int *rank, int *size);
/* Writes the first part of what the library says of itself, such as "Open MPI v4.1.4". Needs no pb_mpi_start. */
void pb_mpi_library(char *out, size_t n);
/* Rank 0's bytes reach all ranks. */
pb_status pb_mpi_broadcast(void *bytes, size_t n);
/* After a failure other ranks may be gone, and MPI_Finalize would wait for them: the process ends without it. Any
 * thread may call it. */
void pb_mpi_give_up(void);
#endif
