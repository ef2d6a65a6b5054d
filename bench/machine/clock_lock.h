/* clock_lock.h - locks the GPU's clocks while a run lasts. A separate process, the keeper, locks them and resets them
 * when the run ends. It notices the end when the run's end of a socket closes, which also happens after a SIGKILL. The
 * keeper must outlive the run and ignores signals, so it is neither started by pb_start() nor supervised. */
#ifndef PB_CLOCK_LOCK_H
#define PB_CLOCK_LOCK_H
#include <sys/types.h>

#include "bench/rows/rows.h"
#include "kernels/engine/ctx.h"

typedef struct pb_clock_lock {
    int fd; /* socket to the keeper; -1: no clocks are locked */
    pid_t keeper;
} pb_clock_lock;
#define PB_CLOCKS_FREE ((pb_clock_lock){-1, -1})

/* Checks the argument `clocks` of --lock-gpu-clocks; NULL: the option is not given. EINVAL: it is not a valid clock, or
 * `device`, the name of a backend, is not a GPU. */
pb_status pb_clock_lock_check(const char *clocks, const char *device);
/* Locks the clocks; with clocks = NULL it locks none, and *out is PB_CLOCKS_FREE. EDEVICE, EUNSUPPORTED: the driver
 * refuses or is missing; the clocks are unchanged. */
pb_status pb_clock_lock_take(const char *clocks, const char *device, pb_clock_lock *out);
/* Waits until the keeper has reset the clocks. EDEVICE: resetting failed. */
pb_status pb_clock_lock_release(pb_clock_lock *l);
/* The main function of the keeper process (`bench run --child-clocks`). fd: its end of the socket.
 * Returns its exit code. */
pb_exit pb_clock_keeper(const char *clocks, const char *device, int fd);
#endif
