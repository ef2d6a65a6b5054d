/* gpu_check.h - decides whether a GPU can be used, and writes the message that says what is missing. The functions take
 * plain numbers, so that tests need no GPU; the CUDA backend passes the numbers of the machine. */
#ifndef PB_GPU_CHECK_H
#define PB_GPU_CHECK_H
#include <stddef.h>

#include "os/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PB_GPU_LEAST_CAPABILITY = 80 }; /* compute capability times 10 */

/* Versions are 1000 * major + 10 * minor; driver 0: no driver is installed. EDEVICE: no driver, or a driver whose major
 * version is lower than that of the CUDA runtime in this program. */
pb_status pb_gpu_check_driver(int driver, int runtime);
/* EDEVICE: the machine has n devices, and `device` is not one of 0..n-1. */
pb_status pb_gpu_check_number(int device, int n);
/* EDEVICE: the GPU is older than PB_GPU_LEAST_CAPABILITY. `name` is the device's name, for the message. */
pb_status pb_gpu_check_capability(int device, const char *name, int capability);
/* Always EDEVICE: the GPU is new enough, but this build has no code for it. `built` lists the architectures of the
 * build, such as "800,900". */
pb_status pb_gpu_no_code(int device, const char *name, int capability, const char *built);
/* Always ENOMEM: an allocation of `asked` bytes failed while `unused` of `all` bytes were free. all = 0: not known. */
pb_status pb_gpu_no_memory(size_t asked, size_t unused, size_t all);
#ifdef __cplusplus
}
#endif
#endif
