/* clock_lock.h - locks the GPU's clocks while a run lasts. A separate process, the keeper, locks them and resets them
 * when the run ends. It notices the end when the run's end of a socket closes, which also happens after a SIGKILL. The
 * keeper must outlive the run and ignores signals, so it is neither started by pb_start() nor supervised. */
#ifndef PB_CLOCK_LOCK_H
#define PB_CLOCK_LOCK_H
#include <sys/types.h>

#include "bench/options/options.h"

typedef struct pb_clock_lock {
    int fd; /* socket to the keeper; -1: no clocks are locked */
    pid_t keeper;
} pb_clock_lock;
#define PB_CLOCKS_FREE ((pb_clock_lock){-1, -1})

/* Checks the option --lock-gpu-clocks. EINVAL: it is not a valid clock, or the device is not a GPU. */
pb_status pb_clock_lock_check(const pb_options *o);
/* Locks the clocks if the options ask for it; otherwise *out is PB_CLOCKS_FREE. EDEVICE, EUNSUPPORTED: the driver
 * refuses or is missing; the clocks are unchanged. */
pb_status pb_clock_lock_take(const pb_options *o, pb_clock_lock *out);
/* Waits until the keeper has reset the clocks. EDEVICE: resetting failed. */
pb_status pb_clock_lock_release(pb_clock_lock *l);
/* The main function of the keeper process (`bench run --child-clocks`). Returns its exit code. */
pb_exit pb_clock_keeper(const pb_options *o);
#endif
