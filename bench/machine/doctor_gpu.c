/* doctor_gpu.c - the checks of `bench doctor` that judge the GPU's state. They are called only if that state could be
 * read. */
#include <math.h>

#include "bench/machine/doctor.h"

#define NOT_REPORTED pb_finding_of(PB_HEALTH_UNKNOWN, "the driver does not report it")

pb_finding pb_look_gpu_throttle(const pb_patient *p)
{
    char text[120];
    const double bits = p->gpu.throttle_bits;
    if (isnan(bits)) return NOT_REPORTED;
    const unsigned now = (unsigned)bits, harmless = PB_THROTTLE_IDLE | PB_THROTTLE_APPLICATION_CLOCKS;
    pb_throttle_text(now, text, sizeof text);
    return pb_finding_of(pb_throttle_spoils(bits) ? PB_HEALTH_BAD
                         : now & ~harmless        ? PB_HEALTH_NOTE
                                                  : PB_HEALTH_GOOD,
                         "%s", now ? text : "none");
}

pb_finding pb_look_gpu_clocks(const pb_patient *p)
{
    const pb_gpu_state *g = &p->gpu;
    if (isnan(g->sm_clock_hz) || isnan(g->sm_clock_most_hz)) return NOT_REPORTED;
    const bool set = fabs(g->application_clock_hz - g->application_clock_default_hz) > 0;
    return pb_finding_of(
        PB_HEALTH_NOTE,
        "SM %.0f of at most %.0f MHz, memory %.0f MHz%s; the driver does not tell whether they are locked",
        1e-6 * g->sm_clock_hz, 1e-6 * g->sm_clock_most_hz, 1e-6 * g->memory_clock_hz,
        set ? ", application clocks are set" : "");
}

static pb_finding switched(double v, pb_health on, pb_health off)
{
    if (isnan(v)) return NOT_REPORTED;
    return v > 0 ? pb_finding_of(on, "on") : pb_finding_of(off, "off");
}

pb_finding pb_look_gpu_persistence(const pb_patient *p)
{
    return switched(p->gpu.persistence, PB_HEALTH_GOOD, PB_HEALTH_BAD);
}

pb_finding pb_look_gpu_power(const pb_patient *p)
{
    const pb_gpu_state *g = &p->gpu;
    if (isnan(g->power_limit_w) || isnan(g->power_limit_default_w)) return NOT_REPORTED;
    return pb_finding_of(g->power_limit_w < g->power_limit_default_w ? PB_HEALTH_BAD : PB_HEALTH_GOOD,
                         "%.0f W, default %.0f W", g->power_limit_w, g->power_limit_default_w);
}

pb_finding pb_look_gpu_processes(const pb_patient *p)
{
    if (p->gpu.processes < 0) return NOT_REPORTED;
    return pb_finding_of(p->gpu.processes ? PB_HEALTH_BAD : PB_HEALTH_GOOD, "%d visible", p->gpu.processes);
}

pb_finding pb_look_gpu_busy(const pb_patient *p)
{
    if (isnan(p->gpu.busy)) return NOT_REPORTED;
    return pb_finding_of(p->gpu.busy > 0.02 ? PB_HEALTH_BAD : PB_HEALTH_GOOD, "busy %.0f %% of the time",
                         100 * p->gpu.busy);
}

pb_finding pb_look_gpu_temperature(const pb_patient *p)
{
    const double t = p->gpu.temperature_c, slowdown = p->gpu.temperature_slowdown_c;
    if (isnan(t)) return NOT_REPORTED;
    if (isnan(slowdown))
        return pb_finding_of(PB_HEALTH_UNKNOWN, "%.0f degrees; the driver does not report the slowdown temperature", t);
    return pb_finding_of(t > slowdown - 5    ? PB_HEALTH_BAD
                         : t > slowdown - 15 ? PB_HEALTH_NOTE
                                             : PB_HEALTH_GOOD,
                         "%.0f degrees, slowdown at %.0f", t, slowdown);
}

pb_finding pb_look_gpu_ecc(const pb_patient *p) { return switched(p->gpu.ecc, PB_HEALTH_GOOD, PB_HEALTH_NOTE); }

pb_finding pb_look_gpu_mig(const pb_patient *p) { return switched(p->gpu.mig, PB_HEALTH_NOTE, PB_HEALTH_GOOD); }
