/* gpu_check.c - decides whether a GPU can be used, and writes the error message for a GPU that is missing, too old or
 * out of memory. */
#include "kernels/engine/gpu_check.h"

#include <stdbool.h>
#include <stdlib.h>

pb_status pb_gpu_check_driver(int driver, int runtime)
{
    if (driver <= 0) return pb_fail(PB_EDEVICE, "cuda: no usable GPU: no NVIDIA driver is installed");
    if (driver / 1000 >= runtime / 1000) return PB_OK;
    return pb_fail(PB_EDEVICE,
                   "cuda: the driver is too old: it runs CUDA up to %d.%d, this program needs %d.0; update the driver",
                   driver / 1000, driver % 1000 / 10, runtime / 1000);
}

pb_status pb_gpu_check_number(int device, int n)
{
    if (n <= 0) return pb_fail(PB_EDEVICE, "cuda: no usable GPU: the driver reports no device");
    if (device >= 0 && device < n) return PB_OK;
    return pb_fail(PB_EDEVICE, "cuda: device %d does not exist, the machine has %d (numbered from 0)", device, n);
}

pb_status pb_gpu_check_capability(int device, const char *name, int capability)
{
    if (capability >= PB_GPU_LEAST_CAPABILITY) return PB_OK;
    return pb_fail(PB_EDEVICE, "cuda: device %d (%s) has compute capability %d.%d, need %d.%d or above", device, name,
                   capability / 10, capability % 10, PB_GPU_LEAST_CAPABILITY / 10, PB_GPU_LEAST_CAPABILITY % 10);
}

size_t pb_gpu_shared(int capability)
{
    static const struct {
        int first, last, kilobytes;
    } table[] = {{80, 80, 163}, {86, 86, 99}, {87, 87, 163}, {89, 89, 99}, {90, 119, 227}, {120, 129, 99}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (capability >= table[i].first && capability <= table[i].last) return (size_t)table[i].kilobytes << 10;
    return PB_GPU_LEAST_SHARED;
}

pb_status pb_gpu_assumed(int *capability)
{
    const char *text = getenv("PB_CAPABILITY");
    char *end = NULL;
    *capability = 0;
    if (!text || !*text) return PB_OK;
    const long major = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    if (major >= 0 && major < 100 && end[0] == '.' && end[1] >= '0' && end[1] <= '9' && !end[2])
        *capability = (int)major * 10 + (end[1] - '0');
    if (*capability >= PB_GPU_LEAST_CAPABILITY) return PB_OK;
    *capability = 0;
    return pb_fail(PB_EINVAL, "PB_CAPABILITY=%.20s: need a compute capability from %d.%d on, such as 8.9", text,
                   PB_GPU_LEAST_CAPABILITY / 10, PB_GPU_LEAST_CAPABILITY % 10);
}

pb_status pb_gpu_can_assume(int own, int assumed)
{
    const bool sm90 = assumed / 10 == 9;
    if (pb_gpu_shared(assumed) <= pb_gpu_shared(own) && (!sm90 || own / 10 == 9)) return PB_OK;
    return pb_fail(PB_EINVAL,
                   "PB_CAPABILITY=%d.%d: this GPU has compute capability %d.%d and cannot run what is selected"
                   " for that one",
                   assumed / 10, assumed % 10, own / 10, own % 10);
}

pb_status pb_gpu_no_code(int device, const char *name, int capability, const char *built)
{
    return pb_fail(PB_EDEVICE, "cuda: device %d (%s) has compute capability %d.%d, but this build has code for %s only",
                   device, name, capability / 10, capability % 10, built);
}

pb_status pb_gpu_no_memory(size_t asked, size_t unused, size_t all)
{
    if (!all) return pb_fail(PB_ENOMEM, "cuda: out of memory: %zu bytes requested", asked);
    return pb_fail(PB_ENOMEM, "cuda: out of memory: %zu bytes requested (%.3f GB), %.3f of %.3f GB free", asked,
                   1e-9 * (double)asked, 1e-9 * (double)unused, 1e-9 * (double)all);
}
