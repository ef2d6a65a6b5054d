/* memory.c - reads /proc (see proc(5)), the cgroup v2 files and the resource limits of this process. */
#include "os/memory.h"

#include <errno.h>
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
    if (!kib) return pb_fail(PB_EIO, "/proc/self/status has no VmHWM");
    *bytes = 1024.0 * (double)kib;
    return PB_OK;
}

/* Finds the first line of a file that begins with `word` and returns the number that follows. INFINITY: the file, the
 * line or the number is missing (a limit of "max" is not a number). */
static double number_behind(const char *path, const char *word)
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

/* Bytes left in this process's cgroup: limit minus usage. The page cache of the group counts as free, because the
 * kernel reclaims it under pressure. INFINITY: no limit. */
static double left_in_group(void)
{
    static const char root[] = "/sys/fs/cgroup";
    char line[512], dir[600], path[700];
    FILE *f = fopen("/proc/self/cgroup", "r");
    *line = 0;
    if (f) {
        while (fgets(line, sizeof line, f) && strncmp(line, "0::", 3) != 0) *line = 0;
        fclose(f);
    }
    line[strcspn(line, "\n")] = 0;
    snprintf(dir, sizeof dir, "%s%s", root, *line ? line + 3 : "");
    snprintf(path, sizeof path, "%s/memory.max", dir);
    if (isinf(number_behind(path, ""))) /* Inside a container the process's own group is mounted at the root. */
        snprintf(dir, sizeof dir, "%s", root);
    snprintf(path, sizeof path, "%s/memory.max", dir);
    const double most = number_behind(path, "");
    snprintf(path, sizeof path, "%s/memory.current", dir);
    const double used = number_behind(path, "");
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    const double cached = number_behind(path, "file ");
    return isfinite(used) && isfinite(cached) ? most - (used - cached) : most;
}

double pb_memory_available(void)
{
    const double kib = 1024, free_ram = kib * number_behind("/proc/meminfo", "MemAvailable:");
    const double swap = kib * number_behind("/proc/meminfo", "SwapFree:");
    const double mapped = kib * number_behind("/proc/self/status", "VmSize:");
    double left = fmin(isfinite(swap) ? free_ram + swap : free_ram, left_in_group());
    struct rlimit l;
    if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur != RLIM_INFINITY && isfinite(mapped))
        left = fmin(left, (double)l.rlim_cur - mapped);
    return left > 0 ? left : 0;
}
