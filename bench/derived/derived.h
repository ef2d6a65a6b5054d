/* derived.h - the public header of bench/derived: results that follow from the rows of one process.
 *
 *   requirements.h         the table requirements.def, and the rows that say which requirements hold
 *   ratios.h               the ratios of two cases of one process (ratios.def)
 *   graph_gain.h           how much graphs gain: break_even and crossover
 *   attention_crossover.h  the length from which sparse attention is faster than dense attention */
#ifndef PB_BENCH_DERIVED_H
#define PB_BENCH_DERIVED_H
#include "bench/derived/attention_crossover.h"
#include "bench/derived/graph_gain.h"
#include "bench/derived/ratios.h"
#include "bench/derived/requirements.h"
#endif
