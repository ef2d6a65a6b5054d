/* host_state.c - reads the state of the host from /proc and /sys. */
#define _GNU_SOURCE
#include "bench/machine/host_state.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <time.h>
#include <unistd.h>

#include "bench/stats/stats.h"

enum { PATH = 512, LINE = 4096, MOST_CPUS = 4096, TIMER_CALLS = 2001 };

static FILE *open_under(const char *root, const char *path)
{
    char full[PATH];
    return snprintf(full, sizeof full, "%s%s", root, path) < PATH ? fopen(full, "r") : NULL;
}

/* Copies the first line of a file; "" if it cannot be read. */
static void text_of(const char *root, const char *path, char *out, size_t n)
{
    FILE *f = open_under(root, path);
    *out = 0;
    if (f && !fgets(out, (int)n, f)) *out = 0;
    if (f) fclose(f);
    out[strcspn(out, "\n")] = 0;
}

static double number_of(const char *root, const char *path)
{
    char text[64], *end;
    text_of(root, path, text, sizeof text);
    const double v = strtod(text, &end);
    return end == text ? (double)NAN : v;
}

/* The number after the word that begins a line, as in "SwapTotal:  0 kB". NaN: no such line. */
static double field_of(const char *root, const char *path, const char *word)
{
    char line[LINE];
    double v = (double)NAN;
    const size_t n = strlen(word);
    FILE *f = open_under(root, path);
    while (f && isnan(v) && fgets(line, sizeof line, f))
        if (strncmp(line, word, n) == 0 && strchr(" \t:", line[n]))
            v = strtod(line + n + strspn(line + n, " \t:"), NULL);
    if (f) fclose(f);
    return v;
}

/* 1 if the CPU has the flag "hypervisor", else 0. NaN: /proc/cpuinfo has no line of flags. */
static double virtual_host(const char *root)
{
    char line[LINE];
    double found = (double)NAN;
    FILE *f = open_under(root, "/proc/cpuinfo");
    while (f && isnan(found) && fgets(line, sizeof line, f))
        if (strncmp(line, "flags", 5) == 0) found = strstr(line, " hypervisor") ? 1 : 0;
    if (f) fclose(f);
    return found;
}

/* ---- reading /proc and /sys ------------------------------------------------------------------------- */

/* Adds the times of a line of /proc/stat, "user nice system idle iowait irq softirq steal ..." in clock ticks. */
static void add_times(const char *times, double *steal_s, double *busy_s)
{
    double user, nice, system, idle, wait, irq, soft, steal;
    const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    if (sscanf(times, "%lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal) != 8)
        return;
    *steal_s = tick * steal + (isnan(*steal_s) ? 0 : *steal_s);
    *busy_s = tick * (user + nice + system + irq + soft + steal) + (isnan(*busy_s) ? 0 : *busy_s);
}

static bool in_list(const char *list, long cpu)
{
    while (*list) {
        char *end;
        const long from = strtol(list, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        if (end == list) return false;
        if (cpu >= from && cpu <= to) return true;
        list = *end ? end + 1 : end;
    }
    return false;
}

/* Reads the line "cpu" of /proc/stat, and the lines "cpuN" of the CPUs in `usable`, a list such as "0-3,8". */
static void read_times(const char *root, const char *usable, pb_host_state *s)
{
    char line[LINE], *times;
    FILE *f = open_under(root, "/proc/stat");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "cpu", 3) == 0) {
        const long cpu = strtol(line + 3, &times, 10);
        if (line[3] == ' ') add_times(line + 3, &s->steal_total_s, &s->busy_total_s);
        else if (in_list(usable, cpu)) add_times(times, &s->usable_steal_total_s, &s->usable_busy_total_s);
    }
    if (f) fclose(f);
}

static void widen(pb_host_state *s, double hz)
{
    s->cpu_hz_least = fmin(s->cpu_hz_least, hz); /* fmin and fmax ignore a NaN operand */
    s->cpu_hz_most = fmax(s->cpu_hz_most, hz);
}

/* Reads the clocks from cpufreq, or else from the "cpu MHz" lines of /proc/cpuinfo, and counts thermal events. */
static void read_clocks(const char *root, pb_host_state *s)
{
    char path[PATH], line[LINE];
    for (int i = 0; i < MOST_CPUS && i < (int)s->cpus; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", i);
        widen(s, 1e3 * number_of(root, path));
        for (int package = 0; package < 2; package++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/thermal_throttle/%s_throttle_count", i,
                     package ? "package" : "core");
            const double events = number_of(root, path);
            if (!isnan(events)) s->throttle_total = (isnan(s->throttle_total) ? 0 : s->throttle_total) + events;
        }
    }
    if (!isnan(s->cpu_hz_most)) return;
    FILE *f = open_under(root, "/proc/cpuinfo");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "cpu MHz", 7) == 0 && strchr(line, ':')) widen(s, 1e6 * strtod(strchr(line, ':') + 1, NULL));
    if (f) fclose(f);
}

/* Reads the CPU quota of this process's control group: from cgroup version 2 (its own group, else the root, which is
 * where a container sees its group), or else from version 1 at the root. */
