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

/* Fails with EDEVICE if `driver` is 0 (no driver is installed) or its major version is lower than that of the CUDA
 * runtime in this program. Versions are 1000 * major + 10 * minor. */
pb_status pb_gpu_check_driver(int driver, int runtime);
/* Fails with EDEVICE unless 0 <= device < n. n: number of GPUs of the machine. */
pb_status pb_gpu_check_number(int device, int n);
/* Fails with EDEVICE if the GPU is older than PB_GPU_LEAST_CAPABILITY. `name` is the device's name, for the message. */
pb_status pb_gpu_check_capability(int device, const char *name, int capability);
/* Always fails with EDEVICE: the GPU is new enough, but this build has no code for it. `built` lists the architectures
 * of the build, such as "800,900". */
pb_status pb_gpu_no_code(int device, const char *name, int capability, const char *built);
/* Always fails with ENOMEM: an allocation of `asked` bytes failed while `unused` of `all` bytes were
 * free. all = 0: not known. */
pb_status pb_gpu_no_memory(size_t asked, size_t unused, size_t all);
#ifdef __cplusplus
}
#endif
#endif
