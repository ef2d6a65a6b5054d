/* cpu_counters.h - counts the events of a metric group on a CPU, in the calling thread, by perf_event_open(2). */
#ifndef PB_CPU_COUNTERS_H
#define PB_CPU_COUNTERS_H
#include <stdint.h>

#include "profiles/groups.h"

typedef struct pb_cpu_counters {
    int events, fd[PB_GROUP_EVENTS]; /* the first leads the group: all count at the same time, or none does */
    uint64_t wanted, used;           /* nanoseconds before the call: counters enabled, and counting */
} pb_cpu_counters;

/* EINVAL: cpu_events.def lacks an event of the group. EUNSUPPORTED: the system or the machine refuses one; the message
 * says why. After an error nothing is open. */
pb_status pb_cpu_counters_open(const pb_counter_group *g, pb_cpu_counters *out);
void pb_cpu_counters_close(pb_cpu_counters *c);

enum { PB_COUNTS_WHY = 160 };
/* Count what the calling thread does between the two calls: values[events]. If other users of the counters took them
 * away for a part of the time, all values are NaN, and why says so: they are never scaled. EDEVICE: a system call
 * failed. */
pb_status pb_cpu_counters_begin(pb_cpu_counters *c);
pb_status pb_cpu_counters_end(pb_cpu_counters *c, double *values, char why[PB_COUNTS_WHY]);

/* The counts that pb_cpu_counters_end() makes of raw[3 + n], which read(2) returns for a group of n events
 * (perf_event_open(2)). */
void pb_cpu_counters_take(const uint64_t *raw, int n, double *values, char why[PB_COUNTS_WHY]);
#endif
