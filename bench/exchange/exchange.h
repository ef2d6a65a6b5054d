/* exchange.h - the public header of bench/exchange: converts rows to and from the formats of other tools.
 *
 *   export.h  `bench export`: a run in the format of another tool
 *   import.h  `bench import`: results of another tool as a run */
#ifndef PB_BENCH_EXCHANGE_H
#define PB_BENCH_EXCHANGE_H
#include "bench/exchange/export.h"
#include "bench/exchange/import.h"
#endif
