/* cmd_doctor.c - `bench doctor`: inspects the machine and prints which settings and conditions distort measurements. It
 * changes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/commands.h"
#include "bench/machine/machine.h"
#include "kernels/engine/clock.h"

static void examine_gpu(pb_backend_id device, pb_patient *p)
{
    pb_nvml *nvml = NULL;
    p->want_gpu = true;
    p->has_gpu = pb_nvml_open(device, &nvml) == PB_OK;
    if (p->has_gpu) p->gpu = pb_nvml_read(nvml);
    else snprintf(p->no_gpu, sizeof p->no_gpu, "%s", pb_error());
    pb_nvml_close(nvml);
}

static void examine(pb_backend_id device, pb_patient *p)
{
    const double began = pb_clock_seconds();
    p->before = pb_host_read("");
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* rates, such as CPU load, need two readings */
    p->host = pb_host_read("");
    p->seconds = pb_clock_seconds() - began;
    p->timer = pb_timer_measure();
    if (device != PB_CPU) examine_gpu(device, p);
}

static pb_exit print_json(const pb_patient *p, const char *device, int count[PB_NHEALTH])
{
    json_t *o = pb_doctor_json(p, device, count);
    char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    if (!text) return pb_fail(PB_ENOMEM, "doctor: out of memory"), pb_complain(PB_EXIT_HARNESS);
    puts(text);
    free(text);
    return PB_EXIT_OK;
}

pb_exit pb_cmd_doctor(const pb_options *o)
{
    pb_patient p = {0};
    pb_backend_id device;
    int count[PB_NHEALTH];
    if (o->args.n) return pb_fail(PB_EINVAL, "doctor takes no arguments"), pb_complain(PB_EXIT_USAGE);
    if (pb_options_backend(o, &device) != PB_OK) return pb_complain(PB_EXIT_USAGE);
    examine(device, &p);
    if (o->json) {
        const pb_exit e = print_json(&p, o->device, count);
        if (e != PB_EXIT_OK) return e;
    } else {
        if (p.want_gpu && p.has_gpu) printf("GPU: %s, driver %s\n", p.gpu.name, p.gpu.driver);
        else if (p.want_gpu) printf("GPU: cannot be read: %s\n", p.no_gpu);
        pb_doctor_print(&p, stdout, count);
    }
    return o->strict && count[PB_HEALTH_BAD] ? PB_EXIT_INCONCLUSIVE : PB_EXIT_OK;
}
