/* clock_lock.h - locked GPU clocks for as long as a run lasts. A process of its own, the keeper, locks them and resets
 * them as soon as the run ends in whatever way, a SIGKILL included: it sees its end of a socket close. */
#ifndef PB_CLOCK_LOCK_H
#define PB_CLOCK_LOCK_H
#include <sys/types.h>

#include "bench/options/options.h"

typedef struct pb_clock_lock {
    int fd; /* to the keeper; -1: nothing is locked */
    pid_t keeper;
} pb_clock_lock;
#define PB_CLOCKS_FREE ((pb_clock_lock){-1, -1})

/* EINVAL: o->lock_gpu_clocks is no clock, or the device no GPU. */
pb_status pb_clock_lock_check(const pb_options *o);
/* Locks them where the options say so. EDEVICE, EUNSUPPORTED: the driver refuses, or there is none; nothing changed. */
pb_status pb_clock_lock_take(const pb_options *o, pb_clock_lock *out);
/* Waits until they are reset. EDEVICE: they could not be. */
pb_status pb_clock_lock_release(pb_clock_lock *l);
/* What `bench run` does when it is the keeper. */
pb_exit pb_clock_keeper(const pb_options *o);
#endif
