/* measure.h - the public header of bench/measure: measures a function, and writes what was measured as rows.
 *
 *   timing.h      times a function: warm-up calls, then samples until there are enough, and their median
 *   emit.h        the emitter: writes a suite's results to results.csv and samples.csv
 *   lockstep.h    several ranks that measure together, sample by sample
 *   counters.h    emits the exact counters of a case
 *   slowdown.h    injects a delay of known size, to test comparisons
 *   time_slice.h  interleaving: two processes measure in alternating time slices */
#ifndef PB_BENCH_MEASURE_H
#define PB_BENCH_MEASURE_H
#include "bench/measure/counters.h"
#include "bench/measure/emit.h"
#include "bench/measure/lockstep.h"
#include "bench/measure/slowdown.h"
#include "bench/measure/time_slice.h"
#include "bench/measure/timing.h"
#endif
