/* machine.h - the public header of bench/machine: describes the machine, and finds what disturbs measurements on it.
 *
 *   build.h           the compiler's flags of this program
 *   fingerprint.h     the description of this machine, and the machine_id made from it
 *   host_identity.h   the host that measured: the text of the column `host`
 *   disturbance.h     how much CPU time other work took while a process measured
 *   host_state.h      load, clocks, and CPU time taken by other machines, as the kernel reports them
 *   nvml.h            the state of a GPU, read with NVML; locks its clocks
 *   doctor.h          `bench doctor`: the checks of doctor.def */
#ifndef PB_BENCH_MACHINE_H
#define PB_BENCH_MACHINE_H
#include "bench/machine/build.h"
#include "bench/machine/disturbance.h"
#include "bench/machine/doctor.h"
#include "bench/machine/fingerprint.h"
#include "bench/machine/host_identity.h"
#include "bench/machine/host_state.h"
#include "bench/machine/nvml.h"
#endif
