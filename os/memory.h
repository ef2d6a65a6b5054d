/* memory.h - memory of this process as the kernel counts it: the peak so far, and how much more it may allocate. */
#ifndef PB_MEMORY_H
#define PB_MEMORY_H
#include "os/status.h"

/* Resets the peak resident size to the current one, so that memory of earlier cases does not count. */
pb_status pb_memory_reset_peak(void);
pb_status pb_memory_peak(double *bytes); /* since the last reset; EIO: /proc does not report it */
/* Bytes that this process can still allocate: the minimum of the machine's available memory plus free swap, the limit
 * left in its cgroup (v2) and in the ancestors of that, and the limit left by RLIMIT_AS. INFINITY: none of them is
 * known. */
double pb_memory_available(void);
/* Bytes left by the cgroup (v2) that the file `cgroup` names (see /proc/self/cgroup) and by its ancestors up to `root`,
 * the folder where the hierarchy is mounted: the least of them. INFINITY: no limit. */
double pb_memory_left_in_groups(const char *cgroup, const char *root);
#endif
