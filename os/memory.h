/* memory.h - the largest resident set of this process, as the kernel counts it. */
#ifndef PB_MEMORY_H
#define PB_MEMORY_H
#include "os/status.h"

/* Starts a new maximum at the present size, so that an earlier case in the process does not count. */
pb_status pb_memory_reset_peak(void);
pb_status pb_memory_peak(double *bytes); /* since the last reset; EIO where /proc does not say */
#endif
