/* watch_cpu.c - makes bench read NVML (throttling, clocks) for processes on the CPU as well, and simulates other work;
 * linked with --wrap=pb_nvml_concerns,--wrap=pb_host_read,--wrap=pb_contention_open.
 *
 * PB_FAKE_OTHERS  for each measuring process in turn ("0,1.5,0"), how many of the machine's 2 CPUs other processes use;
 *                 the last number holds for all later processes
 * PB_FAKE_STEAL   likewise, how many CPUs' time the hypervisor gives to other virtual machines
 * PB_FAKE_QUOTA   the CPU quota of the container
 * If neither of the first two is set, the machine's real state is returned. Otherwise the kernel seems not to tell how
 * long threads wait for a CPU, unless this variable is set too:
 * PB_FAKE_LOST    the share of their time that threads wait for a CPU; "0.5,3": only in the first 3 s of each process */
#include <stdlib.h>
#include <string.h>

#include "bench/machine/disturbance.h"
#include "bench/machine/nvml.h"
#include "bench/measure/contention.h"
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
    const char *quota = getenv("PB_FAKE_QUOTA");
    if (quota) s.quota_cpus = strtod(quota, NULL);
    s.usable_steal_total_s = steal_s;
    s.usable_busy_total_s = pb_cpu_own_seconds() + others_s + steal_s;
    return s;
}

static double began;

static bool fake_lost(const pb_contention *c, double *seconds)
{
    const char *text = getenv("PB_FAKE_LOST");
    (void)c;
    if (!text) return false;
    const char *comma = strchr(text, ',');
    const double passed = pb_clock_seconds() - began, most = comma ? strtod(comma + 1, NULL) : passed;
    *seconds = strtod(text, NULL) * (passed < most ? passed : most);
    return true;
}

bool __real_pb_contention_open(pb_contention *c, long threads);
bool __wrap_pb_contention_open(pb_contention *c, long threads);
bool __wrap_pb_contention_open(pb_contention *c, long threads)
{
    if (!getenv("PB_FAKE_OTHERS") && !getenv("PB_FAKE_STEAL")) return __real_pb_contention_open(c, threads);
    if (!getenv("PB_FAKE_LOST")) return false;
    *c = (pb_contention){.lost = fake_lost, .threads = threads, .patience = 1};
    began = pb_clock_seconds();
    return true;
}
