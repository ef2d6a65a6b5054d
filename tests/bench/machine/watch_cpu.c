/* watch_cpu.c - makes bench read NVML (throttling, clocks) for processes on the CPU as well, and simulates other work;
 * linked with --wrap=pb_nvml_concerns,--wrap=pb_host_read.
 *
 * PB_FAKE_OTHERS  CPUs of two that other processes use during each measuring process ("0,1.5,0"); the last number holds
 *                 for all later processes. Without it the machine is as it is
 * PB_FAKE_STEAL   the same for CPU seconds in each second that the hypervisor gives to other machines */
#include <stdlib.h>

#include "bench/machine/disturbance.h"
#include "bench/machine/nvml.h"
#include "kernels/engine/clock.h"

bool __wrap_pb_nvml_concerns(pb_backend_id device);
bool __wrap_pb_nvml_concerns(pb_backend_id device) { return device == PB_CPU || device == PB_CUDA; }

/* Number i of a comma-separated list, or the last one. */
static double item(const char *list, int i)
{
    char *end = NULL;
    double v = 0;
    for (; list && *list && i >= 0; i--, list = *end == ',' ? end + 1 : end) v = strtod(list, &end);
    return v;
}

pb_host_state __real_pb_host_read(const char *root);
pb_host_state __wrap_pb_host_read(const char *root);
/* bench reads the host's state once for the host's identity, then before and after each measuring process. */
pb_host_state __wrap_pb_host_read(const char *root)
{
    static int calls;
    static double others_s, steal_s, then;
    pb_host_state s = __real_pb_host_read(root);
    const char *others = getenv("PB_FAKE_OTHERS"), *steal = getenv("PB_FAKE_STEAL");
    if (!others && !steal) return s;
    const double now = pb_clock_seconds();
    const int process = calls / 2 - 1;
    if (calls % 2 == 0 && calls) {
        others_s += item(others, process) * (now - then);
        steal_s += item(steal, process) * (now - then);
    }
    calls++;
    then = now;
    s.usable_cpus = 2;
    s.usable_steal_total_s = steal_s;
    s.usable_busy_total_s = pb_cpu_own_seconds() + others_s + steal_s;
    return s;
}
