/* host_state.h - what the kernel says of the host while it measures: load, clocks, what was taken away. */
#ifndef PB_HOST_STATE_H
#define PB_HOST_STATE_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Figures are NaN, and text is "", where the kernel does not say. Those named `_total` count since boot. */
typedef struct pb_host_state {
    double load, cpus, usable_cpus, nodes;      /* of the last minute; online; those this process may use; NUMA nodes */
    double steal_total_s, busy_total_s;         /* CPU seconds that a hypervisor gave to others, and all but idle */
    double cpu_hz_least, cpu_hz_most;           /* over CPUs, now */
    double throttle_total;                      /* thermal events of cores and packages */
    double quota_cpus, quota_throttled_total_s; /* of the control group; infinite: no quota */
    double swap_used, swap_moves_total;         /* bytes; pages in and out */
    double turbo, smt, aslr, perf_paranoid, numa_balancing; /* as the kernel's switches have them */
    double virtual;                                         /* 1: under a hypervisor */
    char governor[64], clocksource[64];
    bool bound; /* memory of this process comes from one NUMA node */
} pb_host_state;

/* `root`: in front of /proc and /sys, "" but in tests. */
pb_host_state pb_host_read(const char *root);
/* The part that changes in a launch. The caller frees it; NULL: no memory. */
json_t *pb_host_state_json(const pb_host_state *s);

/* clock_gettime: the median cost of a call, and the least step that it shows, in seconds. */
typedef struct pb_timer_facts {
    double cost, step;
} pb_timer_facts;
pb_timer_facts pb_timer_measure(void);
#endif
