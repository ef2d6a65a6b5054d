/* fingerprint.h - which machine this is, in three parts: hard (another value is another machine), soft
 * (another value may explain a difference) and volatile (recorded only). */
#ifndef PB_FINGERPRINT_H
#define PB_FINGERPRINT_H
#include <jansson.h>

#include "bench/machine/nvml.h"

enum { PB_MACHINE_TEXT = 96 };

/* {"machine_id", "hard": {...}, "soft": {...}, "volatile": {...}, "environment": {...}}; the caller
 * decref's it. threads: OMP_NUM_THREADS of the launches, or < 1 for what OpenMP says. Of the environment
 * only what environment.def names, without the user and password of URLs. NULL: no memory. */
json_t *pb_fingerprint(pb_backend_id device, long threads);
/* What a GPU says of itself, into those two parts. */
void pb_fingerprint_gpu(json_t *hard, json_t *soft, const pb_device_facts *f);
/* What its driver says, into all three parts of a fingerprint; what is not known is left out. */
void pb_fingerprint_gpu_state(json_t *fingerprint, const pb_gpu_state *g);
/* "cpu-amd-epyc-2c-1a2b3c4d": device, processor, cores, and 8 hex digits over the hard part; with a GPU
 * "cuda-nvidia-h200-132sm-1a2b3c4d". The same after every reboot. */
void pb_machine_id(const json_t *fingerprint, char out[PB_MACHINE_TEXT]);
#endif