static void read_quota(const char *root, pb_host_state *s)
{
    char group[256], path[PATH], line[128], word[64];
    double period;
    text_of(root, "/proc/self/cgroup", group, sizeof group);
    const char *below = strncmp(group, "0::", 3) == 0 ? group + 3 : "";
    snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/cpu.max", *below == '/' ? "" : "/",
             strcmp(below, "/") ? below : "");
    text_of(root, path, line, sizeof line);
    if (!*line) text_of(root, "/sys/fs/cgroup/cpu.max", line, sizeof line);
    if (sscanf(line, "%63s %lf", word, &period) == 2)
        s->quota_cpus = strcmp(word, "max") == 0 ? (double)INFINITY : strtod(word, NULL) / period;
    else {
        const double quota = number_of(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
        s->quota_cpus = quota < 0 ? (double)INFINITY : quota / number_of(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    }
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.stat", strcmp(below, "/") ? below : "");
    s->quota_throttled_total_s = 1e-6 * field_of(root, path, "throttled_usec");
}

static void read_switches(const char *root, pb_host_state *s)
{
    const double no_turbo = number_of(root, "/sys/devices/system/cpu/intel_pstate/no_turbo");
    s->turbo = isnan(no_turbo) ? number_of(root, "/sys/devices/system/cpu/cpufreq/boost") : no_turbo > 0 ? 0 : 1;
    s->smt = number_of(root, "/sys/devices/system/cpu/smt/active");
    s->aslr = number_of(root, "/proc/sys/kernel/randomize_va_space");
    if (!*root && (personality(0xffffffff) & ADDR_NO_RANDOMIZE)) s->aslr = 0;
    s->perf_paranoid = number_of(root, "/proc/sys/kernel/perf_event_paranoid");
    s->numa_balancing = number_of(root, "/proc/sys/kernel/numa_balancing");
    text_of(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", s->governor, sizeof s->governor);
    text_of(root, "/sys/devices/system/clocksource/clocksource0/current_clocksource", s->clocksource,
            sizeof s->clocksource);
}

/* The number of CPUs or nodes in a list such as "0-3,8". NaN: not a list. */
static double listed(const char *list)
{
    double n = 0;
    while (*list) {
        char *end;
        const long from = strtol(list, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        if (end == list || to < from || (*end && *end != ',')) return (double)NAN;
        n += (double)(to - from + 1);
        list = *end ? end + 1 : end;
    }
    return n > 0 ? n : (double)NAN;
}

/* Reads the numbers of CPUs and NUMA nodes, the list of CPUs that this process may use, and whether it is bound to one
 * node. */
static void read_places(const char *root, pb_host_state *s, char usable[LINE])
{
    char line[LINE];
    text_of(root, "/sys/devices/system/node/online", line, sizeof line);
    s->nodes = listed(line);
    text_of(root, "/sys/devices/system/cpu/online", line, sizeof line);
    s->cpus = listed(line);
    FILE *f = open_under(root, "/proc/self/status");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (!value) continue;
        *value++ = 0;
        value += strspn(value, " \t"), value[strcspn(value, "\n")] = 0;
        if (strcmp(line, "Cpus_allowed_list") == 0)
            s->usable_cpus = listed(value), memcpy(usable, value, strlen(value) + 1);
        if (strcmp(line, "Mems_allowed_list") == 0) s->bound = listed(value) <= 1;
    }
    if (f) fclose(f);
    text_of(root, "/proc/self/numa_maps", line, sizeof line);
    s->bound |= strstr(line, " bind:") != NULL;
}

pb_host_state pb_host_read(const char *root)
{
    const double none = (double)NAN;
    pb_host_state s = {.cpus = none,
                       .usable_cpus = none,
                       .steal_total_s = none,
                       .busy_total_s = none,
                       .usable_steal_total_s = none,
                       .usable_busy_total_s = none,
                       .cpu_hz_least = none,
                       .cpu_hz_most = none,
                       .throttle_total = none};
    char usable[LINE] = "";
    read_places(root, &s, usable);
    read_times(root, usable, &s);
    read_clocks(root, &s);
    read_quota(root, &s);
    read_switches(root, &s);
    s.load = number_of(root, "/proc/loadavg");
    s.swap_used = 1024 * (field_of(root, "/proc/meminfo", "SwapTotal") - field_of(root, "/proc/meminfo", "SwapFree"));
    s.swap_moves_total = field_of(root, "/proc/vmstat", "pswpin") + field_of(root, "/proc/vmstat", "pswpout");
    s.virtual = virtual_host(root);
    return s;
}

static void put(json_t *o, const char *key, double v)
{
    json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

json_t *pb_host_state_json(const pb_host_state *s)
{
    json_t *o = json_object();
    put(o, "load", s->load);
    put(o, "steal_total_s", s->steal_total_s);
    put(o, "cpu_hz_least", s->cpu_hz_least);
    put(o, "cpu_hz_most", s->cpu_hz_most);
    put(o, "cpu_throttle_total", s->throttle_total);
    put(o, "quota_throttled_total_s", s->quota_throttled_total_s);
    put(o, "swap_moves_total", s->swap_moves_total);
    return o;
}

/* ---- the timer -------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double between(struct timespec a, struct timespec b)
{
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

pb_timer_facts pb_timer_measure(void)
{
    enum { BATCH = 64 };
    double costs[TIMER_CALLS], step = (double)INFINITY;
    for (int i = 0; i < TIMER_CALLS; i++) {
        struct timespec a, b;
        const double began = now();
        for (int k = 0; k < BATCH; k++) clock_gettime(CLOCK_MONOTONIC, &a);
        costs[i] = (now() - began) / (BATCH + 1);
        do clock_gettime(CLOCK_MONOTONIC, &b);
        while (!(between(a, b) > 0));
        step = fmin(step, between(a, b));
    }
    return (pb_timer_facts){pb_median(costs, TIMER_CALLS), step};
}
