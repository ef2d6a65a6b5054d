/* measure.h - the public header of bench/measure: measures a function, and writes what was measured as rows.
 *
 *   timing.h      times a function: warm-up calls, then samples until there are enough, and their median
 *   contention.h  tells whether other work took CPU time while samples were taken
 *   emit.h        the emitter: writes a suite's results to results.csv and samples.csv
 *   lockstep.h    several ranks that measure together, sample by sample
 *   counters.h    emits the exact counters of a case
 *   instructions.h  counts the instructions of a call, by callgrind or by the processor
 *   perf_event.h    opens counters of the processor and of the system
 *   group_counter.h  counts the events of a metric group, on a CPU or a GPU, and emits its metrics
 *   resources.h   emits the registers that the kernels of a call take
 *   slowdown.h    injects a delay of known size, to test comparisons
 *   time_slice.h  interleaving: two processes measure in alternating time slices */
#ifndef PB_BENCH_MEASURE_H
#define PB_BENCH_MEASURE_H
#include "bench/measure/contention.h"
#include "bench/measure/counters.h"
#include "bench/measure/emit.h"
#include "bench/measure/group_counter.h"
#include "bench/measure/instructions.h"
#include "bench/measure/lockstep.h"
#include "bench/measure/perf_event.h"
#include "bench/measure/resources.h"
#include "bench/measure/slowdown.h"
#include "bench/measure/time_slice.h"
#include "bench/measure/timing.h"
#endif
