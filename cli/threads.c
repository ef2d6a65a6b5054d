/* threads.c - sets OpenMP's environment variables: GOMP_SPINCOUNT (how long a thread spins at a barrier) and
 * OMP_NUM_THREADS (at most the number of processors). */
#include "cli/threads.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

/* GOMP_SPINCOUNT: iterations that an OpenMP thread spins at a barrier before it sleeps. This number takes some tens of
 * microseconds, which is longer than any barrier on an idle machine. */
#define SPIN "20000"

void pb_threads_set_waiting(void)
{
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", SPIN, 0);
}

const char *pb_threads_waiting(void)
{
    return getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ? NULL : "GOMP_SPINCOUNT=" SPIN;
}

void pb_threads_wait_briefly(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    /* AT_BASE is 0 if the user ran the dynamic loader with the program as its argument. /proc/self/exe is then the
     * loader, so the program cannot be executed again. */
    if (!getauxval(AT_BASE)) return;
    pb_threads_set_waiting();
    if (getenv("GOMP_SPINCOUNT")) execv("/proc/self/exe", argv);
}

void pb_threads_limit(const char *program)
{
    const int asked = omp_get_max_threads(), most = omp_get_num_procs();
    char text[16];
    if (asked <= most) return;
    fprintf(
        stderr,
        "%s: OMP_NUM_THREADS asks for %d threads, but this process may use %d processor%s only: it runs %d thread%s\n",
        program, asked, most, most == 1 ? "" : "s", most, most == 1 ? "" : "s");
    snprintf(text, sizeof text, "%d", most);
    setenv("OMP_NUM_THREADS", text, 1);
    omp_set_num_threads(most);
}
