/* fingerprint.h - describes this machine, in parts:
 *
 *   hard         another value means another machine: it changes the machine_id
 *   soft         another value may explain a difference between runs
 *   volatile     recorded for information only
 *   environment  the environment variables of environment.def */
#ifndef PB_FINGERPRINT_H
#define PB_FINGERPRINT_H
#include <jansson.h>

#include "bench/machine/nvml.h"

enum { PB_MACHINE_TEXT = 96 };

/* Returns {"machine_id", "hard": {...}, "soft": {...}, "volatile": {...}, "environment": {...}}, which the caller
 * decrefs. threads: OMP_NUM_THREADS of the measuring processes; < 1: as OpenMP reports it. User and password are
 * removed from URLs in environment variables. NULL: out of memory. */
json_t *pb_fingerprint(pb_backend_id device, long threads);
/* Adds the CUDA device's properties to the parts hard and soft. */
void pb_fingerprint_gpu(json_t *hard, json_t *soft, const pb_device_facts *f);
/* Adds what the driver reports of the GPU to the parts hard, soft and volatile; omits unknown values. */
void pb_fingerprint_gpu_state(json_t *fingerprint, const pb_gpu_state *g);
/* Writes a name such as "cpu-amd-epyc-2c-1a2b3c4d" (device, processor, cores, hash of the hard part), or with a GPU
 * "cuda-nvidia-h200-132sm-1a2b3c4d". It does not change after a reboot. */
void pb_machine_id(const json_t *fingerprint, char out[PB_MACHINE_TEXT]);
#endif
