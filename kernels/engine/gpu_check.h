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
/* Bytes of shared memory that one CTA may use on every GPU from PB_GPU_LEAST_CAPABILITY on. */
enum { PB_GPU_LEAST_SHARED = 99 << 10 };

/* Fails with EDEVICE if `driver` is 0 (no driver is installed) or its major version is lower than that of the CUDA
 * runtime in this program. Versions are 1000 * major + 10 * minor. */
pb_status pb_gpu_check_driver(int driver, int runtime);
/* Fails with EDEVICE unless 0 <= device < n. n: number of GPUs of the machine. */
pb_status pb_gpu_check_number(int device, int n);
/* Fails with EDEVICE if the GPU is older than PB_GPU_LEAST_CAPABILITY. `name` is the device's name, for the message. */
pb_status pb_gpu_check_capability(int device, const char *name, int capability);
/* Returns the bytes of shared memory that one CTA may use on a GPU of this compute capability; PB_GPU_LEAST_SHARED if
 * the capability is not in the table. Source: CUDA C++ Programming Guide 13.0, technical specifications per compute
 * capability. */
size_t pb_gpu_shared(int capability);
/* Sets *capability to the compute capability, times 10, in PB_CAPABILITY ("8.9"), or to 0 if the variable is not set.
 * Implementations are then selected as on such a GPU: on a GPU that can run them, to test the selection, or for a plan
 * on a machine without a GPU. EINVAL: the text is no capability from PB_GPU_LEAST_CAPABILITY on. */
pb_status pb_gpu_assumed(int *capability);
/* Fails with EINVAL if a GPU of capability `own` cannot run what is selected for a GPU of capability `assumed`: it has
 * less shared memory, or lacks the instructions that only 9.x has. */
pb_status pb_gpu_can_assume(int own, int assumed);
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
