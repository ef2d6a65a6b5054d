/* host_state.h - reads the state of the host from the kernel: load, clocks, and CPU time taken by other machines. */
#ifndef PB_HOST_STATE_H
#define PB_HOST_STATE_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A number is NaN and a text is "" if the kernel does not report it. Members named `_total` count since boot. */
typedef struct pb_host_state {
    double load, cpus, usable_cpus, nodes; /* load of the last minute; CPUs online; CPUs that this process may use;
                                              NUMA nodes */
    double steal_total_s, busy_total_s;    /* CPU seconds that the hypervisor gave to other machines; all CPU seconds
                                              except idle and waiting for I/O */
    double usable_steal_total_s, usable_busy_total_s; /* the same of the CPUs that this process may use */
    double cpu_hz_least, cpu_hz_most;                 /* current clocks: least and greatest over all CPUs */
    double throttle_total;                            /* thermal throttling events of cores and packages */
    double quota_cpus, quota_throttled_total_s; /* CPU quota of the control group, infinite: no quota; seconds for which
                                                   the quota stopped threads */
    double swap_used, swap_moves_total;         /* bytes; pages swapped in and out */
    double turbo, smt, aslr, perf_paranoid, numa_balancing; /* settings of the kernel; 0: off */
    double virtual;                                         /* 1: under a hypervisor; 0: not */
    char governor[64], clocksource[64];
    bool bound; /* this process gets its memory from one NUMA node only */
} pb_host_state;

/* Reads the state. `root` is put before the paths /proc and /sys: "" except in tests. */
pb_host_state pb_host_read(const char *root);
/* The values that change while a process measures, as JSON, which the caller decrefs. NULL: out of memory. */
json_t *pb_host_state_json(const pb_host_state *s);

/* Properties of clock_gettime(): median cost of a call and least difference between two readings; seconds. */
typedef struct pb_timer_facts {
    double cost, step;
} pb_timer_facts;
pb_timer_facts pb_timer_measure(void);
#endif
