/* watch_cpu.c - lets launches on the CPU be watched as if they ran on a GPU: linked with --wrap=pb_nvml_concerns. */
#include "bench/machine/nvml.h"

bool __wrap_pb_nvml_concerns(pb_backend_id device);
bool __wrap_pb_nvml_concerns(pb_backend_id device) { return device == PB_CPU || device == PB_CUDA; }
