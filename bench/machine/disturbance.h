/* disturbance.h - how much CPU time other work took while a process measured. Pure, except pb_cpu_own_seconds().
 *
 *   C       CPUs that the process may use
 *   T       its threads, at most C
 *   others  CPU seconds that other processes spent on these CPUs, divided by the seconds that passed:
 *           (busy - steal) - own
 *   load    others > (C - T) + 0.2 T: the others used the idle CPUs, and more than a fifth of the CPU time that the T
 *           threads could have used. With T = C the load of the machine was then above 1.2 C
 *   steal   the hypervisor gave more than 3 % of the CPU time that this machine used to other machines. It shifts a
 *           median by at most that share. On an otherwise idle virtual machine with two CPUs, 16 of 18 processes with
 *           steal of 1 % and more had 1.0 to 1.7 %, so a limit of 1 % had about every third process measured again
 *
 * Why CPU time and not the load average: the load average counts the process's own threads too, and it is a mean over
 * minutes, which the work before the process still determines. CPU time of others is what was taken from the process.
 * It is measured in ticks of 10 ms, so a process shorter than PB_DISTURBANCE_SECONDS is not judged. */
#ifndef PB_DISTURBANCE_H
#define PB_DISTURBANCE_H
#include "bench/machine/host_state.h"

#define PB_DISTURBANCE_SECONDS 1.0
#define PB_DISTURBANCE_LOAD    0.2
#define PB_DISTURBANCE_STEAL   0.03

/* The readings of the parent of a measuring process at one time. */
typedef struct pb_cpu_use {
    double seconds;     /* time by a monotonic clock */
    double own_total_s; /* CPU seconds of this process and of its children that have ended */
    pb_host_state host;
} pb_cpu_use;

/* CPU seconds, user and system, of this process and of its children that have ended. */
double pb_cpu_own_seconds(void);
/* Writes why the process between two times was disturbed: "load (others used 0.9 of 2 CPUs)", "steal (2.1 % of the CPU
 * time)", or both, separated by a comma; "": it was not, or a value is unknown. threads >= 1. */
void pb_disturbance(const pb_cpu_use *before, const pb_cpu_use *after, long threads, char *why, size_t n);
/* The same for a process whose samples were judged (bench/measure/contention.h): "load (other work left too little CPU
 * time to 3 measurements)"; "": none of them. */
void pb_disturbance_of_samples(int measurements, char *why, size_t n);
/* True if a text begins with a reason that these functions write. */
bool pb_is_disturbance(const char *reason);
#endif
