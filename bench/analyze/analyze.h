/* analyze.h - the public header of bench/analyze: reads the traces of a profiled job and says where its time went.
 *
 *   analyze_command.h   `bench analyze`: text, Markdown or CSV
 *   counters_command.h  `bench analyze counters`: hardware events of steps, phases or ops
 *   nan_command.h       `bench analyze nan`: the first value that is not finite */
#ifndef PB_BENCH_ANALYZE_H
#define PB_BENCH_ANALYZE_H
#include "bench/analyze/analyze_command.h"
#include "bench/analyze/counters_command.h"
#include "bench/analyze/nan_command.h"
#endif
