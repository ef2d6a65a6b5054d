/* gpu_check.c - decides whether a GPU can be used, and writes the error message for a GPU that is missing, too old or
 * out of memory. */
#include "kernels/engine/gpu_check.h"

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
