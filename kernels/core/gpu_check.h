/* gpu_check.h - what a GPU must offer and the line that says what is missing: decided on plain figures, so that tests
 * need no GPU. The CUDA backend asks the machine for the figures. */
#ifndef PB_GPU_CHECK_H
#define PB_GPU_CHECK_H
#include <stddef.h>

#include "os/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PB_GPU_LEAST_CAPABILITY = 80 }; /* times 10 */

/* The CUDA versions of the driver (0: the machine has none) and of the runtime in this program: 1000 * major + 10 *
 * minor. EDEVICE: no driver, or one of an earlier major version, which runs nothing that is built with this runtime. */
pb_status pb_gpu_check_driver(int driver, int runtime);
/* EDEVICE: `device` is not one of the machine's n. */
pb_status pb_gpu_check_number(int device, int n);
/* EDEVICE: too old. `name`: the device's. */
pb_status pb_gpu_check_capability(int device, const char *name, int capability);
/* Always EDEVICE: the device is not too old, but none of the architectures `built` ("800,900") runs on it. */
pb_status pb_gpu_no_code(int device, const char *name, int capability, const char *built);
/* Always ENOMEM: `asked` bytes were refused while `unused` of `all` were free; all 0: nobody knows. */
pb_status pb_gpu_no_memory(size_t asked, size_t unused, size_t all);
#ifdef __cplusplus
}
#endif
#endif
