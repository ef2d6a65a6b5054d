/* analyze.h - the public header of bench/analyze: reads the traces of a profiled job and says where its time went.
 *
 *   analyze_command.h  `bench analyze`: text, Markdown or CSV */
#ifndef PB_BENCH_ANALYZE_H
#define PB_BENCH_ANALYZE_H
#include "bench/analyze/analyze_command.h"
#endif
