/* memory.c - VmHWM of /proc/self/status, and its reset through clear_refs (proc(5)). */
#include "os/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
