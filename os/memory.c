/* memory.c - reads /proc (see proc(5)), the cgroup v2 files and the resource limits of this process. */
#include "os/memory.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

pb_status pb_memory_reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    const int ok = f && fputs("5", f) >= 0;
    if (f && fclose(f) == 0 && ok) return PB_OK;
    return pb_fail(PB_EIO, "/proc/self/clear_refs: %s", strerror(errno));
}

pb_status pb_memory_peak(double *bytes)
{
    char line[128];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return pb_fail(PB_EIO, "/proc/self/status: %s", strerror(errno));
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lu kB", &kib) == 1) break;
    fclose(f);
    if (!kib) return pb_fail(PB_EIO, "/proc/self/status has no line VmHWM (peak resident memory)");
    *bytes = 1024.0 * (double)kib;
    return PB_OK;
}

/* Finds the first line of a file that begins with `word` and returns the number that follows. INFINITY: the file, the
 * line or the number is missing (a limit of "max" is not a number). */
static double number_after(const char *path, const char *word)
{
    char line[256];
    double found = (double)INFINITY;
    const size_t n = strlen(word);
    FILE *f = fopen(path, "r");
    if (!f) return found;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, word, n) == 0 && sscanf(line + n, "%lf", &found) == 1) break;
    fclose(f);
    return found;
}

/* Like number_after, for the file dir/name. */
static double number_in(const char *dir, const char *name, const char *word)
{
    char path[PATH_MAX + 32];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path ? number_after(path, word) : (double)INFINITY;
}

/* Bytes left in one cgroup: limit minus usage. The page cache of the group counts as free, because the kernel reclaims
 * it under pressure. INFINITY: no limit. */
static double left_in_group(const char *dir)
{
    const double most = number_in(dir, "memory.max", ""), used = number_in(dir, "memory.current", "");
    const double cached = number_in(dir, "memory.stat", "file ");
    return isfinite(used) && isfinite(cached) ? most - (used - cached) : most;
}

/* A cgroup's limit also applies to its descendants, so the result is the minimum over the group and all its ancestors.
 * In a container the process's own group may be mounted as the root, so that the group's path does not exist; the loop
 * then still reaches the root. */
double pb_memory_left_in_groups(const char *cgroup, const char *root)
{
    char line[PATH_MAX], dir[PATH_MAX];
    double left = (double)INFINITY;
    FILE *f = fopen(cgroup, "r");
    *line = 0;
    if (f) {
        while (fgets(line, sizeof line, f) && strncmp(line, "0::", 3) != 0) *line = 0;
        fclose(f);
    }
    line[strcspn(line, "\n")] = 0;
    const size_t top = strlen(root);
    if (snprintf(dir, sizeof dir, "%s%s", root, *line ? line + 3 : "") >= (int)sizeof dir) dir[top] = 0;
    for (;;) {
        left = fmin(left, left_in_group(dir));
        char *slash = strrchr(dir + top, '/');
        if (!slash) return left;
        *slash = 0;
    }
}

double pb_memory_available(void)
{
    const double kib = 1024, free_ram = kib * number_after("/proc/meminfo", "MemAvailable:");
    const double swap = kib * number_after("/proc/meminfo", "SwapFree:");
    const double mapped = kib * number_after("/proc/self/status", "VmSize:");
    double left = fmin(isfinite(swap) ? free_ram + swap : free_ram,
                       pb_memory_left_in_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
    struct rlimit l;
    if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur != RLIM_INFINITY && isfinite(mapped))
        left = fmin(left, (double)l.rlim_cur - mapped);
    return left > 0 ? left : 0;
}
