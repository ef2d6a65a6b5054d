/* memory.h - returns the peak resident memory of this process, and how much more memory it can allocate. */
#ifndef PB_MEMORY_H
#define PB_MEMORY_H
#include "os/status.h"

/* Resets the peak resident size to the current one, so that memory of earlier cases does not count. */
pb_status pb_memory_reset_peak(void);
pb_status pb_memory_peak(double *bytes); /* peak resident size since the last reset; EIO: /proc does not report it */
/* Bytes that this process can still allocate: the minimum of the machine's available memory plus free swap, the limit
 * left in its cgroup (v2) and in that cgroup's ancestors, and the limit left by RLIMIT_AS. INFINITY: none of these
 * limits is known. */
double pb_memory_available(void);
/* The minimum of the bytes that a cgroup (v2) and its ancestors still allow. `cgroup`: a file that names the group,
 * such as /proc/self/cgroup; `root`: the folder where the cgroup hierarchy is mounted. INFINITY: no limit. */
double pb_memory_left_in_groups(const char *cgroup, const char *root);
#endif
