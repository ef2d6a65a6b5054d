/* mpi_none.c - replaces mpi.c in a build without MPI. */
#include "ranks/mpi.h"

bool pb_mpi_built(void) { return false; }

pb_status pb_mpi_start(int *rank, int *size)
{
    (void)rank, (void)size;
    return pb_fail(PB_EUNSUPPORTED, "this build has no MPI, so it runs one rank only: install libopenmpi-dev and "
                                    "openmpi-bin (scripts/setup) and configure with -DPB_MPI=ON");
}

void pb_mpi_library(char *out, size_t n)
{
    if (n) *out = 0;
}

pb_status pb_mpi_broadcast(void *bytes, size_t n)
{
    (void)bytes, (void)n;
    return pb_mpi_start(NULL, NULL);
}

void pb_mpi_give_up(void) {}
