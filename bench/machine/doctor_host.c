/* doctor_host.c - the checks of `bench doctor` that judge the host's state: each compares a value with the limits
 * beyond which it disturbs measurements. */
#include <math.h>
#include <string.h>

#include "bench/machine/doctor.h"

#define NOT_REPORTED pb_finding_of(PB_HEALTH_UNKNOWN, "the kernel does not report it")

static pb_health above(double v, double note, double bad)
{
    return v >= bad ? PB_HEALTH_BAD : v >= note ? PB_HEALTH_NOTE : PB_HEALTH_GOOD;
}

pb_finding pb_look_load(const pb_patient *p)
{
    const pb_host_state *h = &p->host;
    if (isnan(h->load) || isnan(h->cpus)) return NOT_REPORTED;
    return pb_finding_of(above(h->load / h->cpus, 0.1, 0.5), "%.2f on %.0f CPUs", h->load, h->cpus);
}

pb_finding pb_look_steal(const pb_patient *p)
{
    const double now = (p->host.steal_total_s - p->before.steal_total_s) / p->seconds;
    const double ever = p->host.steal_total_s / p->host.busy_total_s;
    if (!isfinite(now)) return NOT_REPORTED;
    const pb_health ago = ever >= 0.01 ? PB_HEALTH_NOTE : PB_HEALTH_GOOD;
    return pb_finding_of(now > 0 ? above(now / p->host.cpus, 0, 0.01) : ago,
                         "%.1f %% now, %.2f %% of all CPU time since boot", 100 * now / p->host.cpus,
                         isfinite(ever) ? 100 * ever : 0.0);
}

pb_finding pb_look_quota(const pb_patient *p)
{
    const pb_host_state *h = &p->host;
    const double lost = h->quota_throttled_total_s;
    if (isnan(h->quota_cpus)) return NOT_REPORTED;
    if (isinf(h->quota_cpus)) return pb_finding_of(PB_HEALTH_GOOD, "none");
    const bool enough = h->quota_cpus >= h->usable_cpus && !(lost > 0);
    return pb_finding_of(enough ? PB_HEALTH_NOTE : PB_HEALTH_BAD,
                         "%.2f CPUs of the %.0f usable ones, throttled for %.3f s so far", h->quota_cpus,
                         h->usable_cpus, isnan(lost) ? 0 : lost);
}

pb_finding pb_look_throttle(const pb_patient *p)
{
    const double n = p->host.throttle_total;
    if (isnan(n)) return NOT_REPORTED;
    return pb_finding_of(n > p->before.throttle_total ? PB_HEALTH_BAD : above(n, 1, INFINITY), "%.0f events", n);
}

pb_finding pb_look_governor(const pb_patient *p)
{
    if (!*p->host.governor) return NOT_REPORTED;
    return pb_finding_of(strcmp(p->host.governor, "performance") == 0 ? PB_HEALTH_GOOD : PB_HEALTH_BAD, "%s",
                         p->host.governor);
}

pb_finding pb_look_turbo(const pb_patient *p)
{
    if (isnan(p->host.turbo)) return NOT_REPORTED;
    return p->host.turbo > 0 ? pb_finding_of(PB_HEALTH_NOTE, "on") : pb_finding_of(PB_HEALTH_GOOD, "off");
}

pb_finding pb_look_smt(const pb_patient *p)
{
    if (isnan(p->host.smt)) return NOT_REPORTED;
    return p->host.smt > 0 ? pb_finding_of(PB_HEALTH_NOTE, "on") : pb_finding_of(PB_HEALTH_GOOD, "off");
}

pb_finding pb_look_numa(const pb_patient *p)
{
    const pb_host_state *h = &p->host;
    if (isnan(h->nodes)) return NOT_REPORTED;
    if (h->nodes <= 1) return pb_finding_of(PB_HEALTH_GOOD, "one node");
    if (h->bound) return pb_finding_of(PB_HEALTH_GOOD, "%.0f nodes, memory bound to one", h->nodes);
    return pb_finding_of(PB_HEALTH_BAD, "%.0f nodes, not bound%s", h->nodes,
                         h->numa_balancing > 0 ? ", and the kernel moves pages between them" : "");
}

pb_finding pb_look_aslr(const pb_patient *p)
{
    if (isnan(p->host.aslr)) return NOT_REPORTED;
    return p->host.aslr > 0 ? pb_finding_of(PB_HEALTH_GOOD, "on: every process gets its own memory layout")
                            : pb_finding_of(PB_HEALTH_NOTE, "off");
}

pb_finding pb_look_swap(const pb_patient *p)
{
    const double moved = p->host.swap_moves_total - p->before.swap_moves_total, used = p->host.swap_used;
    if (isnan(used)) return NOT_REPORTED;
    return pb_finding_of(moved > 0 ? PB_HEALTH_BAD : above(used, 1, INFINITY),
                         "%.0f MiB in use, %.0f pages swapped just now", used / (1 << 20), isnan(moved) ? 0 : moved);
}

pb_finding pb_look_clocksource(const pb_patient *p)
{
    static const char *const quick[] = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"};
    const char *name = p->host.clocksource;
    if (!*name) return NOT_REPORTED;
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        if (strcmp(name, quick[i]) == 0) return pb_finding_of(PB_HEALTH_GOOD, "%s", name);
    return pb_finding_of(PB_HEALTH_BAD, "%s", name);
}

pb_finding pb_look_timer(const pb_patient *p)
{
    if (!isfinite(p->timer.cost) || !isfinite(p->timer.step)) return pb_finding_of(PB_HEALTH_UNKNOWN, "not measured");
    return pb_finding_of(above(fmax(p->timer.cost, p->timer.step), 200e-9, 2e-6),
                         "%.0f ns per reading, steps of %.0f ns", 1e9 * p->timer.cost, 1e9 * p->timer.step);
}

pb_finding pb_look_virtual(const pb_patient *p)
{
    if (isnan(p->host.virtual)) return NOT_REPORTED;
    return p->host.virtual > 0 ? pb_finding_of(PB_HEALTH_NOTE, "yes") : pb_finding_of(PB_HEALTH_GOOD, "none detected");
}

pb_finding pb_look_perf_events(const pb_patient *p)
{
    if (isnan(p->host.perf_paranoid)) return NOT_REPORTED;
    return pb_finding_of(above(p->host.perf_paranoid, 3, INFINITY), "perf_event_paranoid is %.0f",
                         p->host.perf_paranoid);
}
