/* memory.h - the memory that this process has taken, and that it could still take, as the kernel counts them. */
#ifndef PB_MEMORY_H
#define PB_MEMORY_H
#include "os/status.h"

/* Starts a new maximum at the present size, so that an earlier case in the process does not count. */
pb_status pb_memory_reset_peak(void);
pb_status pb_memory_peak(double *bytes); /* since the last reset; EIO where /proc does not say */
/* What this process can still take: the least of what the machine has available (with free swap), what its cgroup (v2)
 * allows, and what RLIMIT_AS leaves. INFINITY where none of them is known. */
double pb_memory_available(void);
#endif
