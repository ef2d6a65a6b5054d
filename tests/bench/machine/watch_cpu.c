/* watch_cpu.c - makes bench read NVML (throttling, clocks) for processes on the CPU as well; linked with
 * --wrap=pb_nvml_concerns. */
#include "bench/machine/nvml.h"

bool __wrap_pb_nvml_concerns(pb_backend_id device);
bool __wrap_pb_nvml_concerns(pb_backend_id device) { return device == PB_CPU || device == PB_CUDA; }
