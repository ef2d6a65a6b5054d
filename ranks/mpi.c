/* mpi.c - initialises MPI, and finalises it when the process ends. */
#include "ranks/mpi.h"

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool given_up;

bool pb_mpi_built(void) { return true; }
void pb_mpi_give_up(void) { atomic_store(&given_up, true); }

static void finalise(void)
{
    int done = 1;
    if (atomic_load(&given_up) || MPI_Finalized(&done) != MPI_SUCCESS || done) return;
    (void)MPI_Finalize();
}

static pb_status failed(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    (void)MPI_Error_string(code, text, &n);
    return pb_fail(PB_EDEVICE, "mpi: %s failed: %s", call, text);
}

/* Requests that threads call MPI one at a time: the thread that opens the world, and after it the worker thread of
 * kernels/comm. */
static pb_status initialise(void)
{
    int level = 0;
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS) return failed(code, "MPI_Init_thread");
    if (atexit(finalise) != 0) return pb_fail(PB_EIO, "mpi: atexit failed");
    if (level < MPI_THREAD_SERIALIZED)
        return pb_fail(PB_EUNSUPPORTED, "mpi: this MPI library supports no calls from several threads (level %d)",
                       level);
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return PB_OK;
}

pb_status pb_mpi_start(int *rank, int *size)
{
    int begun = 0;
    (void)MPI_Initialized(&begun);
    if (!begun) PB_TRY(initialise());
    if (MPI_Comm_rank(MPI_COMM_WORLD, rank) != MPI_SUCCESS || MPI_Comm_size(MPI_COMM_WORLD, size) != MPI_SUCCESS)
        return pb_fail(PB_EDEVICE, "mpi: MPI_COMM_WORLD has no rank or size");
    return PB_OK;
}

void pb_mpi_library(char *out, size_t n)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(text, &length) == MPI_SUCCESS)
        snprintf(out, n, "%.*s", (int)strcspn(text, ",\n"), text);
}

pb_status pb_mpi_broadcast(void *bytes, size_t n)
{
    if (n > INT_MAX) return pb_fail(PB_EINVAL, "mpi: a broadcast of %zu bytes is too large", n);
    const int code = MPI_Bcast(bytes, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD);
    return code == MPI_SUCCESS ? PB_OK : failed(code, "MPI_Bcast");
}
