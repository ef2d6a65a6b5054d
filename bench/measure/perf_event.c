/* perf_event.c - opens counters by perf_event_open(2), and says why the system refuses one. */
#define _GNU_SOURCE
#include "bench/measure/perf_event.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

pb_status pb_perf_refused(const char *option, const char *counter, const char *instead, int error, const char *paranoid)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return pb_fail(PB_EUNSUPPORTED,
                       "%s: the system forbids it (%s; kernel.perf_event_paranoid is %s): as root, "
                       "`sysctl kernel.perf_event_paranoid=2` allows it, and a container needs the capability "
                       "CAP_PERFMON%s",
                       option, strerror(error), paranoid ? paranoid : "unknown", instead);
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
        return pb_fail(
            PB_EUNSUPPORTED,
            "%s: this machine offers no %s (%s), which is usual for a virtual machine: its host must pass the "
            "performance counters on%s",
            option, counter, strerror(error), instead);
    default:
        return pb_fail(PB_EUNSUPPORTED, "%s: perf_event_open of the %s: %s%s", option, counter, strerror(error),
                       instead);
    }
}

pb_status pb_perf_open(struct perf_event_attr *attr, int leader, const char *option, const char *counter,
                       const char *instead, int *fd)
{
    char paranoid[16] = "";
    attr->size = sizeof *attr;
    attr->read_format |= PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    const long opened = syscall(SYS_perf_event_open, attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
    const int error = errno;
    *fd = (int)opened;
    if (opened >= 0) return PB_OK;
    FILE *f = fopen("/proc/sys/kernel/perf_event_paranoid", "r");
    const bool known = f && fgets(paranoid, sizeof paranoid, f);
    if (f) fclose(f);
    paranoid[strcspn(paranoid, "\n")] = 0;
    return pb_perf_refused(option, counter, instead, error, known ? paranoid : NULL);
}
