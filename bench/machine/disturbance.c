/* disturbance.c - computes how much CPU time other work took while a process measured, and whether that is too much. */
#include "bench/machine/disturbance.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static const char load_word[] = "load", steal_word[] = "steal";

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

double pb_cpu_own_seconds(void)
{
    struct rusage self, children;
    if (getrusage(RUSAGE_SELF, &self) != 0 || getrusage(RUSAGE_CHILDREN, &children) != 0) return 0;
    return seconds_of(self.ru_utime) + seconds_of(self.ru_stime) + seconds_of(children.ru_utime) +
           seconds_of(children.ru_stime);
}

void pb_disturbance(const pb_cpu_use *before, const pb_cpu_use *after, long threads, char *why, size_t n)
{
    const pb_host_state *a = &before->host, *b = &after->host;
    const double seconds = after->seconds - before->seconds, cpus = b->usable_cpus;
    const double own = after->own_total_s - before->own_total_s,
                 wanted = (double)threads < cpus ? (double)threads : cpus;
    const double busy = b->usable_busy_total_s - a->usable_busy_total_s;
    const double steal = b->usable_steal_total_s - a->usable_steal_total_s;
    const double others = (busy - steal - own) / seconds;
    size_t used = 0;
    *why = 0;
    if (!(seconds >= PB_DISTURBANCE_SECONDS)) return;
    /* A value that the kernel does not report is NaN; every comparison with it is false, so that no reason is given. */
    if (others > cpus - wanted + PB_DISTURBANCE_LOAD * wanted)
        used = (size_t)snprintf(why, n, "%s (others used %.1f of %.0f CPUs)", load_word, others, cpus);
    if (steal > PB_DISTURBANCE_STEAL * busy && used < n)
        snprintf(why + used, n - used, "%s%s (%.1f %% of the CPU time)", used ? ", " : "", steal_word,
                 100 * steal / busy);
}

void pb_disturbance_of_samples(int measurements, char *why, size_t n)
{
    *why = 0;
    if (measurements)
        snprintf(why, n, "%s (other work left too little CPU time to %d measurement%s)", load_word, measurements,
                 measurements == 1 ? "" : "s");
}

bool pb_is_disturbance(const char *reason)
{
    return strncmp(reason, load_word, strlen(load_word)) == 0 || strncmp(reason, steal_word, strlen(steal_word)) == 0;
}
