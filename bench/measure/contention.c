/* contention.c - reads how long the threads of this process waited for a CPU, and judges stretches of samples by it. */
#define _GNU_SOURCE
#include "bench/measure/contention.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/engine/clock.h"

/* Seconds for which a thread was ready to run and did not run. False: the thread has ended, or the kernel has no such
 * file. */
static bool thread_waited(const char *tid, double *seconds)
{
    char path[64];
    unsigned long long ran, waited;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", tid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const bool read = fscanf(f, "%llu %llu", &ran, &waited) == 2;
    fclose(f);
    if (read) *seconds = 1e-9 * (double)waited;
    return read;
}

/* The same of all threads. False: of no thread. */
static bool threads_waited(double *seconds)
{
    DIR *tasks = opendir("/proc/self/task");
    bool any = false;
    *seconds = 0;
    if (!tasks) return false;
    for (struct dirent *e = readdir(tasks); e; e = readdir(tasks)) {
        double one = 0;
        if (e->d_name[0] == '.' || !thread_waited(e->d_name, &one)) continue;
        *seconds += one;
        any = true;
    }
    closedir(tasks);
    return any;
}

/* CPU seconds that the hypervisor gave to other machines; 0 if the kernel does not say. */
static double stolen_seconds(void)
{
    unsigned long long steal = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (!f) return 0;
    if (fscanf(f, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &steal) != 1) steal = 0;
    fclose(f);
    return (double)steal / (double)sysconf(_SC_CLK_TCK);
}

static bool lost_seconds(const pb_contention *c, double *seconds)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (!threads_waited(seconds)) return false;
    *seconds += stolen_seconds() * (double)c->threads / (double)(cpus > 0 ? cpus : 1);
    return true;
}

bool pb_contention_open(pb_contention *c, long threads)
{
    cpu_set_t usable;
    double seconds;
    *c = (pb_contention){.lost = lost_seconds, .threads = threads, .patience = PB_PATIENCE};
    return sched_getaffinity(0, sizeof usable, &usable) == 0 && threads <= CPU_COUNT(&usable) && c->lost(c, &seconds);
}

void pb_contention_begin(pb_contention *c)
{
    c->left = c->patience;
    c->gave_up = false;
}

void pb_contention_begin_stretch(pb_contention *c)
{
    c->began = pb_clock_seconds();
    c->known = c->lost(c, &c->lost_before);
}

bool pb_contention_stretch_over(const pb_contention *c) { return pb_clock_seconds() - c->began >= PB_STRETCH; }

bool pb_contention_end_stretch(pb_contention *c)
{
    double lost;
    const double seconds = pb_clock_seconds() - c->began;
    if (!c->known || !c->lost(c, &lost) || !(lost - c->lost_before > PB_DISTURBED * seconds)) return false;
    if (c->gave_up) return false;
    c->left -= seconds;
    c->gave_up = !(c->left > 0);
    return true;
}

bool pb_contention_end(pb_contention *c)
{
    c->patience = c->gave_up ? c->patience / 4 : PB_PATIENCE;
    return c->gave_up;
}
